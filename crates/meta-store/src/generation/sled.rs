//! Generations as sled databases, used in the one way in which sled 0.34 survives every power cut: a fresh
//! directory, written by one thread, flushed, closed, every file and directory synced, renamed, never written
//! again.
//!
//! ```text
//! generation-0000000000000001/
//!     DESCRIPTION      position, counts, checksum, extra; length and crc32c of every file below
//!     sled/            block number u64 big-endian -> block
//! ```
//!
//! What sled 0.34 does that this answers:
//!
//! * `flush` is not durable on Linux: all files and directories are synced here after the database is closed.
//! * Pages over 128 KiB become files in `blobs/` that are never synced: blocks are 7 KiB, and `blobs/` must
//!   be empty.
//! * Damaged files make it panic, allocate without bound, or silently drop what it cannot read: it only gets
//!   to see files whose checksums fit, panics are caught, and the stream's counts must come out right.
//! * Opening a database to read it writes to it: a reader gets a private copy, so that a generation never
//!   changes and no power cut during a load can harm it.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::stream::{BlockSource, RecordDecoder, RecordEncoder, Totals};
use super::tree::{self, FileSum};
use super::{
    BUILDING, BadGeneration, Generation, GenerationError, Generations, META_VERSION, MetaV1, Record,
    RecordStream, check_built, decode_meta, encode_meta, is_unfinished, name_of, number_of, numbers,
};
use crate::wal::Position;

const DESCRIPTION: &str = "DESCRIPTION";
const SLED_DIR: &str = "sled";
const BLOBS_DIR: &str = "blobs";
const READING: &str = ".reading";
/// Blocks that go to sled in one batch.
const BATCH_BLOCKS: usize = 64;
/// sled's own cache; nothing is read twice.
const SLED_CACHE_BYTES: u64 = 16 << 20;

/// The content of `DESCRIPTION`, version 1. Frozen: a change is a new struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DescriptionV1 {
    meta: MetaV1,
    files: BTreeMap<String, FileSum>,
}

/// Generations as sled databases in a directory of the real file system.
pub struct SledGenerations {
    dir: PathBuf,
    /// One build at a time.
    building: Mutex<()>,
    readers: AtomicU64,
}

impl SledGenerations {
    /// Opens a directory, creating it if needed; what an interrupted build or load left is removed.
    pub fn open_dir(dir: &Path) -> Result<Self, GenerationError> {
        let failed = GenerationError::io(dir);
        tree::create_dir_all(dir).map_err(failed)?;
        for name in tree::names(dir).map_err(failed)? {
            if is_unfinished(&name) || name.ends_with(READING) {
                std::fs::remove_dir_all(dir.join(name)).map_err(failed)?;
            }
        }
        tree::sync_dir(dir).map_err(failed)?;
        Ok(Self { dir: dir.to_owned(), building: Mutex::new(()), readers: AtomicU64::new(0) })
    }

    fn build_at(
        &self,
        path: &Path,
        number: u64,
        (position, extra): (Position, &[u8]),
        records: &mut dyn Iterator<Item = io::Result<Record>>,
    ) -> Result<Generation, GenerationError> {
        let failed = GenerationError::io(path);
        if path.exists() {
            std::fs::remove_dir_all(path).map_err(failed)?;
        }
        std::fs::create_dir(path).map_err(failed)?;
        let sled_dir = path.join(SLED_DIR);
        let totals = write_blocks(&sled_dir, records)?;
        if !tree::names(&sled_dir.join(BLOBS_DIR)).map_err(failed)?.is_empty() {
            return Err(failed(io::Error::other("sled made blob files, which it never syncs")));
        }
        let meta = MetaV1::new(number, position, extra, totals);
        let files = tree::sum_files(&sled_dir).map_err(failed)?;
        let description = DescriptionV1 { meta: meta.clone(), files };
        let description = encode_meta(META_VERSION, &description, path)?;
        std::fs::write(path.join(DESCRIPTION), description).map_err(failed)?;
        tree::sync_all(path).map_err(failed)?;
        let found = describe(path, number)?;
        let mut stream = self.stream(path, &found)?;
        check_built(Generation::from(found.meta), meta, path, &mut stream)
    }

    /// Copies the database, verifying each file on the way, and opens the copy.
    fn stream(
        &self,
        path: &Path,
        description: &DescriptionV1,
    ) -> Result<RecordDecoder<SledBlocks>, GenerationError> {
        let failed = GenerationError::io(path);
        let reader = self.readers.fetch_add(1, Ordering::Relaxed);
        let copy = self.dir.join(format!("{}-{reader}{READING}", name_of(description.meta.number)));
        std::fs::create_dir(&copy).map_err(failed)?;
        let scratch = Scratch(copy);
        let wrong =
            tree::copy_verified(&path.join(SLED_DIR), &scratch.0, &description.files).map_err(failed)?;
        if let Some(name) = wrong {
            let what = format!("{SLED_DIR}/{name} is not as it was written");
            return Err(GenerationError::damaged(path, what));
        }
        let blocks = guarded(path, || {
            let db = config(&scratch.0).open()?;
            Ok(SledBlocks { open: Some((db.iter(), db)), path: path.to_owned(), _scratch: scratch })
        })?;
        Ok(RecordDecoder::new(blocks, path.to_owned(), Totals::of(&description.meta)))
    }
}

