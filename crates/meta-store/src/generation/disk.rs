//! Generations as one sorted file each, on any [`Disk`]: what the simulator uses, and the other half of the
//! tests that hold for both kinds. Version 1:
//!
//! ```text
//! file    = "METACKPT" | version u16 | crc32c of these 10 bytes u32 | blocks | description | trailer
//! block   = length u32 | block as in `stream`
//! trailer = offset of the description u64 | crc32c of it u32
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::stream::{BLOCK_BYTES, BLOCK_PREFIX_BYTES, BlockSource, RecordDecoder, RecordEncoder, Totals};
use super::{
    BUILDING, BadGeneration, Busy, Generation, GenerationError, GenerationWriter, Generations,
    MAX_META_BYTES, META_VERSION, MetaV1, Record, RecordStream, check_built, decode_meta, encode_meta,
    is_unfinished, name_of, number_of, numbers,
};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::wal::Position;

const MAGIC: [u8; 8] = *b"METACKPT";
const VERSION: u16 = 1;
const HEADER_BYTES: u64 = 14;
const TRAILER_BYTES: u64 = 12;
/// Written in pieces of about this size.
const WRITE_BYTES: usize = 1 << 20;

/// Generations in a directory of a [`Disk`].
pub struct DiskGenerations {
    files: Files,
    writing: Arc<AtomicBool>,
}

/// The directory, for those who read it and for the one who writes.
#[derive(Clone)]
struct Files {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl DiskGenerations {
    /// Opens a directory, creating it if needed; what an interrupted build left is removed.
    pub fn open_dir(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, GenerationError> {
        let failed = GenerationError::io(dir);
        disk.create_dir_all(dir).map_err(failed)?;
        for name in disk.list(dir).map_err(failed)?.iter().filter(|name| is_unfinished(name)) {
            disk.remove_file(&dir.join(name)).map_err(failed)?;
        }
        disk.sync_dir(dir).map_err(failed)?;
        Ok(Self { files: Files { disk, dir: dir.to_owned() }, writing: Arc::default() })
    }
}

impl Files {
    fn begin(&self, position: Position, extra: &[u8], busy: Busy) -> Result<DiskWriter, GenerationError> {
        let failed = GenerationError::io(&self.dir);
        let names = self.disk.list(&self.dir).map_err(failed)?;
        let number = numbers(&names).first().map_or(1, |newest| newest + 1);
        let path = self.dir.join(name_of(number) + BUILDING);
        match self.disk.remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let file = self.disk.open(&path, OpenMode::CreateNew).map_err(GenerationError::io(&path))?;
        let out = FileWriter { file, path: path.clone(), at: 0, buffer: header() };
        let scratch = Scratch { disk: self.disk.clone(), path, finished: false };
        let extra = extra.to_vec();
        let encoder = RecordEncoder::default();
        Ok(DiskWriter { files: self.clone(), number, position, extra, out, encoder, scratch, _busy: busy })
    }

    /// Reads header, trailer and description; also where the blocks end.
    fn describe(&self, path: &Path, number: u64) -> Result<(MetaV1, u64), GenerationError> {
        let failed = GenerationError::io(path);
        let damaged = |what: &str| GenerationError::damaged(path, what);
        let file = self.disk.open(path, OpenMode::Read).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        if len < HEADER_BYTES + TRAILER_BYTES {
            return Err(damaged("it is too short"));
        }
        check_header(&*file, path)?;
        let mut trailer = [0; TRAILER_BYTES as usize];
        file.read_exact_at(&mut trailer, len - TRAILER_BYTES).map_err(failed)?;
        let (offset, crc) = trailer.split_at(8);
        if crc32c::crc32c(offset).to_le_bytes() != crc {
            return Err(damaged("it has no valid end"));
        }
        let offset = offset.try_into().map_or(0, u64::from_le_bytes);
        let meta_len = (len - TRAILER_BYTES).saturating_sub(offset);
        if offset < HEADER_BYTES || meta_len > MAX_META_BYTES {
            return Err(damaged("its description is not where it should be"));
        }
        let mut meta = vec![0; meta_len as usize];
        file.read_exact_at(&mut meta, offset).map_err(failed)?;
        let meta: MetaV1 = decode_meta(META_VERSION, &meta, path)?;
        meta.check_number(number, path)?;
        Ok((meta, offset))
    }

    fn stream(
        &self,
        path: &Path,
        meta: &MetaV1,
        end: u64,
    ) -> Result<RecordDecoder<FileBlocks>, GenerationError> {
        let file = self.disk.open(path, OpenMode::Read).map_err(GenerationError::io(path))?;
        let blocks = FileBlocks { file, path: path.to_owned(), at: HEADER_BYTES, end };
        Ok(RecordDecoder::new(blocks, path.to_owned(), Totals::of(meta)))
    }
}

fn header() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn check_header(file: &dyn DiskFile, path: &Path) -> Result<(), GenerationError> {
    let mut found = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut found, 0).map_err(GenerationError::io(path))?;
    if found == *header() {
        return Ok(());
    }
    let (body, crc) = found.split_at(10);
    if body[..8] != MAGIC || crc32c::crc32c(body).to_le_bytes() != crc {
        return Err(GenerationError::damaged(path, "it does not begin as a checkpoint does"));
    }
    let version = u16::from_le_bytes([body[8], body[9]]);
    let what = format!("format version {version} where this binary reads {VERSION}: use a newer binary");
    Err(GenerationError::damaged(path, what))
}

/// A file that goes away unless it was finished.
struct Scratch {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    finished: bool,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is removed at the next start.
            let _ = self.disk.remove_file(&self.path);
        }
    }
}

