//! What a log knows in memory: where each entry is, the recent payloads, what is queued.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::format::{ENTRY_PREFIX_BYTES, RECORD_HEADER_BYTES, Record, RecordHeader, Snapshot};
use super::segment::Segment;
use super::write::Written;
use super::{LogEntry, Position, WalError};

/// One entry.
struct Slot {
    term: u64,
    /// Where its record is; none while it waits for a sync.
    place: Option<RecordPlace>,
    /// Bytes of the record.
    len: u32,
    /// Bytes of all entries ever queued up to the end of this one.
    end_bytes: u64,
    payload: Option<Bytes>,
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub segment: u64,
    pub offset: u64,
}

pub(crate) struct Index {
    /// Vote, committed, purged and last index, with everything queued.
    pub state: Snapshot,
    /// Entries without a hole; `slots[0]` is entry `first`.
    slots: VecDeque<Slot>,
    first: u64,
    /// Entries from this one on have their payload in memory.
    cached_from: u64,
    cached_bytes: usize,
    cache_bytes: usize,
    entry_bytes: u64,
    queued: Vec<Record>,
    queued_bytes: usize,
    segments: BTreeMap<u64, Arc<Segment>>,
    stopped: Option<Arc<str>>,
}

/// An entry found, in memory or on disk.
pub(crate) enum Found {
    Cached(LogEntry),
    OnDisk { position: Position, segment: Arc<Segment>, offset: u64, len: usize },
}

impl Index {
    pub fn new(state: Snapshot, cache_bytes: usize) -> Self {
        let first = state.last_index.map_or(0, |last| last + 1);
        Self {
            state,
            slots: VecDeque::new(),
            first,
            cached_from: first,
            cached_bytes: 0,
            cache_bytes,
            entry_bytes: 0,
            queued: Vec::new(),
            queued_bytes: 0,
            segments: BTreeMap::new(),
            stopped: None,
        }
    }

    pub fn add_segment(&mut self, segment: Arc<Segment>) {
        self.segments.insert(segment.sequence(), segment);
    }

    pub fn check_running(&self) -> Result<(), WalError> {
        self.stopped.as_ref().map_or(Ok(()), |why| Err(WalError::Stopped(Arc::clone(why))))
    }

    pub fn stop(&mut self, why: &WalError) {
        self.stopped = Some(why.to_string().into());
    }

    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub fn queue(&mut self, record: Record) {
        let len = record.encoded_len();
        self.follow(&record, len, None);
        self.queued_bytes += len;
        self.queued.push(record);
    }

    pub fn take_queued(&mut self) -> Vec<Record> {
        self.queued_bytes = 0;
        std::mem::take(&mut self.queued)
    }

    /// Brings memory to the state after `record`. A record that was read from disk has a place, and its
    /// payload stays there.
    pub fn follow(&mut self, record: &Record, len: usize, place: Option<RecordPlace>) {
        match record {
            Record::Entry { position, payload } => {
                if self.slots.is_empty() {
                    self.first = position.index;
                    self.cached_from = position.index;
                }
                self.entry_bytes += len as u64;
                let payload = place.is_none().then(|| payload.clone());
                match &payload {
                    Some(payload) => self.cached_bytes += payload.len(),
                    None => self.cached_from = position.index + 1,
                }
                let (term, end_bytes) = (position.term, self.entry_bytes);
                self.slots.push_back(Slot { term, place, len: len as u32, end_bytes, payload });
            }
            Record::TruncateAfter(after) => self.drop_after(*after),
            Record::Purge(position) => self.drop_through(position.index),
            Record::Vote(_) | Record::Committed(_) => {}
        }
        self.state.follow(record);
        self.evict();
    }

    fn drop_after(&mut self, after: Option<u64>) {
        let end = after.map_or(0, |index| index.saturating_add(1));
        while !self.slots.is_empty() && self.first + self.slots.len() as u64 > end {
            if let Some(payload) = self.slots.pop_back().and_then(|slot| slot.payload) {
                self.cached_bytes -= payload.len();
            }
        }
        self.cached_from = self.cached_from.min(self.first + self.slots.len() as u64);
    }

    fn drop_through(&mut self, through: u64) {
        while !self.slots.is_empty() && self.first <= through {
            if let Some(payload) = self.slots.pop_front().and_then(|slot| slot.payload) {
                self.cached_bytes -= payload.len();
            }
            self.first += 1;
        }
        self.cached_from = self.cached_from.max(self.first);
    }

    /// Drops the oldest payloads beyond the cache's bytes; what is not on disk yet stays.
    fn evict(&mut self) {
        while self.cached_bytes > self.cache_bytes {
            let Some(at) = self.cached_from.checked_sub(self.first) else { return };
            let Some(slot) = self.slots.get_mut(at as usize).filter(|slot| slot.place.is_some()) else {
                return;
            };
            if let Some(payload) = slot.payload.take() {
                self.cached_bytes -= payload.len();
            }
            self.cached_from += 1;
        }
    }

