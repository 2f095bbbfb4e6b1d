//! The descriptor of a package: whose the directory is and what must be in it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fsx::{context, write_atomically};
use crate::layout::Layout;
use crate::manifest::Manifest;

/// Version of the descriptor's format.
pub const DESCRIPTOR_VERSION: u32 = 1;
/// Version of a descriptor that is tentative: a binary that does not know what that means must not read it, for it
/// would delete the files.
pub const TENTATIVE_VERSION: u32 = 2;

/// `descriptors/<name>@<version>.json`. Written before the rename that makes the package visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Format version.
    pub v: u32,
    /// The package's name.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The operation that put it here.
    pub op: String,
    /// Inode of the package's directory: the rename keeps it, so a directory that somebody else put there after
    /// a crash is not taken for ours.
    pub inode: u64,
    /// The files.
    pub manifest: Manifest,
    /// Of a package whose files were on this node before it: see [`crate::adopt`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
}

/// A directory that was taken over where it lay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The files are still their owner's: the package was not seen READY yet. They may be given back and must not be
    /// deleted.
    pub tentative: bool,
    /// What to give back: the modes before write permission was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

/// The mode of a file or directory before it was taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Below the package; empty for its own directory.
    pub path: String,
    /// Its inode: what was put in its place meanwhile keeps the mode it has.
    pub inode: u64,
    /// Its mode.
    pub mode: u32,
}

impl Descriptor {
    /// Whether the files are still their owner's.
    pub fn is_tentative(&self) -> bool {
        self.adopted.as_ref().is_some_and(|adopted| adopted.tentative)
    }

    pub(crate) fn write(&self, layout: &Layout) -> Result<(), StoreError> {
        let json = serde_json::to_vec(self).expect("a plain struct always serialises");
        write_atomically(&layout.descriptor(&self.name, &self.version)?, &json)
    }

    /// Reads the descriptor of a package; `None` if there is none.
    pub(crate) fn read(layout: &Layout, name: &str, version: &str) -> Result<Option<Self>, StoreError> {
        Self::read_file(&layout.descriptor(name, version)?)
    }

    pub(crate) fn read_file(path: &Path) -> Result<Option<Self>, StoreError> {
        let json = match fs::read(path) {
            Ok(json) => json,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(context("read", path)(e)),
        };
        let refuse = |why| StoreError::Descriptor { path: path.into(), why };
        let version: VersionOnly = serde_json::from_slice(&json).map_err(|e| refuse(e.to_string()))?;
        if !(DESCRIPTOR_VERSION..=TENTATIVE_VERSION).contains(&version.v) {
            return Err(refuse(format!(
                "format version {} where this binary reads {DESCRIPTOR_VERSION} and {TENTATIVE_VERSION}: use a newer \
                 binary",
                version.v
            )));
        }
        serde_json::from_slice(&json).map(Some).map_err(|e| refuse(e.to_string()))
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// The inode of a directory, `None` if there is no directory.
pub(crate) fn dir_inode(dir: &Path) -> Option<u64> {
    dir.symlink_metadata().ok().filter(fs::Metadata::is_dir).map(|m| m.ino())
}
