//! Reads and compares. A read of the past replays the whole history: slow, and plainly right.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use meta_types::{
    Compare, CompareResult, CompareTarget, EventKind, KeyValue, RangeReply, RangeRequest, Refusal, Revision,
    SortOrder, SortTarget,
};

use super::state::State;

impl State {
    pub fn check_readable(&self, revision: Revision) -> Result<(), Refusal> {
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        if revision > 0 && revision < self.compact_revision {
            return Err(Refusal::Compacted { compact_revision: self.compact_revision });
        }
        Ok(())
    }

    /// Answers a readable range.
    pub fn answer(&self, request: &RangeRequest) -> RangeReply {
        let mut found = if request.revision > 0 && request.revision < self.revision {
            self.at(request.revision).into_values().collect()
        } else {
            self.keys.values().cloned().collect::<Vec<_>>()
        };
        found.retain(|kv| request.range.contains(&kv.key));
        let count = found.len() as i64;
        if request.count_only {
            return RangeReply { kvs: Vec::new(), more: false, count };
        }
        found.retain(|kv| passes(request, kv));
        sort(&mut found, request);
        let more = request.limit > 0 && found.len() as i64 > request.limit;
        if more {
            found.truncate(request.limit as usize);
        }
        if request.keys_only {
            for kv in &mut found {
                *kv = Arc::new(KeyValue { value: Bytes::new(), ..(**kv).clone() });
            }
        }
        RangeReply { kvs: found, more, count }
    }

    fn at(&self, revision: Revision) -> BTreeMap<Bytes, Arc<KeyValue>> {
        let mut keys = BTreeMap::new();
        for (_, events) in self.history.iter().take_while(|(at, _)| *at <= revision) {
            for event in events {
                match event.kind {
                    EventKind::Put => keys.insert(event.kv.key.clone(), Arc::clone(&event.kv)),
                    EventKind::Delete => keys.remove(&event.kv.key),
                };
            }
        }
        keys
    }

    pub fn holds(&self, compare: &Compare) -> bool {
        let mut found = self.keys.values().filter(|kv| compare.range.contains(&kv.key)).peekable();
        if found.peek().is_none() {
            return !matches!(compare.target, CompareTarget::Value(_))
                && passes_compare(compare, &KeyValue::default());
        }
        found.all(|kv| passes_compare(compare, kv))
    }
}

fn passes_compare(compare: &Compare, kv: &KeyValue) -> bool {
    let order = match &compare.target {
        CompareTarget::Version(version) => kv.version.cmp(version),
        CompareTarget::CreateRevision(revision) => kv.create_revision.cmp(revision),
        CompareTarget::ModRevision(revision) => kv.mod_revision.cmp(revision),
        CompareTarget::Value(value) => kv.value.cmp(value),
        CompareTarget::Lease(lease) => kv.lease.cmp(lease),
    };
    match compare.result {
        CompareResult::Equal => order == Ordering::Equal,
        CompareResult::Greater => order == Ordering::Greater,
        CompareResult::Less => order == Ordering::Less,
        CompareResult::NotEqual => order != Ordering::Equal,
    }
}

fn passes(request: &RangeRequest, kv: &KeyValue) -> bool {
    let within = |value: Revision, min: Revision, max: Revision| {
        (min == 0 || value >= min) && (max == 0 || value <= max)
    };
    within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
        && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
}

fn sort(found: &mut [Arc<KeyValue>], request: &RangeRequest) {
    let by = |a: &Arc<KeyValue>, b: &Arc<KeyValue>| match request.sort_target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    match request.sort_order {
        SortOrder::None | SortOrder::Ascend => found.sort_by(by),
        SortOrder::Descend => found.sort_by(|a, b| by(b, a)),
    }
}
