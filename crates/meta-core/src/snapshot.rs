//! The keyspace at one moment: what reads look at. Cloning it is two words and a pointer, so a long read takes a
//! clone under the lock and works without it.

use std::sync::Arc;

use bytes::Bytes;
use meta_types::{
    Compare, CompareResult, CompareTarget, KeyRange, KeyValue, RangeReply, RangeRequest, Refusal, Revision,
    SortOrder, SortTarget,
};

use crate::tree::Tree;
use crate::versions::KeyVersions;

/// The keyspace at one moment, see the module.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) tree: Tree<Bytes, KeyVersions>,
    pub(crate) revision: Revision,
    pub(crate) compact_revision: Revision,
}

impl Snapshot {
    /// The revision of the last effective write; 1 for an empty store.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// History below this revision is gone; 0 before the first compaction.
    pub fn compact_revision(&self) -> Revision {
        self.compact_revision.max(0)
    }

    /// Answers a range at its revision, or at this moment if it names none.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeReply, Refusal> {
        if request.range.key.is_empty() {
            return Err(Refusal::EmptyKey);
        }
        self.check_readable(request.revision)?;
        // At the head the counts of the tree answer, at older revisions the range has to be walked.
        if request.revision == self.revision {
            return Ok(self.answer(&RangeRequest { revision: 0, ..request.clone() }));
        }
        Ok(self.answer(request))
    }

    /// Refuses a revision that is compacted or not there yet.
    pub(crate) fn check_readable(&self, revision: Revision) -> Result<(), Refusal> {
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        if revision > 0 && revision < self.compact_revision {
            return Err(Refusal::Compacted { compact_revision: self.compact_revision() });
        }
        Ok(())
    }

    /// Answers a range that was checked.
    pub(crate) fn answer(&self, request: &RangeRequest) -> RangeReply {
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let wanted = wanted(request, limit);
        let (mut kvs, count) = if request.revision > 0 {
            self.collect_at(request, wanted)
        } else {
            (self.collect_now(request, wanted), self.count(&request.range))
        };
        sort(&mut kvs, request);
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if request.keys_only {
            kvs.iter_mut().for_each(drop_value);
        }
        RangeReply { kvs, more, count }
    }

    /// Number of live keys in the range.
    pub(crate) fn count(&self, range: &KeyRange) -> i64 {
        let count = if range.is_single() {
            u64::from(self.current(&range.key).is_some())
        } else if range.is_from_key() {
            self.tree.weight() - self.tree.rank(&range.key)
        } else {
            self.tree.rank(&range.end).saturating_sub(self.tree.rank(&range.key))
        };
        count as i64
    }

    /// The newest version of a live key.
    pub(crate) fn current(&self, key: &Bytes) -> Option<&Arc<KeyValue>> {
        self.tree.get(key).and_then(KeyVersions::current)
    }

    /// The live keys of a range, ascending.
    pub(crate) fn live<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<KeyValue>> {
        self.tree
            .ascend(Some(&range.key))
            .weighted()
            .take_while(|(key, _)| range.contains(key))
            .filter_map(|(_, versions)| versions.current())
    }

    fn live_backward<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<KeyValue>> {
        self.tree
            .descend((!range.is_from_key()).then_some(&range.end))
            .weighted()
            .take_while(|(key, _)| range.contains(key))
            .filter_map(|(_, versions)| versions.current())
    }

    fn collect_now(&self, request: &RangeRequest, wanted: usize) -> Vec<Arc<KeyValue>> {
        let range = &request.range;
        let passes = |kv: &&Arc<KeyValue>| passes_filters(kv, request);
        if wanted == 0 {
            Vec::new()
        } else if range.is_single() {
            self.current(&range.key).filter(passes).cloned().into_iter().collect()
        } else if is_backward(request) {
            self.live_backward(range).filter(passes).take(wanted).cloned().collect()
        } else {
            self.live(range).filter(passes).take(wanted).cloned().collect()
        }
    }

    /// Reads at an old revision. The counts of the tree are those of now, so this walks the range.
    fn collect_at(&self, request: &RangeRequest, wanted: usize) -> (Vec<Arc<KeyValue>>, i64) {
        let range = &request.range;
        let mut kvs = Vec::new();
        let mut count = 0;
        let backward = is_backward(request) && !range.is_single();
        let walk = if backward {
            self.tree.descend((!range.is_from_key()).then_some(&range.end))
        } else {
            self.tree.ascend(Some(&range.key))
        };
        for (_, versions) in walk.take_while(|(key, _)| range.contains(key)) {
            let Some(kv) = versions.at(request.revision) else { continue };
            count += 1;
            if kvs.len() < wanted && passes_filters(kv, request) {
                kvs.push(Arc::clone(kv));
            }
        }
        (kvs, count)
    }

    /// True if the condition holds now.
    pub(crate) fn holds(&self, compare: &Compare) -> bool {
        if compare.range.is_single() {
            return holds_for(self.current(&compare.range.key).map(|kv| &**kv), compare);
        }
        let mut keys = self.live(&compare.range).peekable();
        if keys.peek().is_none() {
            return holds_for(None, compare);
        }
        keys.all(|kv| holds_for(Some(kv), compare))
    }
}

