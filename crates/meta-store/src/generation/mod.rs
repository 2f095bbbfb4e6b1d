//! Checkpoint generations: a whole state at one log position, written once, never changed.
//!
//! A generation is a stream of (key, value) records in ascending key order. [`RecordEncoder`](stream::RecordEncoder)
//! turns it into blocks of at most 8 KiB, which [`SledGenerations`] keeps as the values of a sled tree and
//! [`DiskGenerations`] as one sorted file. It is built under a temporary name, synced, read back and verified, and
//! only then renamed: what [`Generations::list`] shows was whole once. Damage since then shows when it is read.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::wal::Position;

/// One record of a state.
pub type Record = (Vec<u8>, Vec<u8>);

/// A generation that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Its name in the directory.
    pub name: String,
    /// Higher is newer.
    pub number: u64,
    /// The log position whose state this is.
    pub position: Position,
    /// Records in it.
    pub records: u64,
    /// Bytes of keys and values in it.
    pub bytes: u64,
    /// crc32c of its record stream.
    pub checksum: u32,
    /// What the builder wanted to keep beside the records.
    pub extra: Vec<u8>,
}

/// A generation in the directory that cannot be opened.
#[derive(Debug)]
pub struct BadGeneration {
    /// Its name in the directory.
    pub name: String,
    /// Why.
    pub error: GenerationError,
}

/// Why a generation could not be built or read.
#[derive(Debug, Error)]
pub enum GenerationError {
    /// The bytes are not what was written.
    #[error("checkpoint {} is damaged: {what}", path.display())]
    Damaged {
        /// The generation.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The disk, or sled, refused.
    #[error("checkpoint {}: {source}", path.display())]
    Io {
        /// On what.
        path: PathBuf,
        /// As the system put it.
        source: io::Error,
    },
    /// The records to write ended in an error.
    #[error("the source of the checkpoint failed: {0}")]
    Source(io::Error),
    /// The records to write are not in ascending key order.
    #[error("record {0} is not above the one before it")]
    NotSorted(u64),
}

/// The records of a generation in order. An error ends it; a wrong count or checksum is an error at the end, so what
/// was read counts only when the end was reached without one.
pub type RecordStream = Box<dyn Iterator<Item = Result<Record, GenerationError>> + Send>;

/// A directory of generations.
pub trait Generations: Send + Sync {
    /// Writes a new generation and verifies it. When this returns it is durable and the newest.
    fn build(
        &self,
        position: Position,
        extra: &[u8],
        records: &mut dyn Iterator<Item = io::Result<Record>>,
    ) -> Result<Generation, GenerationError>;

    /// All there are, newest first.
    fn list(&self) -> Result<Vec<Result<Generation, BadGeneration>>, GenerationError>;

    /// The records of one.
    fn open(&self, generation: &Generation) -> Result<RecordStream, GenerationError>;

    /// Removes one, say because it turned out to be damaged.
    fn remove(&self, name: &str) -> Result<(), GenerationError>;

    /// Keeps the `keep` newest good ones and removes all older than those.
    fn prune(&self, keep: usize) -> Result<(), GenerationError> {
        let mut good = 0;
        for found in self.list()? {
            let name = match &found {
                Ok(generation) => &generation.name,
                Err(bad) => &bad.name,
            };
            if good >= keep {
                self.remove(name)?;
            }
            good += usize::from(found.is_ok());
        }
        Ok(())
    }

    /// Reads all of one and checks count, order and checksum.
    fn verify(&self, generation: &Generation) -> Result<(), GenerationError> {
        self.open(generation)?.try_for_each(|record| record.map(drop))
    }
}

/// The records up to the first error, which is left in `error`.
pub fn until_error(
    stream: RecordStream,
    error: &mut Option<GenerationError>,
) -> impl Iterator<Item = Record> {
    stream.map_while(move |record| record.map_err(|e| *error = Some(e)).ok())
}

/// What is kept about a generation beside its records, version 1. Frozen: a change is a new struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MetaV1 {
    pub position: Position,
    pub records: u64,
    pub bytes: u64,
    pub checksum: u32,
    pub blocks: u64,
    pub extra: Vec<u8>,
}
