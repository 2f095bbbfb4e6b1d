//! The bytes of a segment. Version 1, little-endian throughout:
//!
//! ```text
//! segment = header of 512 bytes, records, zeros
//! header  = "METAWAL\0" | version u16 | 0 u16 | crc32c u32 of the 512 bytes with this field zero
//!           | sequence u64 | salt u64 | previous_end u64
//!           | vote: present u8, term u64, node u64, committed u8
//!           | committed: present u8, index u64, term u64
//!           | purged: present u8, index u64, term u64 | last index: present u8, index u64 | zeros
//! record  = magic u32 | body length u32 | distance u32 | crc32c(body) u32
//!           | crc32c(place, the 16 bytes before) u32
//!           | body | zeros to a multiple of 8
//! body    = kind u8 | fields
//! ```
//!
//! `distance` is how far back in the file the record's batch starts: a batch is what one sync covers, so a
//! record of a later batch proves that all earlier ones were synced. `place` is the segment's salt and the
//! record's offset: bytes that only look like a record (a client may store a copy of a log as a value) are
//! none.

use bytes::Bytes;

use super::{Position, Vote};

pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"METAWAL\0";
pub(crate) const SEGMENT_VERSION: u16 = 1;
/// A sector of its own, so that no write of a record touches the header's.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 512;

pub(crate) const RECORD_MAGIC: u32 = 0x4C41_574D;
pub(crate) const RECORD_HEADER_BYTES: usize = 20;
pub(crate) const ALIGN: usize = 8;
/// Bytes of an entry's body before its payload.
pub(crate) const ENTRY_PREFIX_BYTES: usize = 17;

const KIND_ENTRY: u8 = 1;
const KIND_VOTE: u8 = 2;
const KIND_COMMITTED: u8 = 3;
const KIND_TRUNCATE: u8 = 4;
const KIND_PURGE: u8 = 5;

/// What the records before a segment left behind, so that those segments can go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub vote: Option<Vote>,
    pub committed: Option<Position>,
    pub purged: Option<Position>,
    pub last_index: Option<u64>,
}