    /// A sync has written `batch`. Entries that were truncated or purged meanwhile have no slot any more, or
    /// one of a later record, which is queued or later in the batch.
    pub fn written(&mut self, batch: &[Record], written: Written) {
        if let Some(segment) = written.new_segment {
            self.add_segment(segment);
        }
        for sequence in written.unlinked {
            self.segments.remove(&sequence);
        }
        let mut offset = written.offset;
        for record in batch {
            if let Record::Entry { position, payload } = record {
                let at = position.index.checked_sub(self.first).map(|at| at as usize);
                if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
                    // The same bytes, not an equal entry: a later one of the same index is not written yet.
                    let same = slot.payload.as_ref().is_some_and(|p| {
                        p.as_ptr() == payload.as_ptr()
                            && p.len() == payload.len()
                            && slot.term == position.term
                    });
                    if same {
                        slot.place = Some(RecordPlace { segment: written.segment, offset });
                    }
                }
            }
            offset += record.encoded_len() as u64;
        }
        self.evict();
    }

    fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    pub fn first_index(&self) -> Option<u64> {
        (!self.slots.is_empty()).then_some(self.first)
    }

    pub fn last_index(&self) -> Option<u64> {
        self.state.last_index
    }

    pub fn last(&self) -> Option<Position> {
        match self.slots.back() {
            Some(slot) => Some(Position { index: self.next() - 1, term: slot.term }),
            None => self.state.purged,
        }
    }

    /// The last entry that is on disk with all before it.
    pub fn durable(&self) -> Option<Position> {
        // Entries are written in order: those that wait are the last ones.
        let waiting = self.slots.iter().rev().take_while(|slot| slot.place.is_none()).count();
        match self.slots.len() - waiting {
            0 => self.state.purged,
            written => self.position(self.first + written as u64 - 1),
        }
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    pub fn position(&self, index: u64) -> Option<Position> {
        match self.slot(index) {
            Some(slot) => Some(Position { index, term: slot.term }),
            None => self.state.purged.filter(|purged| purged.index == index),
        }
    }

    pub fn bytes_after(&self, index: u64) -> u64 {
        let before = match self.slot(index) {
            Some(slot) => slot.end_bytes,
            None if index >= self.next() => return 0,
            None => self.slots.front().map_or(self.entry_bytes, |slot| slot.end_bytes - u64::from(slot.len)),
        };
        let end = self.slots.back().map_or(before, |slot| slot.end_bytes);
        end - before
    }

    pub fn find(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Found>, WalError> {
        let mut found = Vec::new();
        let mut bytes = 0usize;
        if range.is_empty() {
            return Ok(found);
        }
        if let Some(index) = [range.start, range.end - 1].into_iter().find(|i| self.slot(*i).is_none()) {
            return Err(WalError::NoSuchEntry { index });
        }
        for index in range {
            let slot = self.slot(index).ok_or(WalError::NoSuchEntry { index })?;
            bytes += slot.len as usize;
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(self.found(index, slot)?);
        }
        Ok(found)
    }

    fn found(&self, index: u64, slot: &Slot) -> Result<Found, WalError> {
        let position = Position { index, term: slot.term };
        if let Some(payload) = &slot.payload {
            return Ok(Found::Cached(LogEntry { position, payload: payload.clone() }));
        }
        let place = slot.place.ok_or(WalError::NoSuchEntry { index })?;
        let segment = self.segments.get(&place.segment).ok_or(WalError::NoSuchEntry { index })?;
        let (segment, offset, len) = (Arc::clone(segment), place.offset, slot.len as usize);
        Ok(Found::OnDisk { position, segment, offset, len })
    }
}

impl Found {
    /// The entry; one on disk is read and verified.
    pub fn load(self) -> Result<LogEntry, WalError> {
        let (position, segment, offset, len) = match self {
            Found::Cached(entry) => return Ok(entry),
            Found::OnDisk { position, segment, offset, len } => (position, segment, offset, len),
        };
        let mut bytes = vec![0; len];
        segment.file.read_exact_at(&mut bytes, offset).map_err(|e| WalError::io("read", &segment.path, e))?;
        let damaged = |what: &str| WalError::Damaged {
            file: segment.path.clone(),
            offset,
            what: format!("entry {} {what}", position.index),
        };
        let header = RecordHeader::decode(&bytes, segment.place, offset as usize)
            .ok_or_else(|| damaged("has no valid header"))?;
        let body = header.body(&bytes).ok_or_else(|| damaged("has a wrong checksum"))?;
        match Record::decode_body(body) {
            Some(Record::Entry { position: there, .. }) if there == position => {}
            _ => return Err(damaged("is another record")),
        }
        let (from, to) = (RECORD_HEADER_BYTES + ENTRY_PREFIX_BYTES, RECORD_HEADER_BYTES + header.body_len);
        Ok(LogEntry { position, payload: Bytes::from(bytes).slice(from..to) })
    }
}
