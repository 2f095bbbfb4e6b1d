//! At most one leader can be elected in a term, and a vote once given in a term stays.
//!
//! Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", figure 3, Election Safety,
//! and section 5.2 (each server votes for at most one candidate in a term); figure 2, State: term and vote are on
//! stable storage before a request or an answer shows them. A leader's own vote counted, so its disk has it.

use std::collections::BTreeMap;

use super::step::{Invariant, Step};
use super::view::ReplicaId;

/// Who led in which term.
#[derive(Default)]
pub struct ElectionSafety {
    leaders: BTreeMap<u64, ReplicaId>,
}

impl Invariant for ElectionSafety {
    fn name(&self) -> &'static str {
        "election-safety"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive() {
            if replica.is_leader {
                let first = *self.leaders.entry(replica.term).or_insert(replica.id);
                if first != replica.id {
                    found.push(format!("{} and {} both lead in term {}", first, replica.id, replica.term));
                }
                if replica.durable_term < replica.term {
                    found.push(format!(
                        "{} leads in term {}, and its disk has a vote of term {}",
                        replica.id, replica.term, replica.durable_term
                    ));
                }
            }
            let Some(before) = step.before.get(&replica.id) else { continue };
            let changed = before.vote.is_some() && replica.vote != before.vote;
            if before.term == replica.term && changed {
                found.push(format!(
                    "{} voted for {:?} and then {:?} in term {}",
                    replica.id, before.vote, replica.vote, replica.term
                ));
            }
        }
    }
}
