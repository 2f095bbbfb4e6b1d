//! What a seed's run comes to: figures for the table, and what was wrong.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Replicas.
    pub replicas: u64,
    /// Calls of clients that were answered.
    pub ok: u64,
    /// Calls that were certainly not carried out.
    pub failed: u64,
    /// Calls of which the client does not know.
    pub unknown: u64,
    /// Of them, found in the committed log.
    pub unknown_committed: u64,
    /// Watches.
    pub watches: u64,
    /// Events they delivered.
    pub watch_events: u64,
    /// Calls about runs.
    pub run_calls: u64,
    /// Starts of job processes.
    pub job_starts: u64,
    /// Histories checked.
    pub histories: u64,
    /// Entries committed.
    pub entries: u64,
    /// Terms with a leader.
    pub leaders: u64,
    /// Starts of replicas.
    pub boots: u64,
    /// Steps, each checked.
    pub steps: u64,
    /// Virtual time, in milliseconds.
    pub virtual_ms: u64,
    /// Faults that took effect, by kind.
    pub faults: BTreeMap<String, u64>,
    /// How often the place of the known bug that was on was passed.
    pub control_passed: u64,
    /// What must not be, and was.
    pub violations: Vec<String>,
    /// The trace's hash: equal for equal runs.
    pub trace: u64,
}

impl Report {
    /// As a line for whoever started this seed.
    pub fn to_json(&self) -> Value {
        json!({
            "seed": self.seed,
            "replicas": self.replicas,
            "ok": self.ok,
            "failed": self.failed,
            "unknown": self.unknown,
            "unknown_committed": self.unknown_committed,
            "watches": self.watches,
            "watch_events": self.watch_events,
            "run_calls": self.run_calls,
            "job_starts": self.job_starts,
            "histories": self.histories,
            "entries": self.entries,
            "leaders": self.leaders,
            "boots": self.boots,
            "steps": self.steps,
            "virtual_ms": self.virtual_ms,
            "faults": self.faults,
            "control_passed": self.control_passed,
            "violations": self.violations,
            "trace": format!("{:016x}", self.trace),
        })
    }
}
