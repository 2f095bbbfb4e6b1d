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
        let folder = profile_folder(&std::env::current_exe().expect("a test has an executable"));
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

/// The profile's folder of an executable: programs lie in it, tests one level deeper, in `deps`.
fn profile_folder(exe: &Path) -> PathBuf {
    let folder = exe.parent().expect("an executable lies in a folder");
    match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().expect("deps lies in the profile's folder").into(),
        _ => folder.into(),
    }
}

/// True if the tests run in the release profile.
pub fn is_release(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "release")
}

/// Path of the binary `name`.
pub fn path(name: &str) -> PathBuf {
    directory().join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_programs_of_a_profile_use_its_binaries() {
        let of = |exe: &str| profile_folder(Path::new(exe));
        assert_eq!(of("/c/target/debug/deps/suite-1f"), Path::new("/c/target/debug"));
        assert_eq!(of("/c/target/release/run_costs"), Path::new("/c/target/release"));
        assert!(is_release(&of("/c/target/release/run_costs")) && !is_release(&of("/c/target/debug/deps/x")));
    }
}
