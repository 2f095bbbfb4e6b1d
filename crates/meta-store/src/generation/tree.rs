//! Whole directories of the real file system: summed, copied, synced. Only sled's files need this, since sled
//! does its own I/O beside the `Disk` seam.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::MAX_META_BYTES;
use crate::disk::{Disk, RealDisk, read_file};

const COPY_BYTES: usize = 1 << 20;

/// What a file must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileSum {
    pub bytes: u64,
    pub checksum: u32,
}

pub(crate) fn names(dir: &Path) -> io::Result<Vec<String>> {
    RealDisk.list(dir)
}

pub(crate) fn create_dir_all(dir: &Path) -> io::Result<()> {
    RealDisk.create_dir_all(dir)
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    RealDisk.sync_dir(dir)
}

pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    read_file(&RealDisk, path, MAX_META_BYTES)
}

/// fsync of every file below `dir`, then of every directory, innermost first.
pub(crate) fn sync_all(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_all(&path)?;
        } else {
            File::open(&path)?.sync_all()?;
        }
    }
    sync_dir(dir)
}

/// Sums of the files in `dir` (not below it).
pub(crate) fn sum_files(dir: &Path) -> io::Result<BTreeMap<String, FileSum>> {
    let mut sums = BTreeMap::new();
    for name in names(dir)? {
        let path = dir.join(&name);
        if path.is_file() {
            sums.insert(name, copy(&path, &mut io::sink())?);
        }
    }
    Ok(sums)
}

/// Copies the files `expected` from one directory to another; the name of the first that is not as expected.
pub(crate) fn copy_verified(
    from: &Path,
    to: &Path,
    expected: &BTreeMap<String, FileSum>,
) -> io::Result<Option<String>> {
    for (name, sum) in expected {
        let path = from.join(name);
        let found = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some(name.clone())),
            Err(e) => return Err(e),
        };
        if found != sum.bytes || copy(&path, &mut File::create_new(to.join(name))?)? != *sum {
            return Ok(Some(name.clone()));
        }
    }
    Ok(None)
}

fn copy(path: &Path, to: &mut dyn Write) -> io::Result<FileSum> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut sum = FileSum { bytes: 0, checksum: 0 };
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(sum),
            Ok(n) => {
                sum.bytes += n as u64;
                sum.checksum = crc32c::crc32c_append(sum.checksum, &buffer[..n]);
                to.write_all(&buffer[..n])?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
