//! The write-ahead log: what a replica promised, in order, in preallocated segments.
//!
//! ```text
//!  append, save_vote, ...            sync (one at a time)
//!  memory only, any thread   ---->   all that is queued: one pwrite, one fdatasync
//!            |                                |
//!            v                                v
//!   readable at once, from memory     durable; the payload may leave memory, a reader then preads it
//! ```
//!
//! * A batch (what one sync covers) lies in one segment, as a whole. A segment that is full is left alone;
//!   the next is built under a temporary name, synced, renamed, and its directory synced before a record goes
//!   into it.
//! * Every segment's header repeats vote, committed, purged and last index, so old segments can be unlinked
//!   once all their entries are purged.
//! * A failed write or sync is for ever: the kernel may have dropped the pages, so nothing is tried again and
//!   every later call fails.
//! * At open each record is verified. What cannot be explained by a power cut during the last, unacknowledged
//!   batch is damage: the open is refused with file and offset (see `scan`).

mod format;
mod index;
mod recover;
mod scan;
mod segment;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use meta_types::limits::MAX_ENCODED_BYTES;
use parking_lot::{Mutex, RwLock};
use thiserror::Error;

use crate::disk::Disk;
use format::Record;
use index::{Found, Index};
use write::Writer;

/// Where an entry stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// Term in which it was proposed.
    pub term: u64,
    /// Index in the log.
    pub index: u64,
}

/// The vote of this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// Term voted in.
    pub term: u64,
    /// Candidate voted for.
    pub node_id: u64,
    /// Whether a quorum granted it (it is the leader).
    pub committed: bool,
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Where.
    pub position: Position,
    /// What, opaque.
    pub payload: Bytes,
}

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// Bytes of a segment; one batch that is larger gets a segment of its own.
    pub segment_bytes: u64,
    /// Zeros written ahead of the records: a sync into written blocks needs no journal commit of the file
    /// system.
    pub prewrite_bytes: u64,
    /// Payloads kept in memory, in bytes, beyond those that are not synced yet.
    pub cache_bytes: usize,
    /// Distinguishes the records of this log from copies of them; random by default.
    pub salt: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let salt = std::hash::RandomState::new().build_hasher().finish();
        Self { segment_bytes: 64 << 20, prewrite_bytes: 256 << 10, cache_bytes: 32 << 20, salt }
    }
}

/// Why the log cannot do what it was asked.
#[derive(Debug, Error, Clone)]
pub enum WalError {
    /// The bytes are not what was written, and no power cut explains it.
    #[error(
        "log {} is damaged at offset {offset}: {what}; restore this replica from its peers \
         (remove and re-add it)",
        file.display()
    )]
    Damaged {
        /// Segment.
        file: PathBuf,
        /// Byte offset in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The disk refused.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// As the system put it.
        source: Arc<io::Error>,
    },
    /// An earlier write or sync failed; nothing is tried again.
    #[error("the log stopped after a failure: {0}")]
    Stopped(Arc<str>),
    /// An appended entry does not follow the last one.
    #[error("entry {found} cannot follow entry {last}")]
    NotNext {
        /// Index appended.
        found: u64,
        /// Last index there is.
        last: u64,
    },
    /// An entry that is purged or not there yet.
    #[error("entry {index} is not in the log")]
    NoSuchEntry {
        /// Index asked for.
        index: u64,
    },
    /// A payload larger than any this log keeps.
    #[error("an entry of {bytes} bytes is over the limit of {MAX_ENCODED_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl WalError {
    fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source: Arc::new(source) }
    }
}

/// What an open found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// True when there was no log: an empty one was created. In the directory of a member this means that its
    /// votes and entries are gone: it must not take part as if it had none.
    pub created: bool,
    /// Last vote saved.
    pub vote: Option<Vote>,
    /// Last committed position saved.
    pub committed: Option<Position>,
    /// Last purged position.
    pub purged: Option<Position>,
    /// First index there is.
    pub first_index: Option<u64>,
    /// Last entry, or the purged position when there is none.
    pub last: Option<Position>,
    /// The torn tail that was cut, if any: file, offset, bytes.
    pub torn_tail: Option<(PathBuf, u64, u64)>,
}

/// What a sync did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Records made durable.
    pub records: usize,
    /// Bytes they take.
    pub bytes: usize,
}

/// The log. All methods take `&self`: share it in an `Arc`. Calls that change it must be made in the order
/// that is meant (one caller, or callers that agree); `read*` and `sync` may run beside them.
pub struct Wal {
    index: RwLock<Index>,
    writer: Mutex<Writer>,
}

