//! Records as blocks and back. Version 1: a stream of `key length u32 | value length u32 | key | value`,
//! little-endian, cut into blocks of exactly [`BLOCK_BYTES`] (the last is shorter). A block is kept as
//! `crc32c(number u64, payload) u32 | payload`. A record of any size just spans blocks, so no value that sled
//! gets is larger than a block.

use std::path::PathBuf;

use super::{GenerationError, MetaV1, Record};

/// Bytes of a block's payload: with its checksum 7 KiB. A sled page holds up to 17 values and must stay below
/// 128 KiB, or it becomes a file of its own that sled never syncs; 8 KiB, measured, is over the edge when
/// written in batches.
pub(crate) const BLOCK_BYTES: usize = 7168 - BLOCK_PREFIX_BYTES;
/// Bytes of a block's checksum.
pub(crate) const BLOCK_PREFIX_BYTES: usize = 4;
const RECORD_PREFIX_BYTES: usize = 8;

/// Counts what goes by; builder and reader must agree.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Totals {
    pub records: u64,
    pub bytes: u64,
    pub checksum: u32,
    pub blocks: u64,
}

impl Totals {
    pub fn of(meta: &MetaV1) -> Self {
        Self { records: meta.records, bytes: meta.bytes, checksum: meta.checksum, blocks: meta.blocks }
    }
}

/// Turns records into blocks.
#[derive(Default)]
pub(crate) struct RecordEncoder {
    totals: Totals,
    pending: Vec<u8>,
    last_key: Option<Vec<u8>>,
}

impl RecordEncoder {
    /// Takes a record; whole blocks go to `sink` with their number.
    pub fn push(
        &mut self,
        (key, value): Record,
        sink: &mut dyn FnMut(u64, Vec<u8>) -> Result<(), GenerationError>,
    ) -> Result<(), GenerationError> {
        if self.last_key.as_ref().is_some_and(|last| *last >= key) {
            return Err(GenerationError::NotSorted(self.totals.records));
        }
        self.totals.records += 1;
        self.totals.bytes += (key.len() + value.len()) as u64;
        self.pending.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.pending.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.pending.extend_from_slice(&key);
        self.pending.extend_from_slice(&value);
        self.last_key = Some(key);
        let mut done = 0;
        while self.pending.len() - done >= BLOCK_BYTES {
            self.totals.emit(&self.pending[done..done + BLOCK_BYTES], sink)?;
            done += BLOCK_BYTES;
        }
        self.pending.drain(..done);
        Ok(())
    }

    /// The last block, and the totals.
    pub fn finish(
        mut self,
        sink: &mut dyn FnMut(u64, Vec<u8>) -> Result<(), GenerationError>,
    ) -> Result<Totals, GenerationError> {
        if !self.pending.is_empty() {
            self.totals.emit(&self.pending, sink)?;
        }
        Ok(self.totals)
    }
}

impl Totals {
    fn emit(
        &mut self,
        payload: &[u8],
        sink: &mut dyn FnMut(u64, Vec<u8>) -> Result<(), GenerationError>,
    ) -> Result<(), GenerationError> {
        self.checksum = crc32c::crc32c_append(self.checksum, payload);
        let mut block = Vec::with_capacity(BLOCK_PREFIX_BYTES + payload.len());
        block.extend_from_slice(&block_crc(self.blocks, payload).to_le_bytes());
        block.extend_from_slice(payload);
        let number = self.blocks;
        self.blocks += 1;
        sink(number, block)
    }
}

fn block_crc(number: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), payload)
}

/// Where a reader gets its blocks, in order; `None` after the last.
pub(crate) trait BlockSource: Send {
    /// The next block, checksum and payload.
    fn next_block(&mut self) -> Option<Result<Vec<u8>, GenerationError>>;
}

/// Turns blocks into records, verifying everything.
pub(crate) struct RecordDecoder<S> {
    source: S,
    path: PathBuf,
    expected: Totals,
    seen: Totals,
    pending: Vec<u8>,
    read: usize,
    last_key: Option<Vec<u8>>,
    finished: bool,
}

impl<S: BlockSource> RecordDecoder<S> {
    pub fn new(source: S, path: PathBuf, expected: Totals) -> Self {
        let (pending, seen) = (Vec::new(), Totals::default());
        Self { source, path, expected, seen, pending, read: 0, last_key: None, finished: false }
    }

    fn damaged(&self, what: impl Into<String>) -> GenerationError {
        GenerationError::Damaged { path: self.path.clone(), what: what.into() }
    }

    /// Brings at least `need` unread bytes; false when the blocks end before.
    fn fill(&mut self, need: usize) -> Result<bool, GenerationError> {
        if self.read > 0 && self.pending.len() - self.read < need {
            self.pending.drain(..self.read);
            self.read = 0;
        }
        while self.pending.len() - self.read < need {
            let Some(block) = self.source.next_block() else { return Ok(false) };
            let block = block?;
            let number = self.seen.blocks;
            if number == self.expected.blocks {
                return Err(self.damaged(format!("more than {number} blocks")));
            }
            let Some((crc, payload)) = block.split_first_chunk::<BLOCK_PREFIX_BYTES>() else {
                return Err(self.damaged(format!("block {number} is too short")));
            };
            if u32::from_le_bytes(*crc) != block_crc(number, payload) {
                return Err(self.damaged(format!("the checksum of block {number} does not fit")));
            }
            self.seen.blocks += 1;
            self.seen.checksum = crc32c::crc32c_append(self.seen.checksum, payload);
            self.pending.extend_from_slice(payload);
        }
        Ok(true)
    }

    fn next_record(&mut self) -> Result<Option<Record>, GenerationError> {
        if !self.fill(RECORD_PREFIX_BYTES)? {
            return self.finish();
        }
        let length = |at: usize| {
            let b = &self.pending[self.read + at..];
            u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize
        };
        let (key_len, value_len) = (length(0), length(4));
        if (key_len + value_len) as u64 > self.expected.bytes - self.seen.bytes {
            return Err(self.damaged(format!("record {} is larger than all there is", self.seen.records)));
        }
        if !self.fill(RECORD_PREFIX_BYTES + key_len + value_len)? {
            return Err(self.damaged(format!("record {} is cut", self.seen.records)));
        }
        let from = self.read + RECORD_PREFIX_BYTES;
        let key = self.pending[from..from + key_len].to_vec();
        let value = self.pending[from + key_len..from + key_len + value_len].to_vec();
        self.read = from + key_len + value_len;
        if self.last_key.as_ref().is_some_and(|last| *last >= key) {
            return Err(self.damaged(format!("record {} is not above the one before it", self.seen.records)));
        }
        self.seen.records += 1;
        self.seen.bytes += (key_len + value_len) as u64;
        self.last_key = Some(key.clone());
        Ok(Some((key, value)))
    }

    fn finish(&mut self) -> Result<Option<Record>, GenerationError> {
        if self.pending.len() > self.read {
            return Err(self.damaged("bytes follow the last record"));
        }
        if self.seen != self.expected {
            let (seen, expected) = (&self.seen, &self.expected);
            return Err(self.damaged(format!(
                "{} records in {} blocks, checksum {:#010x}, where {} in {}, {:#010x} were written",
                seen.records,
                seen.blocks,
                seen.checksum,
                expected.records,
                expected.blocks,
                expected.checksum
            )));
        }
        Ok(None)
    }
}

impl<S: BlockSource> Iterator for RecordDecoder<S> {
    type Item = Result<Record, GenerationError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let next = self.next_record().transpose();
        self.finished = !matches!(next, Some(Ok(_)));
        next
    }
}
