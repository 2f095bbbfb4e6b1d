//! The writing side: a batch becomes one write and one sync in the current segment, or in the next.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use meta_types::controls::{Control, active};

use super::format::{Record, SEGMENT_HEADER_BYTES, SegmentHeader, Snapshot, encode_record};
use super::segment::Segment;
use super::{WalError, WalOptions};
use crate::disk::Disk;

pub(crate) struct Writer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: WalOptions,
    current: Arc<Segment>,
    /// Where the next record goes.
    end: u64,
    /// Up to here the segment's blocks are written (with zeros, beyond `end`).
    prewritten_end: u64,
    /// What all durable records say.
    durable: Snapshot,
    /// Segments in order, each with its largest entry index; the last is the current one.
    segments: VecDeque<(Arc<Segment>, Option<u64>)>,
    buffer: Vec<u8>,
}

/// What a write did.
pub(crate) struct Written {
    pub segment: u64,
    /// Where the first record of the batch lies.
    pub offset: u64,
    pub bytes: usize,
    pub new_segment: Option<Arc<Segment>>,
    pub unlinked: Vec<u64>,
}

impl Writer {
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: WalOptions,
        current: Arc<Segment>,
        durable: Snapshot,
    ) -> Self {
        let end = SEGMENT_HEADER_BYTES as u64;
        let prewritten_end = end + options.prewrite_bytes;
        let segments = VecDeque::from([(Arc::clone(&current), None)]);
        let dir = dir.to_owned();
        Self { disk, dir, options, current, end, prewritten_end, durable, segments, buffer: Vec::new() }
    }

    /// What all durable records say.
    pub fn durable(&self) -> &Snapshot {
        &self.durable
    }

    /// Continues a log that was there.
    pub fn resume(&mut self, segments: Vec<(Arc<Segment>, Option<u64>)>, end: u64) {
        self.segments = segments.into();
        self.end = end;
        self.prewritten_end = end;
    }

    /// Writes and syncs a batch. After an error the log is not to be written again.
    pub fn write(&mut self, batch: &[Record]) -> Result<Written, WalError> {
        let bytes: usize = batch.iter().map(Record::encoded_len).sum();
        let fits = self.end + bytes as u64 <= self.current.len;
        let new_segment = if fits { None } else { Some(self.next_segment(bytes as u64)?) };
        self.write_and_sync(batch)?;
        let offset = self.end;
        self.end += bytes as u64;
        for record in batch {
            self.durable.follow(record);
            if let (Record::Entry { position, .. }, Some((_, last))) = (record, self.segments.back_mut()) {
                *last = (*last).max(Some(position.index));
            }
        }
        let unlinked = self.unlink_purged()?;
        Ok(Written { segment: self.current.sequence(), offset, bytes, new_segment, unlinked })
    }

    fn write_and_sync(&mut self, batch: &[Record]) -> Result<(), WalError> {
        let segment = &self.current;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        for record in batch {
            encode_record(record, segment.place, self.end as usize, &mut buffer);
        }
        let end = self.end + buffer.len() as u64;
        if end > self.prewritten_end {
            let ahead = (end + self.options.prewrite_bytes).min(segment.len).max(end);
            buffer.resize((ahead - self.end) as usize, 0);
            self.prewritten_end = ahead;
        }
        let result = segment.file.write_all_at(&buffer, self.end);
        result.map_err(|e| WalError::io("write", &segment.path, e))?;
        // Positive control: done, says a log whose bytes are the kernel's.
        if !active(Control::SkippedFsync) {
            segment.file.sync_data().map_err(|e| WalError::io("sync", &segment.path, e))?;
        }
        // One huge batch does not hold its memory for ever.
        if buffer.capacity() <= 8 << 20 {
            self.buffer = buffer;
        }
        Ok(())
    }

    /// All of the current segment is synced; the batch starts the next one.
    fn next_segment(&mut self, batch_bytes: u64) -> Result<Arc<Segment>, WalError> {
        let header = SegmentHeader {
            sequence: self.current.sequence() + 1,
            salt: self.options.salt,
            previous_end: self.end,
            before: self.durable,
        };
        let start = SEGMENT_HEADER_BYTES as u64;
        let len = self.options.segment_bytes.max(start + batch_bytes);
        let segment = Segment::create(&*self.disk, &self.dir, header, len, self.options.prewrite_bytes)?;
        let segment = Arc::new(segment);
        self.current = Arc::clone(&segment);
        self.segments.push_back((Arc::clone(&segment), None));
        self.end = start;
        self.prewritten_end = (start + self.options.prewrite_bytes).min(len);
        Ok(segment)
    }

    /// Unlinks segments whose entries are all purged, durably so: oldest first, one by one, so that no power
    /// cut leaves a gap.
    fn unlink_purged(&mut self) -> Result<Vec<u64>, WalError> {
        let purged = self.durable.purged.map(|p| p.index);
        let mut unlinked = Vec::new();
        while self.segments.len() > 1
            && let Some((segment, last)) = self.segments.front()
            && *last <= purged
        {
            let path = segment.path.clone();
            self.disk.remove_file(&path).map_err(|e| WalError::io("remove", &path, e))?;
            self.disk.sync_dir(&self.dir).map_err(|e| WalError::io("sync directory", &self.dir, e))?;
            unlinked.extend(self.segments.pop_front().map(|(segment, _)| segment.sequence()));
        }
        Ok(unlinked)
    }
}
