//! Out: a pinned state, walked step by step.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use meta_types::{LeaseId, codec};
use serde::Serialize;

use super::Record;
use super::layout::{
    HEADER, HeaderV1, LAYOUT_VERSION, LeaseV1, OriginV1, TRAILER, TrailerV1, VersionV1, lease_key,
    origin_key, version_key,
};
use crate::core::{Core, EntryPosition, Scalars, whole};
use crate::dedup::{Dedup, Registered};
use crate::hash::{Sum, of_key_value, of_lease};
use crate::lease::Lease;
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use crate::versions::Version;

/// The state pinned at one entry, and how much of it is out.
pub struct Frozen {
    applied: Option<EntryPosition>,
    scalars: Scalars,
    keys: Snapshot,
    leases: Tree<LeaseId, Lease>,
    origins: BTreeMap<u64, Registered>,
    /// The running hash at the pinned entry.
    hash: u64,
    next: Next,
    trailer: TrailerV1,
    key_sum: Sum,
    lease_sum: Sum,
    is_sound: Option<bool>,
}

/// What comes next.
enum Next {
    Header,
    /// Origins of members above this one.
    Origins(Bound<u64>),
    /// Leases above this one.
    Leases(Option<LeaseId>),
    /// Versions from this key on, without its first ones that are out.
    Keys(Option<Bytes>, usize),
    Trailer,
    Nothing,
}

/// Records of one step.
struct Out {
    records: Vec<Record>,
    left: usize,
}

impl Out {
    fn push(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.left = self.left.saturating_sub(key.len() + value.len());
        self.records.push((key, value));
    }

    fn is_full(&self) -> bool {
        self.left == 0
    }
}

impl Frozen {
    pub(super) fn of(core: &Core) -> Self {
        let dedup = core.dedup.for_checkpoint();
        Self {
            applied: core.applied,
            scalars: Scalars::of(core),
            keys: core.keys.now.clone(),
            leases: core.leases.table(),
            hash: core.hash_with(&dedup),
            origins: dedup.into_members(),
            next: Next::Header,
            trailer: TrailerV1::default(),
            key_sum: Sum::default(),
            lease_sum: Sum::default(),
            is_sound: None,
        }
    }

    /// The entry the state is pinned at.
    pub fn applied(&self) -> Option<EntryPosition> {
        self.applied
    }

    /// Positive control: says that this is the state at another entry.
    #[cfg(feature = "positive-controls")]
    pub fn pretend_at(&mut self, at: EntryPosition) {
        self.applied = Some(at);
    }

    /// The state's hash at that entry.
    pub fn state_hash(&self) -> u64 {
        self.hash
    }

    /// Once all is out: whether the hash of what went out is the state's. `Some(false)` means broken memory or
    /// code; such a checkpoint is refused when it is read.
    pub fn is_sound(&self) -> Option<bool> {
        self.is_sound
    }

    /// The next records, see `Core::export_step`. Needs no lock.
    pub fn step(&mut self, max_bytes: usize) -> Vec<Record> {
        let mut out = Out { records: Vec::new(), left: max_bytes.max(1) };
        while !out.is_full() {
            self.next = match std::mem::replace(&mut self.next, Next::Nothing) {
                Next::Header => self.header(&mut out),
                Next::Origins(after) => self.origins(after, &mut out),
                Next::Leases(after) => self.leases(after, &mut out),
                Next::Keys(from, skip) => self.keys(from, skip, &mut out),
                Next::Trailer => self.trailer(&mut out),
                Next::Nothing => break,
            };
        }
        out.records
    }

    fn header(&self, out: &mut Out) -> Next {
        let scalars = &self.scalars;
        let header = HeaderV1 {
            applied: self.applied.map(|at| (at.index, at.term)),
            revision: scalars.revision,
            compact_revision: scalars.compact_revision,
            lease_time_ms: scalars.lease_time_ms,
            cluster: scalars.cluster.as_ref().map(|is| (is.cluster_id, is.name.clone(), is.feature_level)),
        };
        let header = codec::encode(LAYOUT_VERSION, &header).expect("a header is far below the codec's limit");
        out.push(vec![HEADER], header);
        Next::Origins(Bound::Unbounded)
    }

    fn origins(&mut self, after: Bound<u64>, out: &mut Out) -> Next {
        let Some((member, registered)) = self.origins.range((after, Bound::Unbounded)).next() else {
            return Next::Leases(None);
        };
        let record = OriginV1 {
            boot: registered.boot,
            low_water: registered.low_water,
            applied: runs(registered.applied.iter().copied()),
            retired: registered.retired.iter().copied().collect(),
        };
        out.push(origin_key(*member), body(&record));
        self.trailer.origins += 1;
        Next::Origins(Bound::Excluded(*member))
    }

    fn leases(&mut self, after: Option<LeaseId>, out: &mut Out) -> Next {
        let mut last = after;
        for (id, lease) in self.leases.ascend(after.as_ref()).filter(|(id, _)| Some(**id) != after) {
            if out.is_full() {
                return Next::Leases(last);
            }
            let record = LeaseV1 { ttl_s: lease.ttl_s, expiry_ms: lease.expiry_ms };
            out.push(lease_key(*id), body(&record));
            self.lease_sum.add(of_lease(*id, lease.ttl_s, lease.expiry_ms));
            self.trailer.leases += 1;
            last = Some(*id);
        }
        Next::Keys(None, 0)
    }

    fn keys(&mut self, from: Option<Bytes>, skip: usize, out: &mut Out) -> Next {
        let mut skip = skip;
        for (key, versions) in self.keys.tree.ascend(from.as_ref()) {
            let retained = versions.retained(self.keys.compact_revision);
            for (n, version) in retained.iter().enumerate().skip(skip) {
                if out.is_full() {
                    return Next::Keys(Some(key.clone()), n);
                }
                out.push(version_key(key, version.kv.mod_revision), body(&record_of(version)));
                self.trailer.versions += 1;
            }
            // Only the last version counts for the hash, and it is out now.
            versions.current().into_iter().for_each(|kv| self.key_sum.add(of_key_value(kv)));
            skip = 0;
        }
        Next::Trailer
    }

    fn trailer(&mut self, out: &mut Out) -> Next {
        let origins = Dedup::restore(std::mem::take(&mut self.origins));
        let sums = [self.key_sum.value(), self.lease_sum.value(), origins.hash().value()];
        self.is_sound = Some(whole(sums, &self.scalars) == self.hash);
        self.trailer.hash = self.hash;
        out.push(vec![TRAILER], body(&self.trailer));
        Next::Nothing
    }
}

fn record_of(version: &Version) -> VersionV1 {
    let kv = &version.kv;
    VersionV1 {
        value: kv.value.clone(),
        create_revision: kv.create_revision,
        version: kv.version,
        lease: kv.lease,
        sub: version.sub,
    }
}

fn body<T: Serialize>(record: &T) -> Vec<u8> {
    // A record holds at most one value or one window of numbers, both far below the codec's limit.
    codec::encode_body(record).expect("a record is below the codec's limit")
}

/// Ascending numbers as runs of first and last.
fn runs(numbers: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}