fn config(path: &Path) -> sled::Config {
    sled::Config::new()
        .path(path)
        .cache_capacity(SLED_CACHE_BYTES)
        .flush_every_ms(None)
        .mode(sled::Mode::HighThroughput)
}

/// Runs sled code: its panics are damage, its errors too unless they are the system's.
fn guarded<T>(path: &Path, f: impl FnOnce() -> sled::Result<T>) -> Result<T, GenerationError> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(e))) => Err(GenerationError::io(path)(e)),
        Ok(Err(e)) => Err(GenerationError::damaged(path, e.to_string())),
        Err(_) => Err(GenerationError::damaged(path, "sled panicked over it")),
    }
}

/// Writes the records into a fresh database at `path`, and closes it.
fn write_blocks(
    path: &Path,
    records: &mut dyn Iterator<Item = io::Result<Record>>,
) -> Result<Totals, GenerationError> {
    let db = guarded(path, || config(path).create_new(true).open())?;
    let mut batch = Vec::with_capacity(BATCH_BLOCKS);
    let mut sink = |number: u64, block: Vec<u8>| {
        batch.push((number, block));
        if batch.len() < BATCH_BLOCKS { Ok(()) } else { write_batch(path, &db, &mut batch) }
    };
    let mut encoder = RecordEncoder::default();
    for record in records {
        encoder.push(record.map_err(GenerationError::Source)?, &mut sink)?;
    }
    let totals = encoder.finish(&mut sink)?;
    write_batch(path, &db, &mut batch)?;
    guarded(path, || db.flush())?;
    guarded(path, move || {
        drop(db);
        Ok(())
    })?;
    Ok(totals)
}

fn write_batch(path: &Path, db: &sled::Db, batch: &mut Vec<(u64, Vec<u8>)>) -> Result<(), GenerationError> {
    let mut writes = sled::Batch::default();
    for (number, block) in batch.drain(..) {
        writes.insert(&number.to_be_bytes(), block);
    }
    guarded(path, || db.apply_batch(writes))
}

fn describe(path: &Path, number: u64) -> Result<DescriptionV1, GenerationError> {
    let bytes = tree::read_bounded(&path.join(DESCRIPTION)).map_err(GenerationError::io(path))?;
    let description: DescriptionV1 = decode_meta(META_VERSION, &bytes, path)?;
    description.meta.check_number(number, path)?;
    Ok(description)
}

/// A directory that goes away with its reader.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next start.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct SledBlocks {
    open: Option<(sled::Iter, sled::Db)>,
    path: PathBuf,
    _scratch: Scratch,
}

impl BlockSource for SledBlocks {
    fn next_block(&mut self) -> Option<Result<Vec<u8>, GenerationError>> {
        // Numbers need no check here: a block's checksum covers its number, and the decoder counts.
        let (iter, _) = self.open.as_mut()?;
        let next = guarded(&self.path, || iter.next().transpose());
        next.map(|pair| pair.map(|(_, block)| block.to_vec())).transpose()
    }
}

impl Drop for SledBlocks {
    fn drop(&mut self) {
        let open = self.open.take();
        // A panic while closing a scratch copy says nothing about the generation.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(open)));
    }
}

impl Generations for SledGenerations {
    fn build(
        &self,
        position: Position,
        extra: &[u8],
        records: &mut dyn Iterator<Item = io::Result<Record>>,
    ) -> Result<Generation, GenerationError> {
        let _one = self.building.lock();
        let failed = GenerationError::io(&self.dir);
        let names = tree::names(&self.dir).map_err(failed)?;
        let number = numbers(&names).first().map_or(1, |newest| newest + 1);
        let building = self.dir.join(name_of(number) + BUILDING);
        let built = self.build_at(&building, number, (position, extra), records);
        if built.is_err() {
            // The first error is the one to tell; what stays is removed at the next start.
            let _ = std::fs::remove_dir_all(&building);
        }
        let built = built?;
        std::fs::rename(&building, self.dir.join(&built.name)).map_err(failed)?;
        tree::sync_dir(&self.dir).map_err(failed)?;
        Ok(built)
    }

    fn list(&self) -> Result<Vec<Result<Generation, BadGeneration>>, GenerationError> {
        let names = tree::names(&self.dir).map_err(GenerationError::io(&self.dir))?;
        let found = numbers(&names).into_iter().map(|number| {
            let name = name_of(number);
            match describe(&self.dir.join(&name), number) {
                Ok(description) => Ok(description.meta.into()),
                Err(error) => Err(BadGeneration { name, error }),
            }
        });
        Ok(found.collect())
    }

    fn open(&self, generation: &Generation) -> Result<RecordStream, GenerationError> {
        let path = self.dir.join(&generation.name);
        let description = describe(&path, generation.number)?;
        if Generation::from(description.meta.clone()) != *generation {
            return Err(GenerationError::damaged(&path, "it is not the one that was listed"));
        }
        Ok(Box::new(self.stream(&path, &description)?))
    }

    fn remove(&self, name: &str) -> Result<(), GenerationError> {
        let path = self.dir.join(name);
        let failed = GenerationError::io(&path);
        if number_of(name).is_none() {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        // Half removed it must not be taken for a damaged generation.
        let doomed = self.dir.join(format!("{name}{BUILDING}"));
        std::fs::rename(&path, &doomed).map_err(failed)?;
        tree::sync_dir(&self.dir).map_err(failed)?;
        std::fs::remove_dir_all(&doomed).map_err(failed)?;
        tree::sync_dir(&self.dir).map_err(failed)
    }
}
