//! Replicas that have applied the same entries have the same state: equal revision and hash at an equal index.
//!
//! Source: the Raft paper, section 2 (identical state machines compute identical copies of the same state); etcd
//! issue 13766, where members differed silently because the index was saved apart from the data.

use std::collections::BTreeMap;

use meta_types::Revision;

use super::step::{Invariant, Step};
use super::view::ReplicaId;

/// Revision and hash by applied index, and who showed them first.
#[derive(Default)]
pub struct EqualState {
    states: BTreeMap<u64, (ReplicaId, Revision, u64)>,
}

impl Invariant for EqualState {
    fn name(&self) -> &'static str {
        "equal-state"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive() {
            let now = (replica.applied, replica.revision, replica.state_hash);
            let marks = replica.states.iter().map(|mark| (mark.index, mark.revision, mark.hash));
            // The state itself is compared too: it may not be what the entries made of it.
            for (index, revision, hash) in marks.chain((replica.applied > 0).then_some(now)) {
                let (first, at, is) = *self.states.entry(index).or_insert((replica.id, revision, hash));
                if (at, is) != (revision, hash) {
                    found.push(format!(
                        "after entry {index} {first} has revision {at}, hash {is:016x}; {} has {revision}, {hash:016x}",
                        replica.id
                    ));
                }
            }
        }
    }
}
