//! Reading a segment at open, and telling a torn tail from damage.
//!
//! The scan goes from record to record until one is not valid, at `bad`. Everything from there on is zeros in
//! a healthy log. If not, either power went during the last batch, which nobody was told is durable, or
//! synced bytes were damaged. All valid record headers after `bad` are looked at:
//!
//! 1. One of a later batch: the batch of `bad` was synced before that one was written. Damage.
//! 2. None: the tail is torn. (Damage to the very last record looks the same; the peers heal that.)
//! 3. Only ones of the same batch: a power cut writes each sector of the batch or leaves it as it was, which
//!    is zeros. So if a whole sector between `bad` and the next valid record is zero the batch is torn, else
//!    it is damage. (A damaged record of the last batch passes for torn if its payload holds such a sector of
//!    zeros.)
//!
//! In a segment that has a successor there is no torn tail: the successor's header says where it ends.

use super::format::{
    ALIGN, Place, RECORD_HEADER_BYTES, RECORD_MAGIC, Record, RecordHeader, SEGMENT_HEADER_BYTES, u32_at,
};

/// The smallest unit a device writes.
const SECTOR_BYTES: usize = 512;
static ZEROS: [u8; 4096] = [0; 4096];

/// A valid record and where it lies.
pub(crate) struct Scanned {
    pub offset: usize,
    pub len: usize,
    pub record: Record,
}

/// Damage at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub offset: usize,
    pub what: &'static str,
}

/// How the records of a segment end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Only zeros follow.
    Clean { end: usize },
    /// Part of a batch that was never acknowledged follows, up to `dirty_end`.
    Torn { end: usize, dirty_end: usize },
}

/// Calls `visit` for each valid record of a whole segment, in order; it may refuse one with a reason.
pub(crate) fn scan(
    bytes: &[u8],
    place: Place,
    mut visit: impl FnMut(Scanned) -> Result<(), &'static str>,
) -> Result<Tail, Damage> {
    let mut offset = SEGMENT_HEADER_BYTES;
    while let Some((header, body)) = record_at(bytes, place, offset) {
        let record = Record::decode_body(body).ok_or(Damage {
            offset,
            what: "a record of a kind this binary does not know: use a newer binary",
        })?;
        let len = header.total();
        visit(Scanned { offset, len, record }).map_err(|what| Damage { offset, what })?;
        offset += len;
    }
    judge_tail(bytes, place, offset)
}

fn record_at(bytes: &[u8], place: Place, offset: usize) -> Option<(RecordHeader, &[u8])> {
    let rest = bytes.get(offset..)?;
    let header = RecordHeader::decode(rest, place, offset)?;
    let body = header.body(rest)?;
    Some((header, body))
}

fn judge_tail(bytes: &[u8], place: Place, bad: usize) -> Result<Tail, Damage> {
    let Some(dirty_end) = last_nonzero(bytes, bad) else {
        return Ok(Tail::Clean { end: bad });
    };
    let mut next_of_batch = None;
    let mut at = bad + ALIGN;
    while at + RECORD_HEADER_BYTES <= dirty_end.max(bad + RECORD_HEADER_BYTES).min(bytes.len()) {
        if u32_at(bytes, at) == RECORD_MAGIC
            && let Some(header) = RecordHeader::decode(&bytes[at..], place, at)
        {
            if at.saturating_sub(header.distance) > bad {
                return Err(Damage {
                    offset: bad,
                    what: "no valid record, but records of later syncs follow",
                });
            }
            next_of_batch.get_or_insert((at, at - header.distance));
        }
        at += ALIGN;
    }
    match next_of_batch {
        Some((next, batch_start)) if !has_lost_sector(bytes, bad, next, batch_start) => {
            Err(Damage { offset: bad, what: "no valid record, but valid ones of the same sync follow" })
        }
        _ => Ok(Tail::Torn { end: bad, dirty_end }),
    }
}

/// Whether between `bad` and `next` lies a sector that a power cut can have left unwritten: zeros from where
/// the batch can have touched it to its end.
fn has_lost_sector(bytes: &[u8], bad: usize, next: usize, batch_start: usize) -> bool {
    let mut sector = bad - bad % SECTOR_BYTES;
    while sector + SECTOR_BYTES <= next {
        let from = sector.max(batch_start);
        if bytes[from..sector + SECTOR_BYTES].iter().all(|b| *b == 0) {
            return true;
        }
        sector += SECTOR_BYTES;
    }
    false
}

/// End of the last byte at or after `from` that is not zero.
fn last_nonzero(bytes: &[u8], from: usize) -> Option<usize> {
    let mut rest = bytes.get(from..)?;
    while !rest.is_empty() {
        let chunk = rest.len().min(ZEROS.len());
        let (head, tail) = rest.split_at(rest.len() - chunk);
        if *tail != ZEROS[..chunk] {
            return tail.iter().rposition(|b| *b != 0).map(|at| from + head.len() + at + 1);
        }
        rest = head;
    }
    None
}
