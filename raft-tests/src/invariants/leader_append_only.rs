//! A leader never overwrites or drops entries of its log; it only appends.
//!
//! Source: the Raft paper, figure 3, Leader Append-Only.

use super::step::{Invariant, Step};

/// See the module.
pub struct LeaderAppendOnly;

impl Invariant for LeaderAppendOnly {
    fn name(&self) -> &'static str {
        "leader-append-only"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive().filter(|replica| replica.is_leader) {
            let led =
                step.earlier(replica).is_some_and(|before| before.is_leader && before.term == replica.term);
            let truncated = step.changed.get(&replica.id).and_then(|changed| changed.effects.truncated);
            if let (true, Some(from)) = (led, truncated) {
                found.push(format!(
                    "{} leads term {} and dropped entries from {from} on",
                    replica.id, replica.term
                ));
            }
        }
    }
}
