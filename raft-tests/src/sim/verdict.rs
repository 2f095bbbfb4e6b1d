//! The verdict of a run: the committed log is put together from what was seen of it, the clients' history is checked
//! against it, and so is every state that a replica was seen in.

use meta_client::Snapshot;
use meta_raft::LoggedEntry;
use records::invariants::{invariants, step_violations};
use records::{Scope, View};

use super::observer::number_of;
use super::report::Report;
use super::world::World;
use crate::checkers::{
    Evidence, Figures, FinalState, LeaseRules, Limits, LogEntry, Recorded, Replay, check_all, final_state,
};
use crate::history::History;

/// A run that did less than this has shown nothing.
const ENOUGH: u64 = 50;

/// Checks what can be checked only at the end.
pub fn check(world: &mut World, history: &History, report: &mut Report) {
    let log = match committed_log(world) {
        Ok(log) => log,
        Err(why) => return world.violation("committed-log", why),
    };
    // Watches are left in the middle of what they were to deliver: no end is claimed for them.
    let evidence = Evidence {
        log: &log,
        history,
        finals: &[],
        recorded: Recorded::All,
        lease_rules: lease_rules(world),
        limits: Limits::default(),
    };
    let (figures, findings) = check_all(&evidence);
    world.violations.extend(findings);
    let replay = Replay::of(&log);
    world.violations.extend(final_state(&replay, &finals(world)));
    compare_samples(world, &replay);
    for text in records_of(&replay) {
        world.violation("records", text);
    }
    report.take(&figures);
    report.entries = log.len() as u64;
    report.histories = 1;
    if report.ok < ENOUGH {
        world.violation("run", format!("{} calls were answered: too few to show anything", report.ok));
    }
}

/// Writes what was committed into the event log.
pub fn explain(world: &mut World) {
    let log = committed_log(world).unwrap_or_default();
    for entry in &log {
        for command in entry.batch.iter().flat_map(|batch| &batch.commands) {
            let (index, at) = (entry.index, entry.at.unwrap_or_default());
            world.trace.explain(format_args!("entry {index} at {at:?} {:?}", command.command));
        }
    }
}

/// While a leader's clock or disk is slow, leases last longer.
fn lease_rules(world: &World) -> LeaseRules {
    let slack = LeaseRules::default().slack + world.lease_delay;
    LeaseRules { slack, end: Some(world.now()) }
}

/// The committed log, entry by entry. An error if an entry is missing or cannot be read.
fn committed_log(world: &World) -> Result<Vec<LogEntry>, String> {
    let mut log = Vec::new();
    for (&index, &term) in &world.observer.chosen {
        if index != log.len() as u64 + 1 {
            return Err(format!("entry {} was committed and never seen", log.len() + 1));
        }
        let payload = world.observer.entries.get(&(index, term)).cloned();
        let payload = payload.ok_or_else(|| format!("entry {index} of term {term} was never seen"))?;
        let batch = match LoggedEntry::read(payload).map_err(|e| format!("entry {index}: {e}"))? {
            LoggedEntry::Batch(batch) => Some(batch),
            LoggedEntry::Skipped => None,
        };
        log.push(LogEntry { index, term, at: world.invariants.committed_at(index), batch });
    }
    Ok(log)
}

fn finals(world: &World) -> Vec<FinalState> {
    let state = |handle: meta_raft::RaftHandle| {
        let core = handle.core();
        let core = core.read();
        FinalState {
            replica: handle.inspect().member_id,
            applied: number_of(core.applied().map(|at| at.index)),
            revision: core.revision(),
            hash: core.state_hash(),
            recomputed: core.recompute_hash(),
        }
    };
    world.nodes.iter().filter_map(|node| node.handle()).map(state).collect()
}

/// Every state that a replica was ever seen in must be the one that the log makes.
fn compare_samples(world: &mut World, replay: &Replay) {
    let made = &replay.hashes;
    let mut different = Vec::new();
    for sample in world.observer.samples.values() {
        let own = sample.index.checked_sub(1).and_then(|at| made.get(at as usize));
        if own.is_some_and(|own| *own != (sample.revision, sample.hash)) {
            different.push(format!("a replica had {sample:?}, the log makes {own:?}"));
        }
    }
    different.into_iter().take(5).for_each(|text| world.violation("seen-state", text));
}

/// What the domain's records were at every revision that changed one: what must hold, and what no step may do.
fn records_of(replay: &Replay) -> Vec<String> {
    let covers = Scope::everything().ranges().to_vec();
    let mut before = Snapshot::new(1, covers, []);
    let mut broken = Vec::new();
    for written in replay.events_from(1) {
        let mut after = before.clone();
        after.advance(written.revision, &written.events);
        if written.events.iter().any(|event| before.covers_key(&event.kv.key)) {
            let view = View::from(after.clone());
            let found = invariants(&view).into_iter().chain(step_violations(&View::from(before), &view));
            broken.extend(found.map(|violation| format!("at revision {}: {violation}", written.revision)));
        }
        before = after;
    }
    broken.truncate(5);
    broken
}

impl Report {
    fn take(&mut self, figures: &Figures) {
        let figure = |figure: usize| figure as u64;
        self.ok = figure(figures.ok);
        self.failed = figure(figures.failed);
        self.unknown = figure(figures.unknown);
        self.unknown_committed = figure(figures.unknown_committed);
        self.watches = figure(figures.watches);
        self.watch_events = figure(figures.watch_events);
        self.run_calls = figure(figures.run_calls);
        self.job_starts = figure(figures.job_starts);
    }

    /// Fills in what the world counted.
    pub fn count(&mut self, world: &World) {
        self.leaders = world.observer.leaders.len() as u64;
        self.boots = world.nodes.iter().map(|node| node.boots()).sum();
        self.steps = world.steps;
        self.virtual_ms = world.now().as_millis() as u64;
        self.faults = world.injected.iter().map(|(kind, count)| (format!("{kind:?}"), *count)).collect();
        self.violations = world.violations.iter().map(ToString::to_string).collect();
        self.trace = world.trace.hash();
    }
}
