//! One segment file: its name, and how it comes to be.

use std::path::{Path, PathBuf};

use super::WalError;
use super::format::{Place, SegmentHeader};
use crate::disk::{Disk, DiskFile, OpenMode};

const PREFIX: &str = "wal-";
const SUFFIX: &str = ".log";
const BUILDING: &str = ".building";

/// An open segment.
pub(crate) struct Segment {
    pub path: PathBuf,
    pub header: SegmentHeader,
    pub place: Place,
    pub file: Box<dyn DiskFile>,
    pub len: u64,
}

impl Segment {
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// Creates a segment that is durable, name and all, before anything can be written to it. A power cut on
    /// the way leaves a `.building` file, which the next open removes.
    pub fn create(
        disk: &dyn Disk,
        dir: &Path,
        header: SegmentHeader,
        len: u64,
        prewrite: u64,
    ) -> Result<Self, WalError> {
        let path = dir.join(file_name(header.sequence));
        let building = dir.join(file_name(header.sequence) + BUILDING);
        let failed = |what| move |e| WalError::io(what, &building_of(dir, header.sequence), e);
        let file = disk.open(&building, OpenMode::CreateNew).map_err(failed("create"))?;
        file.preallocate(len).map_err(failed("reserve space for"))?;
        let mut first = header.encode();
        let prewritten = (first.len() as u64 + prewrite).min(len).max(first.len() as u64);
        first.resize(prewritten as usize, 0);
        file.write_all_at(&first, 0).map_err(failed("write"))?;
        file.sync_all().map_err(failed("sync"))?;
        disk.rename(&building, &path).map_err(failed("rename"))?;
        disk.sync_dir(dir).map_err(|e| WalError::io("sync directory", dir, e))?;
        Ok(Self { path, header, place: Place::new(header.salt), file, len })
    }
}

fn building_of(dir: &Path, sequence: u64) -> PathBuf {
    dir.join(file_name(sequence) + BUILDING)
}

pub(crate) fn file_name(sequence: u64) -> String {
    format!("{PREFIX}{sequence:016x}{SUFFIX}")
}

/// The sequence number in a segment's name.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    (file_name(sequence) == name).then_some(sequence)
}

/// Whether `name` is a segment that was never finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(BUILDING).is_some_and(|name| sequence_of(name).is_some())
}
