//! What an invariant is given: the view, the logs after it, the numbers before it.

use std::collections::BTreeMap;

use meta_types::Revision;

use super::ledger::{Conflict, Ledger};
use super::mirror::{Effects, Mirror};
use super::view::{ClusterView, ReplicaId, ReplicaView};

/// One invariant.
pub trait Invariant {
    /// Its name, as violations carry it.
    fn name(&self) -> &'static str;

    /// Looks at a step and says what is wrong.
    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>);
}

/// One step.
pub struct Step<'a> {
    /// The cluster after it.
    pub view: &'a ClusterView,
    /// The logs after it.
    pub logs: &'a BTreeMap<ReplicaId, Mirror>,
    /// Each replica's numbers when it was last seen alive.
    pub before: &'a BTreeMap<ReplicaId, Numbers>,
    /// What happened to the logs.
    pub changed: &'a BTreeMap<ReplicaId, Changed>,
    /// What was ever committed.
    pub ledger: &'a Ledger,
    /// Where a replica takes another entry for committed.
    pub conflicts: &'a [Conflict],
}

/// What happened to one log in a step.
#[derive(Debug, Default)]
pub struct Changed {
    /// All effects together.
    pub effects: Effects,
}

/// A replica's numbers as last seen.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// Its boot.
    pub incarnation: u64,
    /// Its term.
    pub term: u64,
    /// Its vote.
    pub vote: Option<ReplicaId>,
    /// True if it led in that term.
    pub is_leader: bool,
    /// Known to be committed.
    pub committed: u64,
    /// In the state.
    pub applied: u64,
    /// Purged from the log.
    pub purged: u64,
    /// The newest checkpoint.
    pub checkpoint: u64,
    /// The revision.
    pub revision: Revision,
    /// Lease time.
    pub lease_time_ms: u64,
}

impl Numbers {
    /// Remembers what a replica shows; one that is down shows nothing, and leads nobody.
    pub fn take(&mut self, replica: &ReplicaView) {
        if !replica.alive {
            self.is_leader = false;
            return;
        }
        *self = Self {
            incarnation: replica.incarnation,
            term: replica.term,
            vote: replica.vote,
            is_leader: replica.is_leader,
            committed: replica.committed,
            applied: replica.applied,
            purged: replica.purged,
            checkpoint: replica.checkpoint,
            revision: replica.revision,
            lease_time_ms: replica.lease_time_ms,
        };
    }
}

impl<'a> Step<'a> {
    /// The replicas that run.
    pub fn alive(&self) -> impl Iterator<Item = &'a ReplicaView> + use<'a> {
        self.view.replicas.iter().filter(|replica| replica.alive)
    }

    /// A replica's numbers before, if it was seen before in this boot.
    pub fn earlier(&self, replica: &ReplicaView) -> Option<&Numbers> {
        self.before.get(&replica.id).filter(|numbers| numbers.incarnation == replica.incarnation)
    }
}
