//! The committed example JAR is what its source gives. Needs a JDK of 17 or newer; says so where there is none.

use std::{path::Path, process::Command};

fn jdk_version() -> Option<u32> {
    let output = Command::new("javac").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1)?.split('.').next()?.parse().ok()
}

/// The parts of the archive: compression may differ between JDKs, what is inside may not.
fn contents(jar: &Path) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(jar).unwrap()).unwrap();
    let mut parts = Vec::new();
    for index in 0..archive.len() {
        let mut part = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut part, &mut bytes).unwrap();
        // The manifest names the JDK that wrote it.
        if !part.name().starts_with("META-INF/") {
            parts.push((part.name().to_owned(), bytes));
        }
    }
    parts
}

#[test]
fn hello_jar_is_what_its_source_gives() {
    let Some(17..) = jdk_version() else {
        eprintln!("no JDK of 17 or newer here: hello.jar is not rebuilt");
        return;
    };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples");
    let dir = tempfile::tempdir().unwrap();
    let jar = dir.path().join("hello.jar");
    let status = Command::new(examples.join("build.sh")).arg(&jar).status().unwrap();
    assert!(status.success());
    let built = contents(&jar);
    assert_eq!(built.len(), 1);
    assert!(built == contents(&examples.join("hello.jar")), "run examples/build.sh and commit hello.jar");
}
