//! `/icp/manifest/<digest>`: the files of a package, named by the digest of their list.

use meta_client::{Extra, Record};
use serde::{Deserialize, Serialize};

/// One file of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path below the package, with `/`.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of the content, hex.
    pub hash: String,
    /// Whether the owner may execute it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

/// A package's files. Goes when its last holder goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The files, sorted by path.
    pub files: Vec<ManifestFile>,
    /// The packages that have it, as `NAME:VERSION`.
    #[serde(default)]
    pub holders: Vec<String>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Manifest {}

impl Manifest {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}
