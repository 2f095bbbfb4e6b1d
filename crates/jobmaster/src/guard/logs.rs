//! Captured output: the head and the tail of a stream in a bounded number of bytes.
//!
//! A stream's first half of the limit lies in `<name>`, what comes later in segments `<name>.<offset>` of a quarter
//! each, of which the last two are kept. Offsets are of the stream as it was written, so a reader can follow it;
//! what was dropped in the middle is skipped, and the reader is told where it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Default bytes kept of a stream.
pub const STREAM_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// Segments of the tail that are kept.
const TAIL_SEGMENTS: usize = 2;

/// Writes a stream. Errors of the disk lose output and are counted, never passed on.
#[derive(Debug)]
pub struct LogWriter {
    dir: PathBuf,
    name: String,
    limit: u64,
    /// The open segment and the bytes it may still take.
    open: Option<(File, u64)>,
    /// Offset of the next byte.
    offset: u64,
    /// Bytes that the disk did not take.
    lost: u64,
}

impl LogWriter {
    /// Starts the stream `name` in `dir`.
    pub fn open(dir: &Path, name: &str, limit: u64) -> Self {
        let limit = limit.max(4);
        Self { dir: dir.into(), name: name.into(), limit, open: None, offset: 0, lost: 0 }
    }

    /// Appends.
    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = self.room().min(bytes.len() as u64) as usize;
            let (now, later) = bytes.split_at(take);
            let written = self.open.as_mut().map(|(file, _)| file.write_all(now));
            if !matches!(written, Some(Ok(()))) {
                self.lost += now.len() as u64;
            }
            if let Some((_, room)) = &mut self.open {
                *room -= take as u64;
            }
            self.offset += take as u64;
            bytes = later;
        }
    }

    /// Bytes that the disk did not take.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes the open segment takes; opens the next if it is full. Never 0.
    fn room(&mut self) -> u64 {
        if let Some((_, room)) = &self.open
            && *room > 0
        {
            return *room;
        }
        let (path, room) = if self.offset == 0 {
            (self.dir.join(&self.name), self.limit / 2)
        } else {
            (self.dir.join(format!("{}.{}", self.name, self.offset)), self.limit / 4)
        };
        self.open = File::create(path).ok().map(|file| (file, room));
        self.drop_old_segments();
        room
    }

    fn drop_old_segments(&self) {
        let segments = segments(&self.dir, &self.name).unwrap_or_default();
        let tail: Vec<_> = segments.iter().filter(|(start, _)| *start > 0).collect();
        for (_, path) in tail.iter().rev().skip(TAIL_SEGMENTS) {
            let _ = fs::remove_file(path);
        }
    }
}

/// The stream's segments by offset.
fn segments(dir: &Path, name: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.file_name();
        let Some(rest) = file.to_str().and_then(|f| f.strip_prefix(name)) else { continue };
        match rest.strip_prefix('.') {
            None if rest.is_empty() => found.push((0, entry.path())),
            Some(start) => found.extend(start.parse().ok().map(|start| (start, entry.path()))),
            None => {}
        }
    }
    found.sort();
    Ok(found)
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// Where it begins: later than asked for if bytes were dropped there.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where the stream ends now.
    pub end: u64,
}

/// Reads at most `limit` bytes from `offset` on; a negative offset counts from the end. A stream that was never
/// written is empty.
pub fn read(dir: &Path, name: &str, offset: i64, limit: usize) -> io::Result<LogPiece> {
    let segments = segments(dir, name)?;
    let mut sized = Vec::new();
    for (start, path) in segments {
        // A segment may be dropped while we look.
        if let Ok(meta) = fs::metadata(&path) {
            sized.push((start, start + meta.len(), path));
        }
    }
    let end = sized.last().map_or(0, |(_, end, _)| *end);
    let mut at = if offset < 0 { end.saturating_sub(offset.unsigned_abs()) } else { offset as u64 };
    let mut piece = LogPiece { offset: at.min(end), bytes: Vec::new(), end };
    for (start, stop, path) in sized {
        if stop <= at {
            continue;
        }
        if start > at {
            // A gap: begin behind it, or end before it.
            if !piece.bytes.is_empty() {
                break;
            }
            at = start;
        }
        if piece.bytes.is_empty() {
            piece.offset = at;
        }
        let want = ((stop - at) as usize).min(limit - piece.bytes.len());
        let mut file = OpenOptions::new().read(true).open(path)?;
        file.seek(SeekFrom::Start(at - start))?;
        file.take(want as u64).read_to_end(&mut piece.bytes)?;
        at = piece.offset + piece.bytes.len() as u64;
        if piece.bytes.len() >= limit || at < stop {
            break;
        }
    }
    Ok(piece)
}

