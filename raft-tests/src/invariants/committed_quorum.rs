//! What is committed, or applied anywhere, is on the disks of a majority of the voters.
//!
//! Source: the Raft paper, section 5.3 (an entry is committed once a majority stores it) and figure 2 (persistent
//! before answering). The logs of replicas that are down count as far as they are durable. By log matching it is
//! enough to look for the last committed entry, so a step costs one look-up a replica. Caught by it elsewhere:
//! openraft issue 1802, a commit without a majority in groups of five.

use super::step::{Invariant, Step};

/// See the module.
#[derive(Default)]
pub struct CommittedQuorum {
    applied: u64,
}

impl Invariant for CommittedQuorum {
    fn name(&self) -> &'static str {
        "committed-quorum"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive() {
            if replica.applied <= self.applied {
                continue;
            }
            self.applied = replica.applied;
            if replica.applied > step.ledger.last() {
                found.push(format!(
                    "{} applied {}, which nobody knows to be committed",
                    replica.id, self.applied
                ));
            }
        }
        let Some(mark) = step.ledger.get(step.ledger.last()) else { return };
        // The voters are those of whoever knows most: a change of voters is itself an entry.
        let knows_most = step.alive().max_by_key(|replica| replica.committed);
        let Some(knows_most) = knows_most.filter(|replica| replica.committed == mark.index) else { return };
        for voters in &knows_most.voters {
            let holds = |id: &&u64| step.logs.get(id).is_some_and(|log| log.covers_durably(mark));
            let have = voters.iter().filter(holds).count();
            if have * 2 <= voters.len() {
                found.push(format!(
                    "entry {} of term {} is committed and durable on {have} of the {} voters",
                    mark.index,
                    mark.term,
                    voters.len()
                ));
            }
        }
    }
}
