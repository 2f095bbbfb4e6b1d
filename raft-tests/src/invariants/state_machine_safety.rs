//! If a replica has applied an entry at an index, no other ever applies a different one there.
//!
//! Source: the Raft paper, figure 3, State Machine Safety. What a replica applied is looked up in its log; entries it
//! got as a checkpoint are compared by the state's hash ([`super::equal_state`]).

use std::collections::BTreeMap;

use super::step::{Invariant, Step};
use super::view::{EntryMark, ReplicaId};

/// The entry applied at each index, and how far each boot of a replica was followed.
#[derive(Default)]
pub struct StateMachineSafety {
    applied: BTreeMap<u64, EntryMark>,
    followed: BTreeMap<ReplicaId, (u64, u64)>,
}

impl Invariant for StateMachineSafety {
    fn name(&self) -> &'static str {
        "state-machine-safety"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive() {
            let Some(log) = step.logs.get(&replica.id) else { continue };
            let (boot, up_to) = self.followed.get(&replica.id).copied().unwrap_or_default();
            let from = if boot == replica.incarnation { up_to } else { 0 };
            for index in from.max(log.purged()) + 1..=replica.applied {
                let Some(mark) = log.get(index) else {
                    found.push(format!("{} applied {index}, which its log does not have", replica.id));
                    break;
                };
                let first = *self.applied.entry(index).or_insert(mark);
                if first != mark {
                    found.push(format!(
                        "{} applied an entry of term {} at {index}, another one of term {}",
                        replica.id, mark.term, first.term
                    ));
                }
            }
            self.followed.insert(replica.id, (replica.incarnation, from.max(replica.applied)));
        }
    }
}
