//! purged <= checkpoint <= applied <= committed <= last entry, in each replica.
//!
//! Source: the Raft paper, figure 2 (lastApplied <= commitIndex) and section 7 (a log is discarded only up to a
//! snapshot); openraft's own simulation checks the same chain.

use super::step::{Invariant, Step};

/// See the module.
pub struct LogOrder;

impl Invariant for LogOrder {
    fn name(&self) -> &'static str {
        "log-order"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive() {
            let chain = [
                ("purged", replica.purged),
                ("checkpoint", replica.checkpoint),
                ("applied", replica.applied),
                ("committed", replica.committed),
                ("last entry", replica.last_log),
            ];
            for pair in chain.windows(2).filter(|pair| pair[0].1 > pair[1].1) {
                let [(low, a), (high, b)] = [pair[0], pair[1]];
                found.push(format!("{}: {low} {a} is above {high} {b}", replica.id));
            }
        }
    }
}
