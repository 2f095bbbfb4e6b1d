//! The state machine: one door in (`apply`), reads beside it.

use bytes::Bytes;
use meta_types::{
    Batch, LeaseId, Outcome, RangeReply, RangeRequest, Refusal, Revision, RevisionEvents, Sequenced, Txn,
    TxnReply,
};

use crate::apply;
use crate::dedup::{Admission, Dedup};
use crate::hash::{Digest, Kind, Sum};
use crate::keyspace::Keyspace;
use crate::lease::{LeaseInfo, Leases};
use crate::snapshot::Snapshot;

/// Events that each applied entry sweeps of what compactions left behind.
const SWEEP_PER_ENTRY: usize = 2_000;

/// Place of an entry in the log and the term it was appended in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EntryPosition {
    /// Index in the log.
    pub index: u64,
    /// Term of the leader that appended it.
    pub term: u64,
}

/// What applying one entry did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// The outcome of each command by its number, in order. A duplicate has none.
    pub outcomes: Vec<(u64, Outcome)>,
    /// The revisions written, in order.
    pub events: Vec<RevisionEvents>,
}

/// The replicated description of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The cluster's id.
    pub cluster_id: u64,
    /// Its name.
    pub name: Bytes,
    /// The feature level every member must know.
    pub feature_level: u32,
}

/// The replicated state. Two of them that were fed the same entries are equal, whatever the machine, the clock or
/// the order of anything else.
pub struct Core {
    pub(crate) keys: Keyspace,
    pub(crate) leases: Leases,
    pub(crate) dedup: Dedup,
    pub(crate) cluster: Option<ClusterInfo>,
    pub(crate) applied: Option<EntryPosition>,
}

impl Default for Core {
    fn default() -> Self {
        Self::new()
    }
}

impl Core {
    /// An empty store: revision 1, nothing applied.
    pub fn new() -> Self {
        Self {
            keys: Keyspace::new(),
            leases: Leases::new(),
            dedup: Dedup::default(),
            cluster: None,
            applied: None,
        }
    }

    /// Applies one entry. An entry at or below the applied index changes nothing.
    ///
    /// # Panics
    /// If an entry was left out: going on would make this replica differ from the others.
    pub fn apply(&mut self, at: EntryPosition, batch: &Batch) -> Applied {
        let mut applied = Applied::default();
        if !self.advance(at) {
            return applied;
        }
        if let Some(stamp) = batch.stamp.filter(|stamp| stamp.term == at.term) {
            self.leases.advance(stamp.lease_time_ms);
        }
        self.dedup.raise(batch.origin, batch.low_water);
        for sequenced in &batch.commands {
            if let Some(outcome) = self.apply_one(at, batch, sequenced, &mut applied.events) {
                applied.outcomes.push((sequenced.seq, outcome));
            }
        }
        self.keys.sweep(SWEEP_PER_ENTRY);
        applied
    }

    fn apply_one(
        &mut self,
        at: EntryPosition,
        batch: &Batch,
        sequenced: &Sequenced,
        events: &mut Vec<RevisionEvents>,
    ) -> Option<Outcome> {
        let result = match apply::admit(self, batch, sequenced) {
            Admission::Duplicate => return None,
            Admission::Refused(refusal) => Err(refusal),
            Admission::Fresh => apply::execute(self, at, &sequenced.command),
        };
        let result = result.map(|effect| {
            events.extend(effect.events);
            effect.response
        });
        Some(Outcome { revision: self.revision(), result })
    }

    /// Passes an entry that carries nothing for the state (blank, membership).
    ///
    /// # Panics
    /// As `apply`.
    pub fn skip(&mut self, at: EntryPosition) {
        self.advance(at);
    }

    /// True if `at` is the next entry.
    fn advance(&mut self, at: EntryPosition) -> bool {
        if let Some(applied) = self.applied {
            if at.index <= applied.index {
                return false;
            }
            assert_eq!(
                at.index,
                applied.index + 1,
                "entries between the applied one and this one are missing"
            );
        }
        self.applied = Some(at);
        true
    }

    /// The last entry applied or skipped.
    pub fn applied(&self) -> Option<EntryPosition> {
        self.applied
    }

    /// The revision of the last effective write; 1 for an empty store.
    pub fn revision(&self) -> Revision {
        self.keys.now.revision
    }

    /// History below this revision is gone; 0 before the first compaction.
    pub fn compact_revision(&self) -> Revision {
        self.keys.now.compact_revision()
    }

