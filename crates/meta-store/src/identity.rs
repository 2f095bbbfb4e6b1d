//! Whose data directory this is, and that only one process uses it.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use meta_types::codec;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::disk::{Disk, DiskLock, read_file, replace_file};

const IDENTITY_FILE: &str = "identity";
const LOCK_FILE: &str = "lock";
const IDENTITY_VERSION: u16 = 1;
const MAX_IDENTITY_BYTES: u64 = 64 << 10;

/// Written once, when a replica becomes a member; version 1 on disk. Frozen: a change is a new struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Of the cluster, minted when it was formed.
    pub cluster_id: u64,
    /// Of this replica; never used again for another.
    pub member_id: u64,
    /// The cluster's name in the configuration.
    pub cluster_name: String,
    /// The replica's name in the configuration.
    pub node_name: String,
}

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// Another process has it.
    #[error("data directory {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// It belongs to another cluster.
    #[error(
        "data directory {} belongs to cluster {found:?}, not {expected:?}: \
         set cluster.name or another data-dir",
        dir.display()
    )]
    OtherCluster {
        /// The directory.
        dir: PathBuf,
        /// As recorded in it.
        found: String,
        /// As configured.
        expected: String,
    },
    /// It belongs to another replica.
    #[error(
        "data directory {} belongs to replica {found:?}, not {expected:?}: set node.name or another data-dir",
        dir.display()
    )]
    OtherNode {
        /// The directory.
        dir: PathBuf,
        /// As recorded in it.
        found: String,
        /// As configured.
        expected: String,
    },
    /// The file is not what was written.
    #[error(
        "{} cannot be read: {source}; restore this replica from its peers (remove and re-add it)",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: codec::CodecError,
    },
    /// The disk refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// On what.
        path: PathBuf,
        /// As the system put it.
        source: io::Error,
    },
}

impl Identity {
    /// Reads the identity in `dir`; none if this directory never was a member's.
    pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, IdentityError> {
        let path = dir.join(IDENTITY_FILE);
        match read_file(disk, &path, MAX_IDENTITY_BYTES) {
            Ok(bytes) => match codec::decode(IDENTITY_VERSION, &bytes) {
                Ok(identity) => Ok(Some(identity)),
                Err(source) => Err(IdentityError::Damaged { path, source }),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(IdentityError::Io { path, source }),
        }
    }

    /// Writes the identity, durably, whole or not at all.
    pub fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<(), IdentityError> {
        let path = dir.join(IDENTITY_FILE);
        let bytes = codec::encode(IDENTITY_VERSION, self)
            .map_err(|source| IdentityError::Damaged { path: path.clone(), source })?;
        replace_file(disk, dir, IDENTITY_FILE, &bytes).map_err(|source| IdentityError::Io { path, source })
    }

    /// Refuses a directory of another cluster or another replica.
    pub fn check(&self, dir: &Path, cluster_name: &str, node_name: &str) -> Result<(), IdentityError> {
        let dir = dir.to_owned();
        if self.cluster_name != cluster_name {
            let (found, expected) = (self.cluster_name.clone(), cluster_name.to_owned());
            return Err(IdentityError::OtherCluster { dir, found, expected });
        }
        if self.node_name != node_name {
            let (found, expected) = (self.node_name.clone(), node_name.to_owned());
            return Err(IdentityError::OtherNode { dir, found, expected });
        }
        Ok(())
    }
}

/// The exclusive use of a data directory, until dropped.
pub struct DirectoryLock {
    _lock: Box<dyn DiskLock>,
}

impl DirectoryLock {
    /// Creates the directory if needed and locks it.
    pub fn acquire(disk: &dyn Disk, dir: &Path) -> Result<Self, IdentityError> {
        let failed = |source| IdentityError::Io { path: dir.to_owned(), source };
        disk.create_dir_all(dir).map_err(failed)?;
        match disk.lock(&dir.join(LOCK_FILE)) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(IdentityError::Locked(dir.to_owned())),
            Err(source) => Err(failed(source)),
        }
    }
}
