//! `cargo xtask dist`: the archive that operators unpack.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use cargo_metadata::MetadataCommand;

use crate::{tidy, tools};

const BINARIES: [&str; 2] = ["metastored", "metactl"];
/// The profile of what is shipped; also the name of its folder.
const PROFILE: &str = "dist";
/// What `meta_types::controls` leaves in a binary that has the known bugs in it.
const MARK: &[u8] = concat!("known bugs are ", "built in").as_bytes();

/// Builds and writes `metastore-VERSION-linux-ARCH.tar.gz` into `out`.
pub fn run(out: &Path) -> anyhow::Result<()> {
    let root = tools::root();
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    tools::run(&mut tools::cargo(&[
        "build",
        "--profile",
        PROFILE,
        "--quiet",
        "--bin",
        BINARIES[0],
        "--bin",
        BINARIES[1],
    ]))?;
    for binary in BINARIES {
        refuse_controls(&metadata.target_directory.as_std_path().join(PROFILE).join(binary))?;
    }
    let name = format!("metastore-{}-linux-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let out = root.join(out);
    let tree = out.join(&name);
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    lay_out(&root, metadata.target_directory.as_std_path(), &tree)?;
    write_sums(&tree)?;
    let archive = out.join(format!("{name}.tar.gz"));
    pack(&out, &name, &archive)?;
    fs::remove_dir_all(&tree)?;
    println!("{}", archive.display());
    Ok(())
}

/// A binary with known bugs in it is not shipped. It carries a mark that says so.
fn refuse_controls(binary: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(binary).with_context(|| format!("reading {}", binary.display()))?;
    if has_mark(&bytes) {
        bail!(
            "{} was built with the feature {}: it does not ship",
            binary.display(),
            tidy::controls::FEATURE
        );
    }
    Ok(())
}

fn has_mark(bytes: &[u8]) -> bool {
    bytes.windows(MARK.len()).any(|window| window == MARK)
}

fn lay_out(root: &Path, target: &Path, tree: &Path) -> anyhow::Result<()> {
    let bin = tree.join("bin");
    fs::create_dir_all(&bin)?;
    for binary in BINARIES {
        copy(&target.join(PROFILE).join(binary), &bin.join(binary))?;
    }
    for script in
        list(&root.join("deploy"))?.iter().filter(|path| path.extension().is_some_and(|e| e == "sh"))
    {
        copy(script, &bin.join(script.file_name().context("a script has a name")?))?;
    }
    for (from, to) in [("conf", "conf"), ("examples", "examples"), ("deploy/systemd", "systemd")] {
        fs::create_dir_all(tree.join(to))?;
        for file in list(&root.join(from))? {
            copy(&file, &tree.join(to).join(file.file_name().context("a file has a name")?))?;
        }
    }
    copy(&root.join("README.md"), &tree.join("README.md"))
}

/// The files directly in a directory, sorted.
fn list(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files: Vec<_> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    // The same for everybody who builds, whatever their umask.
    let mode = if fs::metadata(from)?.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn write_sums(tree: &Path) -> anyhow::Result<()> {
    let script = "find . -type f | sed 's|^./||' | LC_ALL=C sort | xargs -d '\\n' sha256sum";
    let sums = tools::output(tools::program("bash", &["-c", script]).current_dir(tree))?;
    fs::write(tree.join("SHA256SUMS"), sums)?;
    Ok(())
}

fn pack(out: &Path, name: &str, archive: &Path) -> anyhow::Result<()> {
    let archive = archive.to_str().context("the path of the archive is not UTF-8")?;
    let args = [
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--use-compress-program=gzip -n",
        "-cf",
        archive,
        name,
    ];
    tools::run(tools::program("tar", &args).current_dir(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_with_known_bugs_is_seen() {
        let marked = [b"\x7fELF...".as_slice(), MARK, b"..."].concat();
        assert!(has_mark(&marked));
        assert!(!has_mark(b"\x7fELF... known bugs are fixed"));
    }

    /// What the start scripts need lies where they look for it.
    #[test]
    fn the_archive_has_the_scripts_and_their_lists() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::create_dir_all(target.join(PROFILE)).unwrap();
        for binary in BINARIES {
            let file = target.join(PROFILE).join(binary);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let tree = dir.path().join("tree");
        lay_out(&tools::root(), &target, &tree).unwrap();
        let is_executable = |file: &str| {
            let file = tree.join(file);
            let found = fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            found.permissions().mode() & 0o111 == 0o111
        };
        for script in ["start-cluster.sh", "stop-cluster.sh", "jobmaster.sh", "process.sh", "metastored"] {
            assert!(is_executable(&format!("bin/{script}")), "{script}");
        }
        for file in ["bin/lib.sh", "bin/lists.sh", "conf/REPLICAS", "conf/DISPATCHERS", "conf/JOB_MASTERS"] {
            assert!(!is_executable(file), "{file}");
        }
    }
}
