//! Opening a log: list the segments, verify every record, cut a torn tail, refuse damage.

use std::path::Path;
use std::sync::Arc;

use super::format::{Record, SegmentHeader, Snapshot};
use super::index::{Index, RecordPlace};
use super::scan::{Damage, Scanned, Tail, scan};
use super::segment::{Segment, is_unfinished, sequence_of};
use super::write::Writer;
use super::{Recovered, WalError, WalOptions};
use crate::disk::{Disk, DiskFile, OpenMode};

/// A segment that is longer was not written by us: what an open reads is bounded.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
const ZERO_CHUNK_BYTES: usize = 64 << 10;

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: WalOptions,
) -> Result<(Index, Writer, Recovered), WalError> {
    disk.create_dir_all(dir).map_err(|e| WalError::io("create directory", dir, e))?;
    let sequences = list_segments(&*disk, dir)?;
    if sequences.is_empty() {
        return create(disk, dir, options);
    }
    let mut replay = Replay::default();
    for (at, &sequence) in sequences.iter().enumerate() {
        replay.segment(&*disk, dir, sequence, at + 1 == sequences.len(), options.cache_bytes)?;
    }
    replay.finish(disk, dir, options)
}

/// Names of whole segments, oldest first. Unfinished ones hold nothing and are removed.
fn list_segments(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, WalError> {
    let names = disk.list(dir).map_err(|e| WalError::io("list", dir, e))?;
    let mut removed = false;
    for name in names.iter().filter(|name| is_unfinished(name)) {
        let path = dir.join(name);
        disk.remove_file(&path).map_err(|e| WalError::io("remove", &path, e))?;
        removed = true;
    }
    // A name that was renamed right before the process was killed may not be durable yet.
    if removed || !names.is_empty() {
        disk.sync_dir(dir).map_err(|e| WalError::io("sync directory", dir, e))?;
    }
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
    sequences.sort_unstable();
    Ok(sequences)
}

fn create(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: WalOptions,
) -> Result<(Index, Writer, Recovered), WalError> {
    let header =
        SegmentHeader { sequence: 1, salt: options.salt, previous_end: 0, before: Snapshot::default() };
    let segment = Segment::create(&*disk, dir, header, options.segment_bytes, options.prewrite_bytes)?;
    let segment = Arc::new(segment);
    let mut index = Index::new(Snapshot::default(), options.cache_bytes);
    index.add_segment(Arc::clone(&segment));
    let writer = Writer::new(disk, dir, options, segment, Snapshot::default());
    Ok((index, writer, Recovered { created: true, ..Recovered::default() }))
}

#[derive(Default)]
struct Replay {
    index: Option<Index>,
    /// Last index that only segments before the first one know.
    missing_through: Option<u64>,
    segments: Vec<(Arc<Segment>, Option<u64>)>,
    end: usize,
    torn: Option<(u64, u64)>,
}

impl Replay {
    fn segment(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        sequence: u64,
        is_last: bool,
        cache_bytes: usize,
    ) -> Result<(), WalError> {
        let (segment, bytes) = read_segment(disk, dir, sequence)?;
        self.check_follows(&segment)?;
        let index = self.index.get_or_insert_with(|| {
            self.missing_through = segment.header.before.last_index;
            Index::new(segment.header.before, cache_bytes)
        });
        let mut last_entry = None;
        let missing = &mut self.missing_through;
        let tail = scan(&bytes, segment.place, |found| {
            if let Record::TruncateAfter(after) = &found.record {
                *missing = (*missing).min(*after);
            }
            last_entry = last_entry.max(entry_index(&found.record));
            replay_record(index, sequence, found)
        })
        .map_err(|damage| damaged(&segment, damage))?;
        let end = match tail {
            Tail::Clean { end } => end,
            Tail::Torn { end, dirty_end } if is_last => {
                self.torn = Some((end as u64, (dirty_end - end) as u64));
                end
            }
            Tail::Torn { end, .. } => {
                return Err(damaged(
                    &segment,
                    Damage { offset: end, what: "no valid record, but segments follow" },
                ));
            }
        };
        if is_last {
            settle_last(&segment, &bytes[..end], self.torn)?;
        }
        let segment = Arc::new(segment);
        index.add_segment(Arc::clone(&segment));
        self.segments.push((segment, last_entry));
        self.end = end;
        Ok(())
    }

    /// A segment must continue the one before it: number, where that one ended, what it left behind.
    fn check_follows(&self, segment: &Segment) -> Result<(), WalError> {
        let (Some((previous, _)), Some(index)) = (self.segments.last(), &self.index) else { return Ok(()) };
        let header = &segment.header;
        if header.sequence != previous.header.sequence + 1 {
            let what = "the segment before this one is missing";
            return Err(damaged(segment, Damage { offset: 0, what }));
        }
        if header.previous_end != self.end as u64 {
            let what = "records are missing here: the next segment says that there are more";
            return Err(damaged(previous, Damage { offset: self.end, what }));
        }
        if header.before != index.state {
            let what = "the segments before this one are not the ones it was written after";
            return Err(damaged(segment, Damage { offset: 0, what }));
        }
        Ok(())
    }

    fn finish(
        self,
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: WalOptions,
    ) -> Result<(Index, Writer, Recovered), WalError> {
        let (Some(index), Some((current, _))) = (self.index, self.segments.last().cloned()) else {
            unreachable!("open() replays at least one segment");
        };
        let purged = index.state.purged;
        if self.missing_through > purged.map(|p| p.index) {
            let what = "entries of earlier segments are missing";
            return Err(damaged(&self.segments[0].0, Damage { offset: 0, what }));
        }
        let recovered = Recovered {
            created: false,
            vote: index.state.vote,
            committed: index.state.committed,
            purged,
            first_index: index.first_index(),
            last: index.last(),
            torn_tail: self.torn.map(|(offset, bytes)| (current.path.clone(), offset, bytes)),
        };
        let mut writer = Writer::new(disk, dir, options, current, index.state);
        writer.resume(self.segments, self.end as u64);
        Ok((index, writer, recovered))
    }
}

fn entry_index(record: &Record) -> Option<u64> {
    match record {
        Record::Entry { position, .. } => Some(position.index),
        _ => None,
    }
}

fn replay_record(index: &mut Index, segment: u64, found: Scanned) -> Result<(), &'static str> {
    if let Record::Entry { position, .. } = &found.record
        && let Some(last) = index.last_index()
        && last.checked_add(1) != Some(position.index)
    {
        return Err("this entry does not follow the one before it");
    }
    index.follow(&found.record, found.len, Some(RecordPlace { segment, offset: found.offset as u64 }));
    Ok(())
}

