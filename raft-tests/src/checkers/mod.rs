//! What is checked once a seed is over: the history of the clients against the committed log.
//!
//! ```text
//!  committed log ──> Replay (meta_core and a naive model) ──┐
//!                                                           ├──> Matching: which call is which command
//!  History ─────────────────────────────────────────────────┘            │
//!       witness · linearizability · watches · leases · runs · final state <┘
//! ```
//! A checker gives findings; none is a pass. A checker that could not finish says so as a finding.

mod final_state;
mod leases;
mod linearizability;
mod matching;
pub mod model;
mod replay;
mod runs;
#[cfg(test)]
mod tests;
mod watches;
mod witness;

pub use self::final_state::{FinalState, final_state};
pub use self::leases::{LeaseRules, leases};
pub use self::linearizability::{Limits, linearizability};
pub use self::matching::{Matching, Recorded};
pub use self::replay::{Executed, LogEntry, Replay};
pub use self::runs::runs;
pub use self::watches::{WatchRules, watches};
pub use self::witness::witness;

use std::time::Duration;

use crate::history::History;
pub use crate::invariants::Violation as Finding;

/// How many findings of one checker are kept.
const KEPT: usize = 20;

/// Collects the findings of one checker.
pub(crate) struct Findings {
    name: &'static str,
    found: Vec<Finding>,
}

impl Findings {
    pub(crate) fn of(name: &'static str) -> Self {
        Self { name, found: Vec::new() }
    }

    pub(crate) fn add(&mut self, at: Option<Duration>, text: String) {
        self.add_as(self.name, at, text);
    }

    /// A finding under another name than the checker's.
    pub(crate) fn add_as(&mut self, name: &'static str, at: Option<Duration>, text: String) {
        if self.found.len() < KEPT {
            self.found.push(Finding { name, at: at.unwrap_or_default(), text });
        }
    }

    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.found
    }
}

/// What a seed has to be judged by.
pub struct Evidence<'a> {
    /// The committed log, from its first entry on.
    pub log: &'a [LogEntry],
    /// What clients and nodes saw.
    pub history: &'a History,
    /// The replicas at the end, after everything was healed and has settled; empty if that was not waited for.
    pub finals: &'a [FinalState],
    /// Whether every client's calls are in the history: then a command that nobody asked for is a finding.
    pub recorded: Recorded,
    /// Time tolerance and bounds of leases.
    pub lease_rules: LeaseRules,
    /// Bounds of the search for a linearization.
    pub limits: Limits,
}

/// What was looked at: figures for the report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Calls of the store.
    pub operations: usize,
    /// Of them, answered.
    pub ok: usize,
    /// Of them, certainly not carried out.
    pub failed: usize,
    /// Of them, unknown.
    pub unknown: usize,
    /// Of the unknown ones that write: found in the committed log.
    pub unknown_committed: usize,
    /// Committed commands.
    pub commands: usize,
    /// Revisions written.
    pub revisions: usize,
    /// Watches.
    pub watches: usize,
    /// Events they delivered.
    pub watch_events: usize,
    /// Calls about runs.
    pub run_calls: usize,
    /// Starts of job processes.
    pub job_starts: usize,
}

/// Runs every checker.
pub fn check_all(evidence: &Evidence<'_>) -> (Figures, Vec<Finding>) {
    let history = evidence.history;
    let replay = Replay::of(evidence.log);
    let matching = Matching::of(&replay, history, evidence.recorded);
    let watch_rules = WatchRules { has_all: !evidence.finals.is_empty() };
    let mut found = replay.findings.clone();
    found.extend(matching.findings.iter().cloned());
    found.extend(witness(&replay, history, &matching));
    found.extend(linearizability(&replay, history, &matching, evidence.limits));
    found.extend(watches(&replay, history, watch_rules));
    found.extend(leases(&replay, evidence.log, history, &evidence.lease_rules));
    found.extend(runs(history));
    found.extend(final_state(&replay, evidence.finals));
    (figures(&replay, history, &matching), found)
}

fn figures(replay: &Replay, history: &History, matching: &Matching) -> Figures {
    let operations = &history.operations;
    let unknown: Vec<usize> = (0..operations.len()).filter(|at| operations[*at].is_unknown()).collect();
    let ok = operations.iter().filter(|operation| operation.is_ok()).count();
    Figures {
        operations: operations.len(),
        ok,
        failed: operations.len() - ok - unknown.len(),
        unknown: unknown.len(),
        unknown_committed: unknown.iter().filter(|at| matching.executed(**at).is_some()).count(),
        commands: replay.executed.len(),
        revisions: usize::try_from(replay.revision() - 1).unwrap_or(0),
        watches: history.watches.len(),
        watch_events: history.watches.iter().map(|watch| watch.events().count()).sum(),
        run_calls: history.runs.len(),
        job_starts: history
            .jobs
            .iter()
            .filter(|job| job.kind == crate::history::JobEventKind::Started)
            .count(),
    }
}