    /// Reads a range at its revision, or at the newest.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeReply, Refusal> {
        self.keys.now.range(request)
    }

    /// The keyspace as it is now, to be read without holding the state. Cheap to take; while it is held, writers
    /// copy the nodes they touch.
    pub fn snapshot(&self) -> Snapshot {
        self.keys.now.clone()
    }

    /// Runs a transaction that only reads.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnReply, Refusal> {
        apply::read_txn(&self.keys.now, txn)
    }

    /// Whole revisions from `from` on: at most about `max` events, but at least one revision if there is one.
    pub fn history(&self, from: Revision, max: usize) -> Result<Vec<RevisionEvents>, Refusal> {
        self.keys.history(from, max)
    }

    /// A lease as it stands.
    pub fn lease(&self, id: LeaseId) -> Option<LeaseInfo> {
        self.leases.info(id)
    }

    /// All leases, by id.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.leases.ids()
    }

    /// Leases that are due at the current lease time, the longest overdue first, at most `max`.
    pub fn due_leases(&self, max: usize) -> Vec<LeaseId> {
        self.leases.due(max)
    }

    /// Lease time: milliseconds, as stamped by leaders.
    pub fn lease_time_ms(&self) -> u64 {
        self.leases.time_ms()
    }

    /// The cluster's description, once it is formed.
    pub fn cluster(&self) -> Option<&ClusterInfo> {
        self.cluster.as_ref()
    }

    /// Bytes of the keys and values of all live keys.
    pub fn live_bytes(&self) -> u64 {
        self.keys.live_bytes()
    }

    /// Bytes that older versions, tombstones and remembered events take, with an allowance for each. After a
    /// compaction it falls step by step. It steers local decisions only and is no part of the replicated state.
    pub fn history_bytes(&self) -> u64 {
        self.keys.history_bytes()
    }

    /// The revision to compact to so that `history_bytes` falls to `max_bytes`. `None` if it is within, or while
    /// an earlier compaction is still being swept.
    pub fn compaction_for(&self, max_bytes: u64) -> Option<Revision> {
        self.keys.compaction_for(max_bytes)
    }

    /// Frees about `budget` events of what compactions left behind; true if nothing is left. Each applied entry
    /// does a step too, so this is for a store nobody writes to. Never visible to readers.
    pub fn sweep(&mut self, budget: usize) -> bool {
        self.keys.sweep(budget)
    }

    /// The hash of the logical state: equal on all replicas at the same applied entry. O(1).
    pub fn state_hash(&self) -> u64 {
        self.hash_with(&self.dedup)
    }

    /// The same, were this the dedup.
    pub(crate) fn hash_with(&self, dedup: &Dedup) -> u64 {
        let keys = self.keys.hash().value();
        let parts = [keys, self.leases.hash().value(), dedup.hash().value()];
        whole(parts, &Scalars::of(self))
    }

    /// The same hash from a walk over everything: equal to `state_hash` unless memory or code is broken.
    pub fn recompute_hash(&self) -> u64 {
        let mut keys = Sum::default();
        for (_, versions) in self.keys.now.tree.ascend(None).weighted() {
            versions.current().into_iter().for_each(|kv| keys.add(crate::hash::of_key_value(kv)));
        }
        let mut leases = Sum::default();
        for (id, lease) in self.leases.table().ascend(None) {
            leases.add(crate::hash::of_lease(*id, lease.ttl_s, lease.expiry_ms));
        }
        let dedup = Dedup::restore(self.dedup.members().clone());
        whole([keys.value(), leases.value(), dedup.hash().value()], &Scalars::of(self))
    }
}

/// The single values of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scalars {
    pub(crate) revision: Revision,
    pub(crate) compact_revision: Revision,
    pub(crate) lease_time_ms: u64,
    pub(crate) cluster: Option<ClusterInfo>,
}

impl Scalars {
    pub(crate) fn of(core: &Core) -> Self {
        Self {
            revision: core.keys.now.revision,
            compact_revision: core.keys.now.compact_revision,
            lease_time_ms: core.leases.time_ms(),
            cluster: core.cluster.clone(),
        }
    }
}

/// The hash of sums (keys, leases, dedup) and single values.
pub(crate) fn whole(sums: [u64; 3], scalars: &Scalars) -> u64 {
    let mut digest = Digest::new(Kind::Scalars);
    for sum in sums {
        digest = digest.word(sum);
    }
    digest = digest.int(scalars.revision).int(scalars.compact_revision).word(scalars.lease_time_ms);
    if let Some(cluster) = &scalars.cluster {
        let ClusterInfo { cluster_id, name, feature_level } = cluster;
        digest = digest.word(*cluster_id).bytes(name).word(u64::from(*feature_level));
    }
    digest.end()
}