impl Snapshot {
    /// Follows one record.
    pub fn follow(&mut self, record: &Record) {
        match record {
            Record::Entry { position, .. } => self.last_index = Some(position.index),
            Record::Vote(vote) => self.vote = Some(*vote),
            Record::Committed(position) => self.committed = *position,
            Record::TruncateAfter(after) => {
                let after = (*after).max(self.purged.map(|p| p.index));
                self.last_index = self.last_index.min(after);
            }
            Record::Purge(position) => {
                self.purged = Some(*position);
                self.last_index = self.last_index.max(Some(position.index));
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub sequence: u64,
    pub salt: u64,
    /// Where the records of the segment before this one end; 0 for the first.
    pub previous_end: u64,
    pub before: Snapshot,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Entry { position: Position, payload: Bytes },
    Vote(Vote),
    Committed(Option<Position>),
    TruncateAfter(Option<u64>),
    Purge(Position),
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    fn optional_index(&mut self, v: Option<u64>) {
        self.u8(v.is_some().into());
        self.u64(v.unwrap_or(0));
    }
    fn optional_position(&mut self, v: Option<Position>) {
        self.optional_index(v.map(|p| p.index));
        self.u64(v.map_or(0, |p| p.term));
    }
}

pub(crate) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
    fn position(&mut self) -> Option<Position> {
        Some(Position { index: self.u64()?, term: self.u64()? })
    }
    fn optional_index(&mut self) -> Option<Option<u64>> {
        let present = self.flag()?;
        let index = self.u64()?;
        Some(present.then_some(index))
    }
    fn optional_position(&mut self) -> Option<Option<Position>> {
        let present = self.flag()?;
        let position = self.position()?;
        Some(present.then_some(position))
    }
    fn vote(&mut self) -> Option<Vote> {
        Some(Vote { term: self.u64()?, node_id: self.u64()?, committed: self.flag()? })
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

const HEADER_CRC_AT: usize = 12;

fn header_crc(bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &bytes[HEADER_CRC_AT + 4..SEGMENT_HEADER_BYTES])
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        let mut w = Writer(&mut out);
        w.u64(self.sequence);
        w.u64(self.salt);
        w.u64(self.previous_end);
        let vote = self.before.vote;
        w.optional_index(vote.map(|v| v.term));
        w.u64(vote.map_or(0, |v| v.node_id));
        w.u8(vote.is_some_and(|v| v.committed).into());
        w.optional_position(self.before.committed);
        w.optional_position(self.before.purged);
        w.optional_index(self.before.last_index);
        out.resize(SEGMENT_HEADER_BYTES, 0);
        let crc = header_crc(&out);
        out[HEADER_CRC_AT..HEADER_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`; the error says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < SEGMENT_HEADER_BYTES {
            return Err(format!("{} bytes where the header alone has {SEGMENT_HEADER_BYTES}", bytes.len()));
        }
        if bytes[..8] != SEGMENT_MAGIC {
            return Err("it does not begin as a log segment does".to_owned());
        }
        if u32_at(bytes, HEADER_CRC_AT) != header_crc(bytes) {
            return Err("the checksum of the segment header does not fit".to_owned());
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != SEGMENT_VERSION {
            return Err(format!(
                "log format version {version} where this binary reads {SEGMENT_VERSION}: use a newer binary"
            ));
        }
        Self::decode_fields(&mut Reader(&bytes[16..SEGMENT_HEADER_BYTES]))
            .ok_or_else(|| "the segment header makes no sense".to_owned())
    }

    fn decode_fields(r: &mut Reader) -> Option<Self> {
        let (sequence, salt, previous_end) = (r.u64()?, r.u64()?, r.u64()?);
        let has_vote = r.flag()?;
        let vote = r.vote()?;
        let before = Snapshot {
            vote: has_vote.then_some(vote),
            committed: r.optional_position()?,
            purged: r.optional_position()?,
            last_index: r.optional_index()?,
        };
        Some(Self { sequence, salt, previous_end, before })
    }
}

impl Record {
    fn encode_body(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        match self {
            Record::Entry { position, payload } => {
                w.u8(KIND_ENTRY);
                w.u64(position.index);
                w.u64(position.term);
                w.0.extend_from_slice(payload);
            }
            Record::Vote(vote) => {
                w.u8(KIND_VOTE);
                w.u64(vote.term);
                w.u64(vote.node_id);
                w.u8(vote.committed.into());
            }
            Record::Committed(position) => {
                w.u8(KIND_COMMITTED);
                w.optional_position(*position);
            }
            Record::TruncateAfter(index) => {
                w.u8(KIND_TRUNCATE);
                w.optional_index(*index);
            }
            Record::Purge(position) => {
                w.u8(KIND_PURGE);
                w.u64(position.index);
                w.u64(position.term);
            }
        }
    }

    /// Decodes a body; an entry's payload is left out (it is the rest after [`ENTRY_PREFIX_BYTES`]).
    pub fn decode_body(body: &[u8]) -> Option<Self> {
        let mut r = Reader(body);
        let record = match r.u8()? {
            KIND_ENTRY => return Some(Record::Entry { position: r.position()?, payload: Bytes::new() }),
            KIND_VOTE => Record::Vote(r.vote()?),
            KIND_COMMITTED => Record::Committed(r.optional_position()?),
            KIND_TRUNCATE => Record::TruncateAfter(r.optional_index()?),
            KIND_PURGE => Record::Purge(r.position()?),
            _ => return None,
        };
        r.0.is_empty().then_some(record)
    }

    /// Bytes of the record in a segment.
    pub fn encoded_len(&self) -> usize {
        let body = match self {
            Record::Entry { payload, .. } => ENTRY_PREFIX_BYTES + payload.len(),
            Record::Vote(_) | Record::Committed(_) => 18,
            Record::TruncateAfter(_) => 10,
            Record::Purge(_) => 17,
        };
        (RECORD_HEADER_BYTES + body).next_multiple_of(ALIGN)
    }
}

/// The part of a record's header checksum that says where the record belongs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(u32);

impl Place {
    pub fn new(salt: u64) -> Self {
        Self(crc32c::crc32c(&salt.to_le_bytes()))
    }

    fn header_crc(self, offset: usize, header: &[u8]) -> u32 {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&(offset as u64).to_le_bytes());
        bytes[8..].copy_from_slice(header);
        crc32c::crc32c_append(self.0, &bytes)
    }
}

/// Appends `record` to a batch that starts at `batch_start` of its segment; `out` holds the batch so far.
pub(crate) fn encode_record(record: &Record, place: Place, batch_start: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    record.encode_body(out);
    let body_len = out.len() - start - RECORD_HEADER_BYTES;
    out.resize(start + (RECORD_HEADER_BYTES + body_len).next_multiple_of(ALIGN), 0);
    let body_crc = crc32c::crc32c(&out[start + RECORD_HEADER_BYTES..]);
    let header = &mut out[start..start + RECORD_HEADER_BYTES];
    header[0..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&(body_len as u32).to_le_bytes());
    header[8..12].copy_from_slice(&(start as u32).to_le_bytes());
    header[12..16].copy_from_slice(&body_crc.to_le_bytes());
    let crc = place.header_crc(batch_start + start, &header[..16]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
}

/// A record's header that was found to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub body_len: usize,
    pub distance: usize,
    body_crc: u32,
}

impl RecordHeader {
    /// The header at the start of `bytes`, which lie at `offset` of their segment.
    pub fn decode(bytes: &[u8], place: Place, offset: usize) -> Option<Self> {
        if bytes.len() < RECORD_HEADER_BYTES || u32_at(bytes, 0) != RECORD_MAGIC {
            return None;
        }
        if u32_at(bytes, 16) != place.header_crc(offset, &bytes[..16]) {
            return None;
        }
        let (body_len, distance) = (u32_at(bytes, 4) as usize, u32_at(bytes, 8) as usize);
        Some(Self { body_len, distance, body_crc: u32_at(bytes, 12) })
    }

    /// Bytes of the record.
    pub fn total(&self) -> usize {
        (RECORD_HEADER_BYTES + self.body_len).next_multiple_of(ALIGN)
    }

    /// The body, if it is all there and intact; `bytes` start at the record.
    pub fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let padded = bytes.get(RECORD_HEADER_BYTES..self.total())?;
        (crc32c::crc32c(padded) == self.body_crc).then(|| &padded[..self.body_len])
    }
}
