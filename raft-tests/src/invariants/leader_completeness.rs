//! An entry that was committed in a term is in the logs of the leaders of all later terms.
//!
//! Source: the Raft paper, figure 3, Leader Completeness, and section 5.4.3. Checked when a leader is first seen: by
//! log matching it is enough that it has the last entry that anybody of an earlier term knew to be committed.

use std::collections::BTreeSet;

use super::step::{Invariant, Step};
use super::view::ReplicaId;

/// The leaders looked at.
#[derive(Default)]
pub struct LeaderCompleteness {
    seen: BTreeSet<(u64, ReplicaId)>,
}

impl Invariant for LeaderCompleteness {
    fn name(&self) -> &'static str {
        "leader-completeness"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive().filter(|replica| replica.is_leader) {
            if !self.seen.insert((replica.term, replica.id)) {
                continue;
            }
            let Some(committed) = step.ledger.last_before_term(replica.term) else { continue };
            if !step.logs.get(&replica.id).is_some_and(|log| log.covers(committed)) {
                found.push(format!(
                    "{} leads term {} without entry {} of term {}, which was committed before",
                    replica.id, replica.term, committed.index, committed.term
                ));
            }
        }
    }
}