/// The last lines of a stream, as text.
pub fn last_lines(dir: &Path, name: &str, lines: usize) -> String {
    const LOOK_BACK: usize = 32 * 1024;
    let (mut seen, mut at) = (Vec::new(), -(LOOK_BACK as i64));
    // A gap of a long stream may lie within the last bytes: read on behind it.
    while let Ok(piece) = read(dir, name, at, LOOK_BACK)
        && !piece.bytes.is_empty()
        && seen.len() < LOOK_BACK
    {
        at = piece.offset as i64 + piece.bytes.len() as i64;
        seen.extend(piece.bytes);
    }
    let text = String::from_utf8_lossy(&seen);
    let all: Vec<_> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 numbered lines of 8 bytes.
    fn written(limit: u64) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<u8> = (0..1000).flat_map(|i| format!("{i:07}\n").into_bytes()).collect();
        let mut log = LogWriter::open(dir.path(), "stdout", limit);
        all.chunks(37).for_each(|chunk| log.write(chunk));
        assert_eq!(log.lost(), 0);
        (dir, all)
    }

    fn on_disk(dir: &Path) -> u64 {
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn a_short_stream_is_whole() {
        let (dir, all) = written(1_000_000);
        let piece = read(dir.path(), "stdout", 0, usize::MAX).unwrap();
        assert_eq!(piece, LogPiece { offset: 0, bytes: all.clone(), end: 8000 });
        let piece = read(dir.path(), "stdout", 100, 50).unwrap();
        assert_eq!((piece.offset, &piece.bytes[..]), (100, &all[100..150]));
        assert_eq!(read(dir.path(), "stdout", 9000, 10).unwrap().bytes, b"");
        assert_eq!(read(dir.path(), "stderr", 0, 10).unwrap().end, 0);
    }

    #[test]
    fn a_long_stream_keeps_head_and_tail_and_never_more_than_the_limit() {
        let (dir, all) = written(2000);
        assert!(on_disk(dir.path()) <= 2000, "{}", on_disk(dir.path()));
        let head = read(dir.path(), "stdout", 0, usize::MAX).unwrap();
        assert_eq!((head.offset, &head.bytes[..], head.end), (0, &all[..1000], 8000));
        let tail = read(dir.path(), "stdout", -500, usize::MAX).unwrap();
        assert_eq!((tail.offset, &tail.bytes[..]), (7500, &all[7500..]));
        let behind_the_gap = read(dir.path(), "stdout", 1000, usize::MAX).unwrap();
        assert_eq!(&behind_the_gap.bytes[..], &all[behind_the_gap.offset as usize..]);
        assert!(behind_the_gap.offset > 1000);
        assert_eq!(last_lines(dir.path(), "stdout", 2), "0000998\n0000999");
    }

    #[test]
    fn a_reader_that_follows_sees_each_byte_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(dir.path(), "stdout", 4000);
        let (mut seen, mut at) = (Vec::new(), 0);
        for i in 0..300 {
            log.write(format!("{i:07}\n").as_bytes());
            let piece = read(dir.path(), "stdout", at, 5).unwrap();
            at = (piece.offset + piece.bytes.len() as u64) as i64;
            seen.extend(piece.bytes);
        }
        let expected: Vec<u8> = (0..300).flat_map(|i| format!("{i:07}\n").into_bytes()).collect();
        assert_eq!(seen, expected[..seen.len()]);
        assert_eq!(seen.len(), 1500);
    }
}
