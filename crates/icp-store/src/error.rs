//! Why something about a package on disk failed.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::digest::Digest;
use crate::paths::PathError;

/// A definite failure; what was there before is still there.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The disk said no.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Too little space left.
    #[error("not enough disk space: {need} bytes are needed and {reserve} kept free, {free} are left")]
    Full {
        /// Bytes the package needs.
        need: u64,
        /// Bytes the node keeps free.
        reserve: u64,
        /// Bytes there are.
        free: u64,
    },
    /// A path that a package may not hold.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A limit of `limits`.
    #[error("{0}")]
    Limit(String),
    /// Bytes that are not what their hash says.
    #[error("`{path}` has hash {found} where {expected} is expected")]
    Hash {
        /// The file.
        path: String,
        /// As recorded.
        expected: Digest,
        /// Of the bytes.
        found: Digest,
    },
    /// A directory that is not ours is where the package should go.
    #[error("{} exists and was not put there by us: register it or move it away", .0.display())]
    Occupied(PathBuf),
    /// The package on disk belongs to another operation.
    #[error("the package on disk belongs to operation {found}, not {expected}")]
    OtherOp {
        /// Asked for.
        expected: String,
        /// On disk.
        found: String,
    },
    /// Files that are still their owner's are not deleted.
    #[error("{name}:{version} was registered and not seen READY: its files are given back, not deleted")]
    Tentative {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    },
    /// No such package on disk.
    #[error("{name}:{version} is not on this disk")]
    Absent {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    },
    /// A descriptor that cannot be read.
    #[error("{} cannot be read: {why}", path.display())]
    Descriptor {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl StoreError {
    /// A short code for records and status pages.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Full { .. } => "ENOSPC",
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => "ENOSPC",
            Self::Io { source, .. } if source.kind() == io::ErrorKind::QuotaExceeded => "ENOSPC",
            Self::Io { .. } | Self::Descriptor { .. } => "EIO",
            Self::Path(_) => "BAD_PATH",
            Self::Limit(_) => "LIMIT",
            Self::Hash { .. } => "HASH",
            Self::Occupied(_) => "OCCUPIED",
            Self::OtherOp { .. } => "OTHER_OP",
            Self::Tentative { .. } => "TENTATIVE",
            Self::Absent { .. } => "ABSENT",
        }
    }
}
