//! The keys of the naive model: every version ever written, in one map; every question answered by looking at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use meta_types::{
    Compare, CompareResult, CompareTarget, KeyRange, KeyValue, LeaseId, PutRequest, RangeReply, RangeRequest,
    Refusal, Revision, SortOrder, SortTarget,
};

use super::leases::Leases;
use super::writing::Write;

/// See the module.
#[derive(Debug, Clone)]
pub struct Keyspace {
    /// By key, oldest first; a deletion is a version 0.
    pub(super) versions: BTreeMap<Bytes, Vec<Arc<KeyValue>>>,
    pub(super) revision: Revision,
    compacted: Option<Revision>,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self { versions: BTreeMap::new(), revision: 1, compacted: None }
    }
}

/// Reads at this revision see everything.
pub(super) const NEWEST: Revision = Revision::MAX;

impl Keyspace {
    /// The revision of the last write; 1 for an empty store.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The last compaction.
    pub fn compacted(&self) -> Option<Revision> {
        self.compacted
    }

    pub(super) fn begin(&mut self) -> Write<'_> {
        Write::new(self)
    }

    /// What a key was at a revision.
    pub fn at(&self, key: &[u8], revision: Revision) -> Option<&Arc<KeyValue>> {
        let versions = self.versions.get(key)?;
        versions.iter().rev().find(|kv| kv.mod_revision <= revision).filter(|kv| kv.version > 0)
    }

    /// The keys of a range at a revision, by key.
    pub fn live(&self, range: &KeyRange, revision: Revision) -> Vec<Arc<KeyValue>> {
        if range.is_single() {
            return self.at(&range.key, revision).into_iter().cloned().collect();
        }
        let keys = self.versions.keys().filter(|key| range.contains(key));
        keys.filter_map(|key| self.at(key, revision)).cloned().collect()
    }

    pub(super) fn on_lease(&self, lease: LeaseId) -> Vec<Bytes> {
        let keys =
            self.versions.keys().filter(|key| self.at(key, NEWEST).is_some_and(|kv| kv.lease == lease));
        keys.cloned().collect()
    }

    /// Answers a range at its own revision, or else at `now`.
    pub fn range(&self, request: &RangeRequest, now: Revision) -> RangeReply {
        let at = if request.revision > 0 { request.revision } else { now };
        let mut kvs = self.live(&request.range, at);
        let count = kvs.len() as i64;
        let is_filtered = kvs_filter(&mut kvs, request);
        let limit = if request.limit > 0 { request.limit as usize } else { usize::MAX };
        // etcd's peculiarity: with a target but neither an order nor a filter, the first keys by key are taken.
        let takes_first = request.sort_order == SortOrder::None && !is_filtered;
        if takes_first {
            kvs.truncate(limit.saturating_add(1));
        }
        sort(&mut kvs, request);
        let mut more = kvs.len() > limit;
        kvs.truncate(limit);
        if request.count_only {
            (kvs, more) = (Vec::new(), false);
        }
        if request.keys_only {
            let bare = |kv: &Arc<KeyValue>| Arc::new(KeyValue { value: Bytes::new(), ..(**kv).clone() });
            kvs = kvs.iter().map(bare).collect();
        }
        RangeReply { kvs, more, count }
    }

    /// Refuses a range whose revision is gone or not there yet.
    pub(super) fn check_range(&self, request: &RangeRequest) -> Result<(), Refusal> {
        if request.revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        match self.compacted {
            Some(compact_revision) if request.revision > 0 && request.revision < compact_revision => {
                Err(Refusal::Compacted { compact_revision })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_put(&self, request: &PutRequest, leases: &Leases) -> Result<(), Refusal> {
        if (request.ignore_value || request.ignore_lease) && self.at(&request.key, NEWEST).is_none() {
            return Err(Refusal::KeyNotFound);
        }
        if request.lease != 0 && leases.standing(request.lease).is_none() {
            return Err(Refusal::LeaseNotFound);
        }
        Ok(())
    }

    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Refusal> {
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        let last = self.compacted.unwrap_or(-1);
        if revision <= last {
            return Err(Refusal::Compacted { compact_revision: last });
        }
        self.compacted = Some(revision);
        Ok(())
    }

    /// True if a condition holds at a revision.
    pub fn holds(&self, compare: &Compare, revision: Revision) -> bool {
        let kvs = self.live(&compare.range, revision);
        if kvs.is_empty() {
            return holds(None, compare);
        }
        kvs.iter().all(|kv| holds(Some(kv), compare))
    }
}

/// True if there was a filter.
fn kvs_filter(kvs: &mut Vec<Arc<KeyValue>>, request: &RangeRequest) -> bool {
    let bounds = [
        (request.min_mod_revision, request.max_mod_revision),
        (request.min_create_revision, request.max_create_revision),
    ];
    kvs.retain(|kv| {
        let values = [kv.mod_revision, kv.create_revision];
        let fits = |((min, max), value): (&(Revision, Revision), Revision)| {
            (*min == 0 || *min <= value) && (*max == 0 || value <= *max)
        };
        bounds.iter().zip(values).all(fits)
    });
    bounds.iter().any(|(min, max)| *min != 0 || *max != 0)
}

fn sort(kvs: &mut [Arc<KeyValue>], request: &RangeRequest) {
    kvs.sort_by(|a, b| {
        let order = match request.sort_target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        if request.sort_order == SortOrder::Descend { order.reverse() } else { order }
    });
}

/// A condition on one key, or on one that is not there.
pub(crate) fn holds(kv: Option<&KeyValue>, compare: &Compare) -> bool {
    let zero = KeyValue::default();
    let stored = kv.unwrap_or(&zero);
    let order = match &compare.target {
        CompareTarget::Value(given) if kv.is_some() => stored.value.cmp(given),
        CompareTarget::Value(_) => return false,
        CompareTarget::Version(given) => stored.version.cmp(given),
        CompareTarget::CreateRevision(given) => stored.create_revision.cmp(given),
        CompareTarget::ModRevision(given) => stored.mod_revision.cmp(given),
        CompareTarget::Lease(given) => stored.lease.cmp(given),
    };
    match compare.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => !order.is_eq(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    }
}
