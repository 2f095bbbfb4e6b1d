//! Where everything is.

use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::error::StoreError;
use crate::paths::{PathError, check_part};

/// The directories of one node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Layout {
    work_dir: PathBuf,
}

impl Layout {
    /// Below `work_dir`.
    pub fn new(work_dir: impl Into<PathBuf>) -> Self {
        Self { work_dir: work_dir.into() }
    }

    /// The packages: `icp`.
    pub fn packages(&self) -> PathBuf {
        self.work_dir.join("icp")
    }

    /// One package: `icp/<name>/<version>`. Name and version are checked again here: they become directories.
    pub fn package(&self, name: &str, version: &str) -> Result<PathBuf, StoreError> {
        check_id(name)?;
        check_id(version)?;
        Ok(self.packages().join(name).join(version))
    }

    /// Everything of ours that is not a package.
    pub fn store(&self) -> PathBuf {
        self.work_dir.join("icp-store")
    }

    /// All descriptors.
    pub fn descriptors(&self) -> PathBuf {
        self.store().join("descriptors")
    }

    /// One descriptor. `@` occurs in no name and no version.
    pub fn descriptor(&self, name: &str, version: &str) -> Result<PathBuf, StoreError> {
        check_id(name)?;
        check_id(version)?;
        Ok(self.descriptors().join(format!("{name}@{version}.json")))
    }

    /// What is being received.
    pub fn staging(&self) -> PathBuf {
        self.store().join("staging")
    }

    /// What is being deleted.
    pub fn trash(&self) -> PathBuf {
        self.store().join("trash")
    }

    /// All blobs.
    pub fn blobs(&self) -> PathBuf {
        self.store().join("blobs")
    }

    /// One blob.
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_string();
        self.blobs().join(&hex[..2]).join(hex)
    }
}

/// A name, version or op that becomes one part of a path.
pub fn check_id(id: &str) -> Result<(), PathError> {
    let refuse = |why| PathError { path: id.to_owned(), why };
    check_part(id).map_err(refuse)?;
    if id.contains('@') || id.starts_with('.') {
        return Err(refuse("a name, version or operation id may not have `@` or start with a dot".into()));
    }
    Ok(())
}

/// The op in a marker file of `dir`, if the directory is ours.
pub fn marked_op(dir: &Path) -> Option<String> {
    let op = std::fs::read_to_string(dir.join(MARKER)).ok()?;
    (dir.file_name()?.to_str()? == op).then_some(op)
}

/// Name of the file that makes a directory below `staging` or `trash` ours: it holds the directory's own name.
pub const MARKER: &str = "op";
