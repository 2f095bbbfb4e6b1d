//! A cluster made up by hand: a test tells what happens, the rig fills in the views.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::{
    ClusterView, EntryMark, Invariants, LogChange, ReplicaId, ReplicaView, StateMark, Violation,
};

/// Three replicas, 1 to 3, and the invariants that watch them.
pub struct Rig {
    pub view: ClusterView,
    pub invariants: Invariants,
}

/// The entry that a leader of `term` appends at `index`.
pub fn entry(index: u64, term: u64) -> EntryMark {
    EntryMark { index, term, crc: (index * 1000 + term) as u32 }
}

impl Rig {
    pub fn new() -> Self {
        let voters = vec![BTreeSet::from([1, 2, 3])];
        let replica = |id| ReplicaView {
            id,
            alive: true,
            incarnation: 1,
            revision: 1,
            voters: voters.clone(),
            ..ReplicaView::default()
        };
        let view = ClusterView { replicas: (1..=3).map(replica).collect(), ..ClusterView::default() };
        Self { view, invariants: Invariants::new() }
    }

    /// A cluster whose leader 1 of term 1 has committed and applied the entries up to `index` everywhere.
    pub fn with_entries(index: u64) -> Self {
        let mut rig = Self::new();
        rig.elect(1, 1, &[1, 2]);
        for index in 1..=index {
            for id in 1..=3 {
                rig.append(id, entry(index, 1)).durable(id, index);
            }
            rig.commit(1, index).commit(2, index).commit(3, index);
            rig.apply(1, index).apply(2, index).apply(3, index);
            assert_eq!(rig.step(), []);
        }
        rig
    }

    pub fn r(&mut self, id: ReplicaId) -> &mut ReplicaView {
        self.view.replicas.iter_mut().find(|replica| replica.id == id).expect("a replica of the rig")
    }

    /// `voters` vote for `id`, which leads from now on; who hears of the term steps down.
    pub fn elect(&mut self, id: ReplicaId, term: u64, voters: &[ReplicaId]) -> &mut Self {
        for voter in voters {
            let replica = self.r(*voter);
            (replica.term, replica.vote, replica.is_leader) = (term, Some(id), false);
            replica.leader = Some(id);
            replica.durable_term = term;
        }
        self.r(id).is_leader = true;
        self
    }

    fn changes(&mut self, id: ReplicaId, change: LogChange) -> &mut Self {
        self.r(id).log_changes.push(change);
        self
    }

    pub fn append(&mut self, id: ReplicaId, mark: EntryMark) -> &mut Self {
        self.r(id).last_log = mark.index;
        self.changes(id, LogChange::Appended(mark))
    }

    pub fn durable(&mut self, id: ReplicaId, up_to: u64) -> &mut Self {
        self.changes(id, LogChange::Durable { up_to })
    }

    pub fn truncate(&mut self, id: ReplicaId, from: u64) -> &mut Self {
        self.r(id).last_log = from - 1;
        self.changes(id, LogChange::Truncated { from })
    }

    pub fn purge(&mut self, id: ReplicaId, up_to: u64, term: u64) -> &mut Self {
        self.r(id).purged = up_to;
        self.r(id).last_log = self.r(id).last_log.max(up_to);
        self.changes(id, LogChange::Purged { up_to, term })
    }

    pub fn commit(&mut self, id: ReplicaId, index: u64) -> &mut Self {
        self.r(id).committed = index;
        self
    }

    /// Applies the next entry, which writes one revision.
    pub fn apply(&mut self, id: ReplicaId, index: u64) -> &mut Self {
        let replica = self.r(id);
        let mark = StateMark { index, revision: 1 + index as i64, written: 1, hash: 7 * index };
        (replica.applied, replica.revision, replica.state_hash) = (index, mark.revision, mark.hash);
        replica.states.push(mark);
        self
    }

    pub fn stop(&mut self, id: ReplicaId) -> &mut Self {
        self.r(id).alive = false;
        self.r(id).is_leader = false;
        self.changes(id, LogChange::Stopped)
    }

    /// A new boot from a checkpoint at `checkpoint` finds these entries on its disk.
    pub fn start(&mut self, id: ReplicaId, checkpoint: u64, entries: Vec<EntryMark>) -> &mut Self {
        let replica = self.r(id);
        replica.alive = true;
        replica.incarnation += 1;
        replica.last_log = entries.last().map_or(replica.purged, |last| last.index);
        (replica.committed, replica.applied, replica.checkpoint) = (checkpoint, checkpoint, checkpoint);
        (replica.revision, replica.state_hash) = (1 + checkpoint as i64, 7 * checkpoint);
        (replica.lease_time_ms, replica.leader) = (0, None);
        let purged = (replica.purged, u64::from(replica.purged > 0));
        self.changes(id, LogChange::Found { purged, entries })
    }

    /// Ends the step: what is wrong in it.
    pub fn step(&mut self) -> Vec<Violation> {
        let found = self.invariants.check(&self.view);
        self.view.at += Duration::from_millis(10);
        self.view.records.clear();
        for replica in &mut self.view.replicas {
            replica.log_changes.clear();
            replica.states.clear();
            replica.leases.clear();
        }
        found
    }

    /// Ends the step and expects that exactly these invariants are broken by it.
    #[track_caller]
    pub fn breaks(&mut self, names: &[&str]) {
        let found = self.step();
        let broken: BTreeSet<&str> = found.iter().map(|violation| violation.name).collect();
        assert_eq!(broken, names.iter().copied().collect(), "{found:#?}");
    }
}
