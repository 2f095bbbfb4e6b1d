//! What must hold after every step of a simulated cluster, one file an invariant, each with its source.
//!
//! ```text
//!  ClusterView (numbers, log changes) ──> Mirror of each log ──┐
//!                                    └──> Ledger of commits ───┴──> every invariant ──> Violations
//! ```
//! Everything is incremental: a step costs as much as what changed in it. "Committed" is what any replica ever knew
//! to be committed; the ledger remembers the entry, and from then on nobody may have another one there.

mod committed_immutable;
mod committed_quorum;
mod durable_log;
mod election_safety;
mod equal_state;
mod leader_append_only;
mod leader_completeness;
mod lease_bounds;
mod ledger;
mod log_matching;
mod log_order;
mod mirror;
mod monotonic;
mod record_rules;
mod revisions;
mod state_machine_safety;
mod step;
#[cfg(test)]
mod tests;
mod view;

pub use self::view::{ClusterView, EntryMark, LeaseMark, LogChange, ReplicaId, ReplicaView, StateMark};

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use self::ledger::Ledger;
use self::mirror::{Effects, Mirror};
use self::step::{Changed, Invariant, Numbers, Step};

/// So many violations of one invariant are reported; the first is the one that matters.
const REPORTED: usize = 10;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name, or the checker's.
    pub name: &'static str,
    /// When it was seen.
    pub at: Duration,
    /// What is wrong, in one sentence.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}: {}", self.name, self.at, self.text)
    }
}

/// Every invariant with what it remembers of the steps so far.
pub struct Invariants {
    logs: BTreeMap<ReplicaId, Mirror>,
    before: BTreeMap<ReplicaId, Numbers>,
    ledger: Ledger,
    invariants: Vec<Box<dyn Invariant + Send>>,
    reported: BTreeMap<&'static str, usize>,
}

impl Default for Invariants {
    fn default() -> Self {
        Self::new()
    }
}

impl Invariants {
    /// Nothing seen yet. A cluster is followed from its first start on.
    pub fn new() -> Self {
        Self {
            logs: BTreeMap::new(),
            before: BTreeMap::new(),
            ledger: Ledger::default(),
            invariants: vec![
                Box::<election_safety::ElectionSafety>::default(),
                Box::<log_matching::LogMatching>::default(),
                Box::new(leader_append_only::LeaderAppendOnly),
                Box::<leader_completeness::LeaderCompleteness>::default(),
                Box::<state_machine_safety::StateMachineSafety>::default(),
                Box::<committed_quorum::CommittedQuorum>::default(),
                Box::new(committed_immutable::CommittedImmutable),
                Box::new(durable_log::DurableLog),
                Box::new(log_order::LogOrder),
                Box::new(monotonic::Monotonic),
                Box::<equal_state::EqualState>::default(),
                Box::<revisions::Revisions>::default(),
                Box::<lease_bounds::LeaseBounds>::default(),
                Box::<record_rules::RecordRules>::default(),
            ],
            reported: BTreeMap::new(),
        }
    }

    /// The names of all invariants.
    pub fn names(&self) -> Vec<&'static str> {
        self.invariants.iter().map(|invariant| invariant.name()).collect()
    }

    /// Looks at the cluster after a step: what is wrong now and was not reported before.
    pub fn check(&mut self, view: &ClusterView) -> Vec<Violation> {
        let changed = self.take_changes(view);
        let conflicts = self.ledger.follow(view, &self.logs);
        let step = Step {
            view,
            logs: &self.logs,
            before: &self.before,
            changed: &changed,
            ledger: &self.ledger,
            conflicts: &conflicts,
        };
        let mut found = Vec::new();
        for invariant in &mut self.invariants {
            let name = invariant.name();
            let mut texts = Vec::new();
            invariant.check(&step, &mut texts);
            let room = self.reported.entry(name).or_default();
            texts.truncate(REPORTED - *room);
            *room += texts.len();
            found.extend(texts.into_iter().map(|text| Violation { name, at: view.at, text }));
        }
        self.remember(view);
        found
    }

    /// When an entry was first known to be committed, in the time of the views.
    pub fn committed_at(&self, index: u64) -> Option<Duration> {
        self.ledger.committed_at(index)
    }

    fn take_changes(&mut self, view: &ClusterView) -> BTreeMap<ReplicaId, Changed> {
        let mut changed = BTreeMap::new();
        for replica in view.replicas.iter().filter(|replica| !replica.log_changes.is_empty()) {
            let log = self.logs.entry(replica.id).or_default();
            let mut effects = Effects::default();
            replica.log_changes.iter().for_each(|change| log.change(change, &mut effects));
            changed.insert(replica.id, Changed { effects });
        }
        changed
    }

    fn remember(&mut self, view: &ClusterView) {
        for replica in &view.replicas {
            let numbers = self.before.entry(replica.id).or_default();
            numbers.take(replica);
        }
    }
}
