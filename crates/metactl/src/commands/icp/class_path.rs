//! `metactl run submit -C FILE.jar`: a file of this machine becomes a package before the run names it.
//!
//! The package's name and version follow from the file's name and bytes. So the same command line names the same
//! package, a repeat of the run is equal, and what is deployed already is not sent again.

use std::path::Path;

use records::UnitId;

use super::{
    deploy::{Deployment, How},
    files::{self, ListedFile},
};
use crate::{cli::Globals, exit::Failure};

/// Longest part of the file's name in the package's.
const MAX_NAME_PART: usize = 100;
/// Hex digits of the digest in the version.
const VERSION_DIGITS: usize = 32;

/// Deploys it, unless it is there; the package.
pub async fn deploy_file(globals: &Globals, file: &Path) -> Result<UnitId, Failure> {
    let files = files::list(files::collect(&[file.to_owned()])?).await?;
    let unit = unit_of(&files[0])?;
    let deployment = Deployment { unit, files, how: How::before_a_run() };
    deployment.deploy(globals).await?;
    eprintln!("{} is package {}, for as long as a job needs it", file.display(), deployment.unit);
    Ok(deployment.unit)
}

fn unit_of(file: &ListedFile) -> Result<UnitId, Failure> {
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c.to_ascii_lowercase() } else { '_' };
    let name: String = file.path.chars().take(MAX_NAME_PART).map(plain).collect();
    let mut digest = blake3::Hasher::new();
    digest.update(file.path.as_bytes()).update(&[0]).update(file.blake3.as_bytes());
    let version = &digest.finalize().to_hex()[..VERSION_DIGITS];
    // The prefix keeps it apart from packages that people name, and from names that are none.
    Ok(UnitId::new(&format!("cp-{name}"), version)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(path: &str, bytes: &str) -> UnitId {
        let file = ListedFile {
            path: path.to_owned(),
            size: bytes.len() as u64,
            blake3: blake3::hash(bytes.as_bytes()).to_hex().to_string(),
            at: path.into(),
        };
        unit_of(&file).unwrap()
    }

    #[test]
    fn name_and_bytes_make_the_package() {
        let lib = unit("lib-1.0.jar", "one");
        assert_eq!(lib.name, "cp-lib-1.0.jar");
        assert_eq!(lib, unit("lib-1.0.jar", "one"));
        assert_ne!(lib.version, unit("lib-1.0.jar", "two").version);
        // Another path in the package is another package.
        assert_ne!(unit("a b.jar", "one"), unit("a_b.jar", "one"));
        assert_ne!(unit("Lib.jar", "one"), unit("lib.jar", "one"));
    }

    #[test]
    fn every_file_name_makes_a_package_name() {
        for path in ["con.jar", "-x.jar", "../a.jar", "ü.jar", &"x".repeat(255), "a:b"] {
            assert!(unit(path, "one").name.starts_with("cp-"), "{path}");
        }
    }
}
