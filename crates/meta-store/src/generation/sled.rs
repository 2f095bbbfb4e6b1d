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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::stream::{BlockSource, RecordDecoder, RecordEncoder, Totals};
use super::tree::{self, FileSum};
use super::{
    BUILDING, BadGeneration, Busy, Generation, GenerationError, GenerationWriter, Generations, META_VERSION,
    MetaV1, Record, RecordStream, check_built, decode_meta, encode_meta, is_unfinished, name_of, number_of,
    numbers,
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
    dir: Arc<Directory>,
    writing: Arc<AtomicBool>,
}

/// The directory, for those who read it and for the one who writes.
struct Directory {
    path: PathBuf,
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
        let dir = Arc::new(Directory { path: dir.to_owned(), readers: AtomicU64::new(0) });
        Ok(Self { dir, writing: Arc::default() })
    }
}

impl Directory {
    fn begin(
        self: &Arc<Self>,
        position: Position,
        extra: &[u8],
        busy: Busy,
    ) -> Result<SledWriter, GenerationError> {
        let names = tree::names(&self.path).map_err(GenerationError::io(&self.path))?;
        let number = numbers(&names).first().map_or(1, |newest| newest + 1);
        let path = self.path.join(name_of(number) + BUILDING);
        let failed = GenerationError::io(&path);
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(failed)?;
        }
        std::fs::create_dir(&path).map_err(failed)?;
        let scratch = Scratch(path);
        let blocks = BlockWriter::create(&scratch.0.join(SLED_DIR))?;
        let encoder = RecordEncoder::default();
        let (dir, extra) = (self.clone(), extra.to_vec());
        Ok(SledWriter { dir, number, position, extra, encoder, blocks, scratch, _busy: busy })
    }

    /// Copies the database, verifying each file on the way, and opens the copy.
    fn stream(
        &self,
        path: &Path,
        description: &DescriptionV1,
    ) -> Result<RecordDecoder<SledBlocks>, GenerationError> {
        let failed = GenerationError::io(path);
        let reader = self.readers.fetch_add(1, Ordering::Relaxed);
        let copy = self.path.join(format!("{}-{reader}{READING}", name_of(description.meta.number)));
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

/// Writes blocks into a fresh database. Closing one may panic too.
struct BlockWriter {
    path: PathBuf,
    db: Option<sled::Db>,
    batch: Vec<(u64, Vec<u8>)>,
}

impl BlockWriter {
    fn create(path: &Path) -> Result<Self, GenerationError> {
        let db = guarded(path, || config(path).create_new(true).open())?;
        Ok(Self { path: path.to_owned(), db: Some(db), batch: Vec::with_capacity(BATCH_BLOCKS) })
    }

    fn block(&mut self, number: u64, block: Vec<u8>) -> Result<(), GenerationError> {
        self.batch.push((number, block));
        if self.batch.len() < BATCH_BLOCKS { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<(), GenerationError> {
        let mut writes = sled::Batch::default();
        for (number, block) in self.batch.drain(..) {
            writes.insert(&number.to_be_bytes(), block);
        }
        self.db.as_ref().map_or(Ok(()), |db| guarded(&self.path, || db.apply_batch(writes)))
    }

    /// Writes what is left, and closes the database.
    fn close(&mut self) -> Result<(), GenerationError> {
        self.write()?;
        let Some(db) = self.db.take() else { return Ok(()) };
        guarded(&self.path, || db.flush())?;
        guarded(&self.path, move || {
            drop(db);
            Ok(())
        })
    }
}

impl Drop for BlockWriter {
    fn drop(&mut self) {
        let db = self.db.take();
        // It is thrown away with what it wrote.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(db)));
    }
}

struct SledWriter {
    dir: Arc<Directory>,
    number: u64,
    position: Position,
    extra: Vec<u8>,
    encoder: RecordEncoder,
    /// Closed before its directory goes away.
    blocks: BlockWriter,
    scratch: Scratch,
    _busy: Busy,
}

impl GenerationWriter for SledWriter {
    fn push(&mut self, record: Record) -> Result<(), GenerationError> {
        let blocks = &mut self.blocks;
        self.encoder.push(record, &mut |number, block| blocks.block(number, block))
    }

    fn finish(self: Box<Self>) -> Result<Generation, GenerationError> {
        let Self { _busy, scratch, dir, number, position, extra, encoder, mut blocks } = *self;
        let path = scratch.0.as_path();
        let failed = GenerationError::io(path);
        let totals = encoder.finish(&mut |number, block| blocks.block(number, block))?;
        blocks.close()?;
        let sled_dir = path.join(SLED_DIR);
        if !tree::names(&sled_dir.join(BLOBS_DIR)).map_err(failed)?.is_empty() {
            return Err(failed(io::Error::other("sled made blob files, which it never syncs")));
        }
        let meta = MetaV1::new(number, position, &extra, totals);
        let files = tree::sum_files(&sled_dir).map_err(failed)?;
        let description = DescriptionV1 { meta: meta.clone(), files };
        let description = encode_meta(META_VERSION, &description, path)?;
        std::fs::write(path.join(DESCRIPTION), description).map_err(failed)?;
        tree::sync_all(path).map_err(failed)?;
        let found = describe(path, number)?;
        let mut stream = dir.stream(path, &found)?;
        let built = check_built(Generation::from(found.meta), meta, path, &mut stream)?;
        std::fs::rename(path, dir.path.join(&built.name)).map_err(failed)?;
        // The name is taken: dropping the scratch removes nothing.
        tree::sync_dir(&dir.path).map_err(failed)?;
        Ok(built)
    }
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
    fn begin(&self, position: Position, extra: &[u8]) -> Result<Box<dyn GenerationWriter>, GenerationError> {
        let busy = Busy::take(&self.writing, &self.dir.path)?;
        Ok(Box::new(self.dir.begin(position, extra, busy)?))
    }

    fn list(&self) -> Result<Vec<Result<Generation, BadGeneration>>, GenerationError> {
        let names = tree::names(&self.dir.path).map_err(GenerationError::io(&self.dir.path))?;
        let found = numbers(&names).into_iter().map(|number| {
            let name = name_of(number);
            match describe(&self.dir.path.join(&name), number) {
                Ok(description) => Ok(description.meta.into()),
                Err(error) => Err(BadGeneration { name, error }),
            }
        });
        Ok(found.collect())
    }

    fn open(&self, generation: &Generation) -> Result<RecordStream, GenerationError> {
        let path = self.dir.path.join(&generation.name);
        let description = describe(&path, generation.number)?;
        if Generation::from(description.meta.clone()) != *generation {
            return Err(GenerationError::damaged(&path, "it is not the one that was listed"));
        }
        Ok(Box::new(self.dir.stream(&path, &description)?))
    }

    fn remove(&self, name: &str) -> Result<(), GenerationError> {
        let path = self.dir.path.join(name);
        let failed = GenerationError::io(&path);
        if number_of(name).is_none() {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        // Half removed it must not be taken for a damaged generation.
        let doomed = self.dir.path.join(format!("{name}{BUILDING}"));
        std::fs::rename(&path, &doomed).map_err(failed)?;
        tree::sync_dir(&self.dir.path).map_err(failed)?;
        std::fs::remove_dir_all(&doomed).map_err(failed)?;
        tree::sync_dir(&self.dir.path).map_err(failed)
    }
}