/// How many keys to collect before sorting: one more than asked for tells whether the answer was cut.
///
/// A sort by anything but the key needs all of them. As in etcd, a sort target with neither an order nor a filter
/// is the exception: the first keys *by key* are taken and only those are sorted.
fn wanted(request: &RangeRequest, limit: usize) -> usize {
    let sorts_all = request.sort_order != SortOrder::None || has_filters(request);
    if request.count_only {
        0
    } else if request.sort_target != SortTarget::Key && sorts_all {
        usize::MAX
    } else {
        limit.saturating_add(1)
    }
}

/// True if walking backwards gives the asked order.
fn is_backward(request: &RangeRequest) -> bool {
    request.sort_target == SortTarget::Key && request.sort_order == SortOrder::Descend
}

fn has_filters(request: &RangeRequest) -> bool {
    request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0
}

fn passes_filters(kv: &KeyValue, request: &RangeRequest) -> bool {
    let min = |bound: Revision, value: Revision| bound == 0 || value >= bound;
    let max = |bound: Revision, value: Revision| bound == 0 || value <= bound;
    min(request.min_mod_revision, kv.mod_revision)
        && max(request.max_mod_revision, kv.mod_revision)
        && min(request.min_create_revision, kv.create_revision)
        && max(request.max_create_revision, kv.create_revision)
}

/// Sorts by the target; a target without an order ascends. Ties stay in key order.
fn sort(kvs: &mut [Arc<KeyValue>], request: &RangeRequest) {
    let by = |a: &KeyValue, b: &KeyValue| match request.sort_target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    match (request.sort_target, request.sort_order) {
        (SortTarget::Key, _) => {} // The walk had the right direction.
        (_, SortOrder::Descend) => kvs.sort_by(|a, b| by(b, a)),
        (_, SortOrder::None | SortOrder::Ascend) => kvs.sort_by(|a, b| by(a, b)),
    }
}

fn drop_value(kv: &mut Arc<KeyValue>) {
    if !kv.value.is_empty() {
        *kv = Arc::new(KeyValue { value: Bytes::new(), ..(**kv).clone() });
    }
}

/// The condition for one key, or for a missing one: all its numbers are 0, but no comparison with its value holds.
fn holds_for(kv: Option<&KeyValue>, compare: &Compare) -> bool {
    let number = |of: fn(&KeyValue) -> i64| kv.map_or(0, of);
    let order = match &compare.target {
        CompareTarget::Version(given) => number(|kv| kv.version).cmp(given),
        CompareTarget::CreateRevision(given) => number(|kv| kv.create_revision).cmp(given),
        CompareTarget::ModRevision(given) => number(|kv| kv.mod_revision).cmp(given),
        CompareTarget::Lease(given) => number(|kv| kv.lease).cmp(given),
        CompareTarget::Value(given) => match kv {
            Some(kv) => kv.value.cmp(given),
            None => return false,
        },
    };
    match compare.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => order.is_ne(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    }
}
