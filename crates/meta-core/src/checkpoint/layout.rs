//! Records of a checkpoint, layout version 1. Frozen: a change is a new set of structs under a new version.
//!
//! ```text
//! 10                               header, in the codec's envelope, which carries the layout version
//! 11 member:u64be                  an origin
//! 12 (id ^ 1<<63):u64be            a lease; the flipped sign bit sorts negative ids first
//! 13 key 00 01 revision:u64be      a version or tombstone; a 00 in the key is written 00 ff
//! 1f                               trailer: counts and the hash
//! ```

use bytes::Bytes;
use meta_types::{LeaseId, Revision};
use serde::{Deserialize, Serialize};

pub(super) const LAYOUT_VERSION: u16 = 1;

pub(super) const HEADER: u8 = 0x10;
pub(super) const ORIGIN: u8 = 0x11;
pub(super) const LEASE: u8 = 0x12;
pub(super) const VERSION: u8 = 0x13;
pub(super) const TRAILER: u8 = 0x1f;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeaderV1 {
    /// Index and term.
    pub(super) applied: Option<(u64, u64)>,
    pub(super) revision: Revision,
    pub(super) compact_revision: Revision,
    pub(super) lease_time_ms: u64,
    /// Id, name, feature level.
    pub(super) cluster: Option<(u64, Bytes, u32)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OriginV1 {
    pub(super) boot: u64,
    pub(super) low_water: u64,
    /// Runs of applied numbers: first and last.
    pub(super) applied: Vec<(u64, u64)>,
    pub(super) retired: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaseV1 {
    pub(super) ttl_s: i64,
    pub(super) expiry_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct VersionV1 {
    pub(super) value: Bytes,
    pub(super) create_revision: Revision,
    /// 0 for a tombstone.
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    /// Place among the events of the revision.
    pub(super) sub: u32,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TrailerV1 {
    pub(super) origins: u64,
    pub(super) leases: u64,
    pub(super) versions: u64,
    pub(super) hash: u64,
}

const SIGN: u64 = 1 << 63;

pub(super) fn origin_key(member: u64) -> Vec<u8> {
    with_number(ORIGIN, member)
}

pub(super) fn lease_key(id: LeaseId) -> Vec<u8> {
    with_number(LEASE, id as u64 ^ SIGN)
}

fn with_number(section: u8, number: u64) -> Vec<u8> {
    let mut key = vec![section];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

pub(super) fn version_key(key: &[u8], revision: Revision) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 11);
    out.push(VERSION);
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&(revision as u64).to_be_bytes());
    out
}

/// The number of an origin's key (after the section byte).
pub(super) fn parse_number(rest: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(rest.try_into().ok()?))
}

/// The id of a lease's key (after the section byte).
pub(super) fn parse_lease(rest: &[u8]) -> Option<LeaseId> {
    Some((parse_number(rest)? ^ SIGN) as LeaseId)
}

/// Key and revision of a version's key (after the section byte).
pub(super) fn parse_version(rest: &[u8]) -> Option<(Vec<u8>, Revision)> {
    let mut key = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter();
    loop {
        match bytes.next()? {
            0 => match bytes.next()? {
                0xff => key.push(0),
                1 => break,
                _ => return None,
            },
            byte => key.push(*byte),
        }
    }
    Some((key, parse_number(bytes.as_slice())? as Revision))
}
