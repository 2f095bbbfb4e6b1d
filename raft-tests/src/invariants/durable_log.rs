//! A log has no holes, and what was durable before a crash is there after it.
//!
//! Source: the Raft paper, figure 2 (the log is persistent state) and section 5.1; DESIGN promise P1. A restart may
//! drop what was not yet synced, nothing else.

use super::step::{Invariant, Step};

/// See the module.
pub struct DurableLog;

impl Invariant for DurableLog {
    fn name(&self) -> &'static str {
        "durable-log"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for (id, changed) in step.changed {
            if let Some(lost) = changed.effects.lost {
                found.push(format!("{id} started without entry {lost}, which was durable"));
            }
            if let Some(broken) = &changed.effects.broken {
                found.push(format!("{id}: {broken}"));
            }
        }
        for replica in step.alive() {
            let last = step.logs.get(&replica.id).map_or(0, |log| log.last());
            if replica.last_log != last {
                found.push(format!(
                    "{} says its log ends at {}, it ends at {last}",
                    replica.id, replica.last_log
                ));
            }
        }
    }
}
