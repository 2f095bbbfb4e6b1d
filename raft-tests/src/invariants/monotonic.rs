//! Numbers that never go back.
//!
//! | number | may go back |
//! |---|---|
//! | term (with the vote), purged | never: on disk before anybody hears of it |
//! | committed, applied, revision, lease time | at a restart: read again from a checkpoint and the log |
//! | checkpoint | at a restart: a damaged generation falls back to the one before |
//!
//! Source: the Raft paper, figure 2 (currentTerm increases monotonically, commitIndex and lastApplied increase
//! monotonically; the former persistent, the latter volatile); for the revision, etcd's "KV API guarantees".

use super::step::{Invariant, Step};

/// See the module.
pub struct Monotonic;

impl Invariant for Monotonic {
    fn name(&self) -> &'static str {
        "monotonic"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive() {
            let mut rises = |what: &str, before: u64, now: u64| {
                if now < before {
                    found.push(format!("{}: {what} went back from {before} to {now}", replica.id));
                }
            };
            if let Some(before) = step.before.get(&replica.id) {
                rises("term", before.term, replica.term);
                rises("purged", before.purged, replica.purged);
            }
            if let Some(before) = step.earlier(replica) {
                rises("committed", before.committed, replica.committed);
                rises("applied", before.applied, replica.applied);
                rises("checkpoint", before.checkpoint, replica.checkpoint);
                rises("revision", before.revision.unsigned_abs(), replica.revision.unsigned_abs());
                rises("lease time", before.lease_time_ms, replica.lease_time_ms);
            }
        }
    }
}
