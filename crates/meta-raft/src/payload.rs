//! Bytes of a log entry's payload: what the log stores, what peers send each other, and what a forwarded batch is.
//!
//! ```text
//! version u8 = 1 | kind u8 | kind 0 blank      : nothing
//!                          | kind 1 batch      : stamped u8 | term u64 | lease time ms u64 | Batch without stamp
//!                          | kind 2 membership : MembershipRecord
//! ```
//! Little endian. The stamp has a fixed place so that a leader stamps a forwarded batch without decoding it.
//! A command is encoded once, by the task that proposes it; a batch is its commands' bytes put together, in
//! exactly the layout the codec gives a [`Batch`]. The log and the wire carry checksums, so there is none here.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use meta_types::codec::{CodecError, decode_body, encode_body};
use meta_types::limits::MAX_ENCODED_BYTES;
use meta_types::{Batch, LeaseStamp, Origin};
use serde::{Deserialize, Serialize};

use crate::types::{Entry, EntryPayload, Member, Membership, Proposal, log_id};

const VERSION: u8 = 1;
const BLANK: u8 = 0;
const BATCH: u8 = 1;
const MEMBERSHIP: u8 = 2;
/// Version, kind, stamp.
const BATCH_HEADER: usize = 2 + 1 + 8 + 8;

/// A membership as it is stored and sent: our own layout, independent of openraft's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MembershipRecord {
    /// Voters; two sets while a change is under way.
    configs: Vec<BTreeSet<u64>>,
    /// Every member, learners included.
    nodes: BTreeMap<u64, Member>,
}

impl From<&Membership> for MembershipRecord {
    fn from(m: &Membership) -> Self {
        Self {
            configs: m.get_joint_config().clone(),
            nodes: m.nodes().map(|(id, node)| (*id, node.clone())).collect(),
        }
    }
}

impl TryFrom<MembershipRecord> for Membership {
    type Error = CodecError;

    fn try_from(record: MembershipRecord) -> Result<Self, CodecError> {
        if record.configs.is_empty() && record.nodes.is_empty() {
            return Ok(Self::default());
        }
        Self::new(record.configs, record.nodes).map_err(|e| CodecError::Body(e.to_string()))
    }
}

/// Puts a batch together from commands that are encoded already. Not stamped yet.
pub(crate) fn batch<'a>(
    origin: Origin,
    low_water: u64,
    commands: impl ExactSizeIterator<Item = (u64, &'a [u8])> + Clone,
) -> BytesMut {
    let bytes: usize = commands.clone().map(|(_, command)| 8 + command.len()).sum();
    let mut out = BytesMut::with_capacity(BATCH_HEADER + 33 + bytes);
    out.put_u8(VERSION);
    out.put_u8(BATCH);
    out.put_bytes(0, BATCH_HEADER - 2);
    out.put_u64_le(origin.member);
    out.put_u64_le(origin.boot);
    out.put_u64_le(low_water);
    out.put_u8(0); // The stamp inside is always absent: it stands in the header.
    out.put_u64_le(commands.len() as u64);
    for (seq, command) in commands {
        out.put_u64_le(seq);
        out.put_slice(command);
    }
    out
}

/// Puts `stamp` on a batch. False if these are not a batch's bytes.
#[must_use]
pub(crate) fn stamp(batch: &mut [u8], stamp: Option<LeaseStamp>) -> bool {
    if batch.len() < BATCH_HEADER || batch[0] != VERSION || batch[1] != BATCH {
        return false;
    }
    let LeaseStamp { term, lease_time_ms } = stamp.unwrap_or(LeaseStamp { term: 0, lease_time_ms: 0 });
    batch[2] = u8::from(stamp.is_some());
    batch[3..11].copy_from_slice(&term.to_le_bytes());
    batch[11..19].copy_from_slice(&lease_time_ms.to_le_bytes());
    true
}

/// Reads a batch back.
pub(crate) fn decode_batch(bytes: &[u8]) -> Result<Batch, CodecError> {
    if bytes.len() < BATCH_HEADER {
        return Err(CodecError::Short { have: bytes.len(), need: BATCH_HEADER });
    }
    if bytes[0] != VERSION {
        return Err(CodecError::Version { found: bytes[0].into(), supported: VERSION.into() });
    }
    let mut batch: Batch = decode_body(&bytes[BATCH_HEADER..])?;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    batch.stamp = match bytes[2] {
        0 => None,
        _ => Some(LeaseStamp { term: number(3), lease_time_ms: number(11) }),
    };
    Ok(batch)
}