struct DiskWriter {
    files: Files,
    number: u64,
    position: Position,
    extra: Vec<u8>,
    out: FileWriter,
    encoder: RecordEncoder,
    scratch: Scratch,
    _busy: Busy,
}

impl GenerationWriter for DiskWriter {
    fn push(&mut self, record: Record) -> Result<(), GenerationError> {
        let out = &mut self.out;
        self.encoder.push(record, &mut |_, block| out.block(&block))
    }

    fn finish(self: Box<Self>) -> Result<Generation, GenerationError> {
        let Self { files, number, position, extra, mut out, encoder, mut scratch, _busy } = *self;
        let path = scratch.path.clone();
        let totals = encoder.finish(&mut |_, block| out.block(&block))?;
        let meta = MetaV1::new(number, position, &extra, totals);
        out.finish(&meta)?;
        let (found, end) = files.describe(&path, number)?;
        let mut stream = files.stream(&path, &found, end)?;
        let built = check_built(found.into(), meta, &path, &mut stream)?;
        let failed = GenerationError::io(&files.dir);
        files.disk.rename(&path, &files.dir.join(&built.name)).map_err(failed)?;
        scratch.finished = true;
        files.disk.sync_dir(&files.dir).map_err(failed)?;
        Ok(built)
    }
}

struct FileWriter {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    at: u64,
    buffer: Vec<u8>,
}

impl FileWriter {
    fn block(&mut self, block: &[u8]) -> Result<(), GenerationError> {
        self.buffer.extend_from_slice(&(block.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(block);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), GenerationError> {
        self.file.write_all_at(&self.buffer, self.at).map_err(GenerationError::io(&self.path))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Description and trailer, and all of it durable.
    fn finish(&mut self, meta: &MetaV1) -> Result<(), GenerationError> {
        let offset = (self.at + self.buffer.len() as u64).to_le_bytes();
        self.buffer.extend_from_slice(&encode_meta(META_VERSION, meta, &self.path)?);
        self.buffer.extend_from_slice(&offset);
        self.buffer.extend_from_slice(&crc32c::crc32c(&offset).to_le_bytes());
        self.flush()?;
        self.file.sync_all().map_err(GenerationError::io(&self.path))
    }
}

struct FileBlocks {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    at: u64,
    end: u64,
}

impl FileBlocks {
    fn read(&mut self) -> Result<Vec<u8>, GenerationError> {
        let mut length = [0; 4];
        self.file.read_exact_at(&mut length, self.at).map_err(GenerationError::io(&self.path))?;
        let length = u32::from_le_bytes(length) as usize;
        self.at += 4;
        if length > BLOCK_PREFIX_BYTES + BLOCK_BYTES || self.at + length as u64 > self.end {
            return Err(GenerationError::damaged(&self.path, format!("a block of {length} bytes")));
        }
        let mut block = vec![0; length];
        self.file.read_exact_at(&mut block, self.at).map_err(GenerationError::io(&self.path))?;
        self.at += length as u64;
        Ok(block)
    }
}

impl BlockSource for FileBlocks {
    fn next_block(&mut self) -> Option<Result<Vec<u8>, GenerationError>> {
        (self.at < self.end).then(|| self.read())
    }
}

impl Generations for DiskGenerations {
    fn begin(&self, position: Position, extra: &[u8]) -> Result<Box<dyn GenerationWriter>, GenerationError> {
        let busy = Busy::take(&self.writing, &self.files.dir)?;
        Ok(Box::new(self.files.begin(position, extra, busy)?))
    }

    fn list(&self) -> Result<Vec<Result<Generation, BadGeneration>>, GenerationError> {
        let names = self.files.disk.list(&self.files.dir).map_err(GenerationError::io(&self.files.dir))?;
        let found = numbers(&names).into_iter().map(|number| {
            let name = name_of(number);
            match self.files.describe(&self.files.dir.join(&name), number) {
                Ok((meta, _)) => Ok(meta.into()),
                Err(error) => Err(BadGeneration { name, error }),
            }
        });
        Ok(found.collect())
    }

    fn open(&self, generation: &Generation) -> Result<RecordStream, GenerationError> {
        let path = self.files.dir.join(&generation.name);
        let (meta, end) = self.files.describe(&path, generation.number)?;
        if Generation::from(meta.clone()) != *generation {
            return Err(GenerationError::damaged(&path, "it is not the one that was listed"));
        }
        Ok(Box::new(self.files.stream(&path, &meta, end)?))
    }

    fn remove(&self, name: &str) -> Result<(), GenerationError> {
        let path = self.files.dir.join(name);
        let failed = GenerationError::io(&path);
        if number_of(name).is_none() {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        self.files.disk.remove_file(&path).map_err(failed)?;
        self.files.disk.sync_dir(&self.files.dir).map_err(failed)
    }
}
