//! The naive model: every version ever written in one list, and every question answered by folding over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use meta_core::ClusterInfo;
use meta_types::{
    Compare, CompareResult, CompareTarget, Event, EventKind, KeyRange, KeyValue, LeaseId, RangeReply,
    RangeRequest, Refusal, Revision, RevisionEvents, SortOrder, SortTarget,
};

/// The whole state; nothing is ever dropped from `versions`.
#[derive(Debug, Clone)]
pub struct Model {
    /// In order of writing; a tombstone has version 0.
    pub versions: Vec<KeyValue>,
    pub revision: Revision,
    pub compact: Revision,
    pub time_ms: u64,
    /// TTL in seconds and expiry in milliseconds.
    pub leases: BTreeMap<LeaseId, (i64, u64)>,
    pub origins: BTreeMap<u64, OriginModel>,
    pub cluster: Option<ClusterInfo>,
}

#[derive(Debug, Clone, Default)]
pub struct OriginModel {
    pub boot: u64,
    pub low_water: u64,
    pub applied: BTreeSet<u64>,
    pub retired: Vec<u64>,
}

/// Membership spelled out instead of asking `KeyRange`.
pub fn in_range(range: &KeyRange, key: &[u8]) -> bool {
    match &range.end[..] {
        b"" => key == range.key,
        b"\0" => key >= &range.key[..],
        end => key >= &range.key[..] && key < end,
    }
}

impl Model {
    pub fn new() -> Self {
        Self {
            versions: Vec::new(),
            revision: 1,
            compact: -1,
            time_ms: 0,
            leases: BTreeMap::new(),
            origins: BTreeMap::new(),
            cluster: None,
        }
    }

    /// The live keys at a revision.
    pub fn at(&self, revision: Revision) -> BTreeMap<Bytes, &KeyValue> {
        let mut live = BTreeMap::new();
        for kv in self.versions.iter().filter(|kv| kv.mod_revision <= revision) {
            if kv.version == 0 {
                live.remove(&kv.key);
            } else {
                live.insert(kv.key.clone(), kv);
            }
        }
        live
    }

    pub fn now(&self) -> BTreeMap<Bytes, &KeyValue> {
        self.at(Revision::MAX)
    }

    pub fn check_revision(&self, revision: Revision) -> Result<(), Refusal> {
        if revision > self.revision {
            Err(Refusal::FutureRevision)
        } else if revision > 0 && revision < self.compact {
            Err(Refusal::Compacted { compact_revision: self.compact.max(0) })
        } else {
            Ok(())
        }
    }

    /// The range as the API page tells it: select, count, filter, sort, cut.
    pub fn range(&self, request: &RangeRequest) -> RangeReply {
        let live = if request.revision > 0 { self.at(request.revision) } else { self.now() };
        let mut kvs: Vec<KeyValue> =
            live.into_values().filter(|kv| in_range(&request.range, &kv.key)).cloned().collect();
        let count = kvs.len() as i64;
        if request.count_only {
            return RangeReply { kvs: Vec::new(), more: false, count };
        }
        let limit = if request.limit > 0 { request.limit as usize } else { usize::MAX };
        let filters = [
            (request.min_mod_revision, true, true),
            (request.max_mod_revision, false, true),
            (request.min_create_revision, true, false),
            (request.max_create_revision, false, false),
        ];
        // A target with neither order nor filter: only the first keys are looked at.
        if request.sort_order == SortOrder::None && filters.iter().all(|(bound, ..)| *bound == 0) {
            kvs.truncate(limit.saturating_add(1));
        }
        for (bound, is_min, is_mod) in filters.into_iter().filter(|(bound, ..)| *bound != 0) {
            kvs.retain(|kv| {
                let value = if is_mod { kv.mod_revision } else { kv.create_revision };
                if is_min { value >= bound } else { value <= bound }
            });
        }
        let descending = request.sort_order == SortOrder::Descend;
        let number = |kv: &KeyValue| match request.sort_target {
            SortTarget::Version => kv.version,
            SortTarget::Create => kv.create_revision,
            SortTarget::Mod => kv.mod_revision,
            SortTarget::Key | SortTarget::Value => 0,
        };
        kvs.sort_by(|a, b| {
            let ascending = match request.sort_target {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Value => a.value.cmp(&b.value),
                _ => number(a).cmp(&number(b)),
            };
            if descending { ascending.reverse() } else { ascending }
        });
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        RangeReply { kvs: kvs.into_iter().map(Arc::new).collect(), more, count }
    }

    pub fn holds(&self, compare: &Compare) -> bool {
        let now = self.now();
        let found: Vec<_> = now.values().filter(|kv| in_range(&compare.range, &kv.key)).collect();
        let missing = KeyValue::default();
        if found.is_empty() {
            return !matches!(compare.target, CompareTarget::Value(_)) && passes(&missing, compare);
        }
        found.into_iter().all(|kv| passes(kv, compare))
    }

    /// Events of one revision; what was before them only as far as it is not compacted.
    pub fn events_of(&self, revision: Revision) -> Option<RevisionEvents> {
        let before = if revision > self.compact { self.at(revision - 1) } else { BTreeMap::new() };
        let event = |kv: &KeyValue| Event {
            kind: if kv.version == 0 { EventKind::Delete } else { EventKind::Put },
            kv: Arc::new(kv.clone()),
            prev: before.get(&kv.key).map(|kv| Arc::new((*kv).clone())),
        };
        let events: Vec<Event> =
            self.versions.iter().filter(|kv| kv.mod_revision == revision).map(event).collect();
        (!events.is_empty()).then(|| RevisionEvents { revision, events: events.into() })
    }

    pub fn history(&self, from: Revision) -> Result<Vec<RevisionEvents>, Refusal> {
        if from < self.compact {
            return Err(Refusal::Compacted { compact_revision: self.compact.max(0) });
        }
        Ok((from.max(0)..=self.revision).filter_map(|revision| self.events_of(revision)).collect())
    }

    pub fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.now().into_values().filter(|kv| kv.lease == id).map(|kv| kv.key.clone()).collect()
    }

    pub fn live_bytes(&self) -> u64 {
        self.now().values().map(|kv| (kv.key.len() + kv.value.len()) as u64).sum()
    }
}

fn passes(kv: &KeyValue, compare: &Compare) -> bool {
    let order = match &compare.target {
        CompareTarget::Version(given) => kv.version.cmp(given),
        CompareTarget::CreateRevision(given) => kv.create_revision.cmp(given),
        CompareTarget::ModRevision(given) => kv.mod_revision.cmp(given),
        CompareTarget::Lease(given) => kv.lease.cmp(given),
        CompareTarget::Value(given) => kv.value.cmp(given),
    };
    match compare.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => !order.is_eq(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    }
}