impl Wal {
    /// Opens the log in `dir`, creating it if there is none.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: WalOptions) -> Result<(Self, Recovered), WalError> {
        let (index, writer, recovered) = recover::open(disk, dir, options)?;
        Ok((Self { index: RwLock::new(index), writer: Mutex::new(writer) }, recovered))
    }

    /// Queues entries; each index follows the last. All or none. Readable at once, durable after
    /// [`Wal::sync`].
    pub fn append(&self, entries: impl IntoIterator<Item = LogEntry>) -> Result<(), WalError> {
        let entries: Vec<LogEntry> = entries.into_iter().collect();
        let mut index = self.index.write();
        index.check_running()?;
        let mut last = index.last_index();
        for LogEntry { position, payload } in &entries {
            if let Some(last) = last.filter(|last| last.checked_add(1) != Some(position.index)) {
                return Err(WalError::NotNext { found: position.index, last });
            }
            if payload.len() + format::ENTRY_PREFIX_BYTES > MAX_ENCODED_BYTES {
                return Err(WalError::TooLarge { bytes: payload.len() });
            }
            last = Some(position.index);
        }
        for LogEntry { position, payload } in entries {
            index.queue(Record::Entry { position, payload });
        }
        Ok(())
    }

    /// Queues the vote.
    pub fn save_vote(&self, vote: Vote) -> Result<(), WalError> {
        self.queue(Record::Vote(vote))
    }

    /// Queues the committed position.
    pub fn save_committed(&self, committed: Option<Position>) -> Result<(), WalError> {
        self.queue(Record::Committed(committed))
    }

    /// Drops all entries after `index` (all that are not purged for `None`).
    pub fn truncate_after(&self, index: Option<u64>) -> Result<(), WalError> {
        self.queue(Record::TruncateAfter(index))
    }

    /// Drops all entries up to and including `position`, which may lie beyond the last. One that lies before
    /// the purged position changes nothing. Old segments are unlinked by the sync that makes it durable.
    pub fn purge(&self, position: Position) -> Result<(), WalError> {
        if self.purged().is_some_and(|purged| purged.index >= position.index) {
            return self.index.read().check_running();
        }
        self.queue(Record::Purge(position))
    }

    fn queue(&self, record: Record) -> Result<(), WalError> {
        let mut index = self.index.write();
        index.check_running()?;
        index.queue(record);
        Ok(())
    }

    /// Makes durable all that was queued before the call. What is queued meanwhile waits for the next. An
    /// error is final: what was queued may or may not be there after a restart.
    pub fn sync(&self) -> Result<SyncReport, WalError> {
        let mut writer = self.writer.lock();
        let batch = {
            let mut index = self.index.write();
            index.check_running()?;
            index.take_queued()
        };
        if batch.is_empty() {
            return Ok(SyncReport::default());
        }
        match writer.write(&batch) {
            Ok(written) => {
                let report = SyncReport { records: batch.len(), bytes: written.bytes };
                self.index.write().written(&batch, written);
                Ok(report)
            }
            Err(e) => {
                self.index.write().stop(&e);
                Err(e)
            }
        }
    }

    /// Bytes queued and not yet taken by a sync: for back-pressure.
    pub fn queued_bytes(&self) -> usize {
        self.index.read().queued_bytes()
    }

    /// All entries of `range`; an index that is not there is an error.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<LogEntry>, WalError> {
        self.read_limited(range, usize::MAX)
    }

    /// The first entries of `range` up to `max_bytes` of payload, at least one if the range has any.
    pub fn read_limited(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<LogEntry>, WalError> {
        let found = {
            let index = self.index.read();
            index.check_running()?;
            index.find(range, max_bytes)?
        };
        found.into_iter().map(Found::load).collect()
    }

    /// Position of the entry at `index`, if it is in the log or is the purged one.
    pub fn position(&self, index: u64) -> Option<Position> {
        self.index.read().position(index)
    }

    /// Last vote saved.
    pub fn vote(&self) -> Option<Vote> {
        self.index.read().state.vote
    }

    /// Last committed position saved.
    pub fn committed(&self) -> Option<Position> {
        self.index.read().state.committed
    }

    /// Last purged position.
    pub fn purged(&self) -> Option<Position> {
        self.index.read().state.purged
    }

    /// First index in the log.
    pub fn first_index(&self) -> Option<u64> {
        self.index.read().first_index()
    }

    /// Last entry, or the purged position when there is none.
    pub fn last(&self) -> Option<Position> {
        self.index.read().last()
    }

    /// The last entry such that it and all before it are on disk; what was purged if none of those in the log is.
    pub fn durable(&self) -> Option<Position> {
        self.index.read().durable()
    }

    /// The purged position as it is found after a power cut now.
    pub fn durably_purged(&self) -> Option<Position> {
        self.writer.lock().durable().purged
    }

    /// The vote as it is found after a power cut now.
    pub fn durable_vote(&self) -> Option<Vote> {
        self.writer.lock().durable().vote
    }

    /// Bytes of the entries after `index` (of all when that one is not in the log): the checkpoint trigger.
    pub fn bytes_after(&self, index: u64) -> u64 {
        self.index.read().bytes_after(index)
    }
}
