//! Finds the project's binaries, built once a test process, and the repository's root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/testkit lies two levels deep")
        .into()
}

/// The folder that holds `metastored` and `metactl`, in the profile the tests run in; built if need be.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let exe = std::env::current_exe().expect("a test has an executable");
        let folder = exe.ancestors().nth(2).expect("tests lie in <target>/<profile>/deps").to_path_buf();
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.current_dir(root()).args(["build", "--quiet", "--bin", "metastored", "--bin", "metactl"]);
        build.arg("--target-dir").arg(folder.parent().expect("a profile folder lies in the target folder"));
        if is_release(&folder) {
            build.arg("--release");
        }
        let status = build.status().expect("cargo can be started");
        assert!(status.success(), "building metastored and metactl failed");
        folder
    })
}

/// True if the tests run in the release profile.
pub fn is_release(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "release")
}

/// Path of the binary `name`.
pub fn path(name: &str) -> PathBuf {
    directory().join(name)
}