fn read_segment(disk: &dyn Disk, dir: &Path, sequence: u64) -> Result<(Segment, Vec<u8>), WalError> {
    let path = dir.join(super::segment::file_name(sequence));
    let failed = |e| WalError::io("read", &path, e);
    let damaged = |what| WalError::Damaged { file: path.clone(), offset: 0, what };
    let file = disk.open(&path, OpenMode::ReadWrite).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    if len > MAX_SEGMENT_BYTES {
        return Err(damaged(format!("{len} bytes, where a segment has at most {MAX_SEGMENT_BYTES}")));
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let header = SegmentHeader::decode(&bytes).map_err(damaged)?;
    if header.sequence != sequence {
        return Err(damaged(format!("this is segment {}, renamed", header.sequence)));
    }
    let place = super::format::Place::new(header.salt);
    Ok((Segment { path, header, place, file, len }, bytes))
}

/// Cuts a torn tail and makes durable what was read. After a killed process it may only be in the page cache; after
/// a sync that failed it is there as clean pages, which no sync writes any more. So it is written again.
fn settle_last(segment: &Segment, records: &[u8], torn: Option<(u64, u64)>) -> Result<(), WalError> {
    let written = segment.file.write_all_at(records, 0);
    written.map_err(|e| WalError::io("write again", &segment.path, e))?;
    if let Some((offset, bytes)) = torn {
        zero(&*segment.file, offset, bytes)
            .map_err(|e| WalError::io("cut the torn tail of", &segment.path, e))?;
    }
    segment.file.sync_data().map_err(|e| WalError::io("sync", &segment.path, e))
}

fn zero(file: &dyn DiskFile, mut offset: u64, bytes: u64) -> std::io::Result<()> {
    let end = offset + bytes;
    let zeros = vec![0; ZERO_CHUNK_BYTES.min(bytes as usize)];
    while offset < end {
        let n = zeros.len().min((end - offset) as usize);
        file.write_all_at(&zeros[..n], offset)?;
        offset += n as u64;
    }
    Ok(())
}

fn damaged(segment: &Segment, damage: Damage) -> WalError {
    WalError::Damaged {
        file: segment.path.clone(),
        offset: damage.offset as u64,
        what: damage.what.to_owned(),
    }
}
