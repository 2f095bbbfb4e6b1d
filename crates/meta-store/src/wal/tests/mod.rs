//! Tests of the log: what it does (`basics`), what it refuses (`damage`), what power cuts leave (`crash`),
//! and that old bytes load (`golden`).

mod basics;
mod crash;
mod damage;
mod golden;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::disk::MemDisk;

const DIR: &str = "/data/wal";

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn tiny(segment_bytes: u64) -> WalOptions {
    WalOptions { segment_bytes, prewrite_bytes: 256, cache_bytes: 512, salt: 7 }
}

fn open(disk: &MemDisk, options: WalOptions) -> Result<(Wal, Recovered), WalError> {
    Wal::open(Arc::new(disk.clone()), dir(), options)
}

fn entry(index: u64, term: u64, payload: impl Into<Bytes>) -> LogEntry {
    LogEntry { position: Position { term, index }, payload: payload.into() }
}

/// What a log is supposed to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    vote: Option<Vote>,
    committed: Option<Position>,
    purged: Option<Position>,
    entries: BTreeMap<u64, LogEntry>,
}

impl Model {
    fn of(wal: &Wal) -> Self {
        let (first, last) = (wal.first_index(), wal.last());
        let range = match (first, last) {
            (Some(first), Some(last)) => first..last.index + 1,
            _ => 0..0,
        };
        let entries = wal.read(range).expect("every entry of the log can be read");
        Self {
            vote: wal.vote(),
            committed: wal.committed(),
            purged: wal.purged(),
            entries: entries.into_iter().map(|e| (e.position.index, e)).collect(),
        }
    }

    fn follow(&mut self, record: &Record) {
        match record {
            Record::Entry { position, payload } => {
                let entry = LogEntry { position: *position, payload: payload.clone() };
                self.entries.insert(position.index, entry);
            }
            Record::Vote(vote) => self.vote = Some(*vote),
            Record::Committed(position) => self.committed = *position,
            Record::TruncateAfter(after) => {
                self.entries.retain(|index, _| after.is_some_and(|after| *index <= after));
            }
            Record::Purge(position) => {
                if self.purged.is_none_or(|purged| purged.index < position.index) {
                    self.purged = Some(*position);
                    self.entries.retain(|index, _| *index > position.index);
                }
            }
        }
    }

    fn next_index(&self) -> u64 {
        let last = self.entries.keys().next_back().copied();
        last.max(self.purged.map(|p| p.index)).map_or(1, |last| last + 1)
    }
}

/// Gives a record to the log through its public methods.
fn queue(wal: &Wal, record: &Record) -> Result<(), WalError> {
    match record {
        Record::Entry { position, payload } => {
            wal.append([LogEntry { position: *position, payload: payload.clone() }])
        }
        Record::Vote(vote) => wal.save_vote(*vote),
        Record::Committed(position) => wal.save_committed(*position),
        Record::TruncateAfter(after) => wal.truncate_after(*after),
        Record::Purge(position) => wal.purge(*position),
    }
}
