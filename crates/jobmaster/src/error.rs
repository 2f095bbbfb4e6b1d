//! Why a server node does not start.

use std::io;
use std::path::PathBuf;

use process_kit::{BindError, ConfigError};
use thiserror::Error;

/// Why a server node does not start.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The package directory.
    #[error(transparent)]
    Store(#[from] icp_store::StoreError),
    /// The work directory has an owner.
    #[error("work-dir {}: another process{holder} uses it; each node needs a work-dir of its own", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// ` (pid N)`, if known.
        holder: String,
    },
    /// Something an earlier process left cannot be killed.
    #[error(
        "{}: a process of this attempt is still alive and cannot be killed; the node does not start beside it",
        path.display()
    )]
    Leftover {
        /// The attempt's directory.
        path: PathBuf,
    },
    /// The disk.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}