/// The stored form of an entry's payload; a batch's bytes are shared, not copied.
pub(crate) fn encode_entry(payload: &EntryPayload) -> Result<Bytes, CodecError> {
    Ok(match payload {
        EntryPayload::Blank => Bytes::from_static(&[VERSION, BLANK]),
        EntryPayload::Normal(proposal) => proposal.0.clone(),
        EntryPayload::Membership(membership) => {
            let body = encode_body(&MembershipRecord::from(membership))?;
            let mut out = Vec::with_capacity(2 + body.len());
            out.extend_from_slice(&[VERSION, MEMBERSHIP]);
            out.extend_from_slice(&body);
            out.into()
        }
    })
}

/// Reads an entry back from its stored form.
pub(crate) fn decode_entry(term: u64, index: u64, bytes: Bytes) -> Result<Entry, CodecError> {
    if bytes.len() < 2 {
        return Err(CodecError::Short { have: bytes.len(), need: 2 });
    }
    if bytes[0] != VERSION {
        return Err(CodecError::Version { found: bytes[0].into(), supported: VERSION.into() });
    }
    let payload = match bytes[1] {
        BLANK => EntryPayload::Blank,
        BATCH => EntryPayload::Normal(Proposal(bytes)),
        MEMBERSHIP => EntryPayload::Membership(decode_body::<MembershipRecord>(&bytes[2..])?.try_into()?),
        kind => return Err(CodecError::Body(format!("entry kind {kind} is unknown"))),
    };
    Ok(Entry { log_id: log_id(term, index), payload })
}

/// Largest batch that may enter a log: the codec reads nothing larger back, and the log adds a few bytes.
pub(crate) const MAX_BATCH_ENTRY_BYTES: usize = MAX_ENCODED_BYTES - 1024;

#[cfg(test)]
mod tests {
    use meta_types::{Command, PutRequest, Sequenced};

    use super::*;

    fn commands() -> Vec<Sequenced> {
        let put = PutRequest { key: "k".into(), value: vec![7; 300].into(), ..PutRequest::default() };
        vec![
            Sequenced { seq: 1, command: Command::RegisterOrigin },
            Sequenced { seq: 9, command: Command::Put(put) },
            Sequenced { seq: 10, command: Command::LeaseKeepAlive { ids: vec![1, 2] } },
        ]
    }

    #[test]
    fn a_batch_put_together_reads_as_the_codec_wrote_it() {
        let origin = Origin { member: 3, boot: 4 };
        let want = Batch { origin, low_water: 8, stamp: None, commands: commands() };
        let encoded: Vec<(u64, Vec<u8>)> =
            want.commands.iter().map(|s| (s.seq, encode_body(&s.command).unwrap())).collect();
        let mut bytes = batch(origin, 8, encoded.iter().map(|(seq, c)| (*seq, c.as_slice())));
        assert_eq!(&bytes[BATCH_HEADER..], encode_body(&want).unwrap());
        assert_eq!(decode_batch(&bytes).unwrap(), want);

        let stamped = LeaseStamp { term: 5, lease_time_ms: 77 };
        assert!(stamp(&mut bytes, Some(stamped)));
        assert_eq!(decode_batch(&bytes).unwrap().stamp, Some(stamped));
        let entry = decode_entry(5, 6, bytes.freeze()).unwrap();
        assert!(matches!(entry.payload, EntryPayload::Normal(_)));
    }

    #[test]
    fn membership_and_blank_survive_the_round_trip() {
        let node =
            |n: &str| Member { name: n.into(), peer_addr: format!("{n}:1"), client_addr: format!("{n}:2") };
        let nodes = BTreeMap::from([(1, node("a")), (2, node("b")), (3, node("c"))]);
        let membership = Membership::new(vec![[1, 2].into(), [1].into()], nodes).unwrap();
        for payload in [EntryPayload::Membership(membership), EntryPayload::Blank] {
            let bytes = encode_entry(&payload).unwrap();
            assert_eq!(decode_entry(1, 2, bytes).unwrap().payload, payload);
        }
    }

    #[test]
    fn a_foreign_payload_is_not_stamped() {
        assert!(!stamp(&mut [VERSION, BLANK], None));
        assert!(!stamp(&mut [9; 64], None));
        assert!(decode_entry(1, 1, Bytes::from_static(&[2, 0])).is_err());
    }
}
