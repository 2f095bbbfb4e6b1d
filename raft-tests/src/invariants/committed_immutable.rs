//! A committed entry is never another one: no replica takes a different entry for committed, and none drops an
//! entry that it knew to be committed.
//!
//! Source: the Raft paper, section 5.4 (committed entries are durable and will be executed by all). Caught by it
//! elsewhere: divergence after a lost vote or a truncated committed tail (openraft, "committed immutable").

use super::step::{Invariant, Step};

/// See the module.
pub struct CommittedImmutable;

impl Invariant for CommittedImmutable {
    fn name(&self) -> &'static str {
        "committed-immutable"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for conflict in step.conflicts {
            found.push(format!(
                "{} takes an entry of term {} at {} for committed, committed was one of term {}",
                conflict.replica, conflict.has.term, conflict.has.index, conflict.committed.term
            ));
        }
        for (id, changed) in step.changed {
            let Some(from) = changed.effects.truncated else { continue };
            let knew = step.before.get(id).map_or(0, |before| before.committed);
            // A checkpoint of a peer replaces the log: what it purged is not lost.
            let purged = step.logs.get(id).map_or(0, |log| log.purged());
            if from.max(purged + 1) <= knew {
                found.push(format!("{id} dropped entries from {from} on, but knew {knew} to be committed"));
            }
        }
    }
}
