//! Checkpoint generations: a whole state at one log position, written once, never changed.
//!
//! A generation is a stream of (key, value) records in ascending key order, cut into blocks of 7 KiB (see
//! `stream`), which [`SledGenerations`] keeps as the values of a sled tree and [`DiskGenerations`] as one
//! file. It is built under a temporary name, synced, read back and verified, and only then renamed: what
//! [`Generations::list`] shows was whole once. Damage since then shows when it is read.

mod disk;
mod sled;
mod stream;
#[cfg(test)]
mod tests;
mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meta_types::codec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::wal::Position;

pub use self::disk::DiskGenerations;
pub use self::sled::SledGenerations;

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
    /// Blocks in it.
    pub blocks: u64,
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

impl GenerationError {
    fn io(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}

/// The records of a generation in order. An error ends it; a wrong count or checksum is an error at the end,
/// so what was read counts only when the end was reached without one.
pub type RecordStream = Box<dyn Iterator<Item = Result<Record, GenerationError>> + Send>;

/// A generation that is being written. Dropped before it is finished, it leaves nothing behind.
pub trait GenerationWriter: Send {
    /// Adds a record above all before it.
    fn push(&mut self, record: Record) -> Result<(), GenerationError>;

    /// Makes it durable and verifies it. When this returns it is the newest.
    fn finish(self: Box<Self>) -> Result<Generation, GenerationError>;
}

/// A directory of generations.
pub trait Generations: Send + Sync {
    /// Begins a new generation. One is written at a time; a second is refused.
    fn begin(&self, position: Position, extra: &[u8]) -> Result<Box<dyn GenerationWriter>, GenerationError>;

    /// Writes a new generation of these records.
    fn build(
        &self,
        position: Position,
        extra: &[u8],
        records: &mut dyn Iterator<Item = io::Result<Record>>,
    ) -> Result<Generation, GenerationError> {
        let mut writer = self.begin(position, extra)?;
        for record in records {
            writer.push(record.map_err(GenerationError::Source)?)?;
        }
        writer.finish()
    }

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

/// Held while a generation is written in a directory.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn take(flag: &Arc<AtomicBool>, dir: &Path) -> Result<Self, GenerationError> {
        if flag.swap(true, Ordering::Acquire) {
            let busy = io::Error::new(io::ErrorKind::ResourceBusy, "another one is being written");
            return Err(GenerationError::io(dir)(busy));
        }
        Ok(Self(flag.clone()))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The records up to the first error, which is left in `error`.
pub fn until_error(
    stream: RecordStream,
    error: &mut Option<GenerationError>,
) -> impl Iterator<Item = Record> {
    stream.map_while(move |record| record.map_err(|e| *error = Some(e)).ok())
}

const META_VERSION: u16 = 1;
const PREFIX: &str = "generation-";
const BUILDING: &str = ".building";
/// A state's `extra` is small; a larger one was not written by us.
const MAX_META_BYTES: u64 = 17 << 20;

/// What is kept about a generation beside its records, version 1. Frozen: a change is a new struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MetaV1 {
    number: u64,
    position: Position,
    records: u64,
    bytes: u64,
    checksum: u32,
    blocks: u64,
    extra: Vec<u8>,
}

impl MetaV1 {
    fn new(number: u64, position: Position, extra: &[u8], totals: stream::Totals) -> Self {
        let stream::Totals { records, bytes, checksum, blocks } = totals;
        Self { number, position, records, bytes, checksum, blocks, extra: extra.to_vec() }
    }

    fn check_number(&self, number: u64, path: &Path) -> Result<(), GenerationError> {
        if self.number == number {
            return Ok(());
        }
        Err(GenerationError::damaged(path, format!("this is generation {}, renamed", self.number)))
    }
}

impl From<MetaV1> for Generation {
    fn from(meta: MetaV1) -> Self {
        let MetaV1 { number, position, records, bytes, checksum, blocks, extra } = meta;
        Self { name: name_of(number), number, position, records, bytes, checksum, blocks, extra }
    }
}

fn encode_meta<T: Serialize>(version: u16, meta: &T, path: &Path) -> Result<Vec<u8>, GenerationError> {
    codec::encode(version, meta)
        .map_err(|e| GenerationError::io(path)(io::Error::new(io::ErrorKind::InvalidInput, e)))
}

fn decode_meta<T: DeserializeOwned>(version: u16, bytes: &[u8], path: &Path) -> Result<T, GenerationError> {
    codec::decode(version, bytes)
        .map_err(|e| GenerationError::damaged(path, format!("its description cannot be read: {e}")))
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok()?;
    (name_of(number) == name).then_some(number)
}

fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(BUILDING).is_some_and(|name| number_of(name).is_some())
}

/// Numbers of the finished generations among `names`, newest first.
fn numbers(names: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers
}

/// Reads a built generation back and checks that it is the one that was meant.
fn check_built(
    found: Generation,
    meant: MetaV1,
    path: &Path,
    records: &mut dyn Iterator<Item = Result<Record, GenerationError>>,
) -> Result<Generation, GenerationError> {
    if found != Generation::from(meant) {
        return Err(GenerationError::damaged(path, "its description reads back differently"));
    }
    for record in records {
        record?;
    }
    Ok(found)
}
