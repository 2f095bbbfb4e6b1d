//! The committed log, replayed twice: by the real `meta_core` and by the naive model. What the two disagree on is
//! itself a finding; everything else is checked against the naive one.

use std::collections::BTreeMap;
use std::time::Duration;

use meta_core::{Core, EntryPosition};
use meta_types::{Batch, Command, Origin, Outcome, Revision, RevisionEvents};

use super::model::Model;
use super::{Finding, Findings};

/// One committed entry.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Its index, from 1 on without gaps.
    pub index: u64,
    /// The term it was appended in.
    pub term: u64,
    /// When it was first known to be committed ([`crate::invariants::Invariants::committed_at`]).
    pub at: Option<Duration>,
    /// What it carries; `None` for a blank entry or a membership.
    pub batch: Option<Batch>,
}

/// One command that the log executed or refused (a duplicate is neither).
#[derive(Debug, Clone)]
pub struct Executed {
    /// Its entry.
    pub index: u64,
    /// Its entry's term.
    pub term: u64,
    /// When its entry was first known to be committed.
    pub at: Option<Duration>,
    /// Who numbered it.
    pub origin: Origin,
    /// Its number.
    pub seq: u64,
    /// The command.
    pub command: Command,
    /// Its outcome.
    pub outcome: Outcome,
    /// The revisions it wrote.
    pub events: Vec<RevisionEvents>,
    /// Lease time when it was executed.
    pub lease_time_ms: u64,
}

/// The log, replayed.
pub struct Replay {
    /// The log's last entry.
    pub last_index: u64,
    /// Every command that did something or was refused, in order.
    pub executed: Vec<Executed>,
    /// The naive state at the end, with every version there ever was.
    pub model: Model,
    /// The real state at the end.
    pub core: Core,
    /// Hash of the real state after each entry, by index - 1.
    pub hashes: Vec<(Revision, u64)>,
    /// What the two disagree on, and what is wrong with the log itself.
    pub findings: Vec<Finding>,
    /// The events of revision r at r - 2, with the command that wrote them.
    written: Vec<(usize, RevisionEvents)>,
}

impl Replay {
    /// Replays a log.
    pub fn of(log: &[LogEntry]) -> Self {
        let mut replay = Self {
            last_index: 0,
            executed: Vec::new(),
            model: Model::default(),
            core: Core::new(),
            hashes: Vec::new(),
            findings: Vec::new(),
            written: Vec::new(),
        };
        let mut findings = Findings::of("replay");
        for entry in log {
            if entry.index != replay.last_index + 1 {
                let text = format!("the log goes from entry {} to {}", replay.last_index, entry.index);
                findings.add(entry.at, text);
                break;
            }
            replay.last_index = entry.index;
            replay.take(entry, &mut findings);
            replay.hashes.push((replay.core.revision(), replay.core.state_hash()));
        }
        if replay.core.state_hash() != replay.core.recompute_hash() {
            findings.add(None, "the running hash is not that of the state".into());
        }
        replay.findings = findings.into_vec();
        replay
    }

    /// The revision at the end.
    pub fn revision(&self) -> Revision {
        self.model.keys.revision()
    }

    /// What was written at a revision.
    pub fn events(&self, revision: Revision) -> Option<&RevisionEvents> {
        self.at(revision).map(|(_, events)| events)
    }

    /// The command that wrote a revision, as an index of `executed`.
    pub fn writer(&self, revision: Revision) -> Option<usize> {
        self.at(revision).map(|(executed, _)| *executed)
    }

    fn at(&self, revision: Revision) -> Option<&(usize, RevisionEvents)> {
        self.written.get(usize::try_from(revision.checked_sub(2)?).ok()?)
    }

    /// Everything written from a revision on.
    pub fn events_from(&self, revision: Revision) -> impl Iterator<Item = &RevisionEvents> {
        let skip = usize::try_from(revision.saturating_sub(2)).unwrap_or(0);
        self.written.iter().skip(skip).map(|(_, events)| events)
    }

    /// The highest revision below which history was ever compacted away; 0 if never.
    pub fn compacted(&self) -> Revision {
        self.model.keys.compacted().unwrap_or(0)
    }

    fn take(&mut self, entry: &LogEntry, findings: &mut Findings) {
        let position = EntryPosition { index: entry.index, term: entry.term };
        let Some(batch) = &entry.batch else {
            self.core.skip(position);
            return;
        };
        let real = self.core.apply(position, batch);
        let naive = self.model.apply(entry.term, batch);
        let commands: BTreeMap<u64, &Command> = batch.commands.iter().map(|s| (s.seq, &s.command)).collect();
        let mut disagree = |text: String| findings.add(entry.at, format!("entry {}: {text}", entry.index));
        let seqs: Vec<u64> = real.outcomes.iter().map(|(seq, _)| *seq).collect();
        if seqs != naive.iter().map(|done| done.seq).collect::<Vec<_>>() {
            disagree(format!("meta_core settled the commands {seqs:?}, the model {:?}", naive.len()));
        }
        for ((seq, outcome), done) in real.outcomes.iter().zip(&naive) {
            if !agree(outcome, &done.outcome) {
                disagree(format!("command {seq}: meta_core says {outcome:?}, the model {:?}", done.outcome));
            }
        }
        let events: Vec<RevisionEvents> = naive.iter().flat_map(|done| done.events.clone()).collect();
        if events != real.events {
            disagree(format!("meta_core wrote {:?}, the model {events:?}", real.events));
        }
        if self.core.lease_time_ms() != self.model.leases.now_ms() {
            disagree("meta_core and the model differ in lease time".into());
        }
        for done in naive {
            let Some(command) = commands.get(&done.seq) else { continue };
            for events in &done.events {
                self.written.push((self.executed.len(), events.clone()));
            }
            self.executed.push(Executed {
                index: entry.index,
                term: entry.term,
                at: entry.at,
                origin: batch.origin,
                seq: done.seq,
                command: (*command).clone(),
                outcome: done.outcome,
                events: done.events,
                lease_time_ms: self.model.leases.now_ms(),
            });
        }
    }
}

/// Which of several refusals is named may differ, that it is refused may not.
fn agree(real: &Outcome, naive: &Outcome) -> bool {
    real.revision == naive.revision
        && match (&real.result, &naive.result) {
            (Ok(real), Ok(naive)) => real == naive,
            (Err(_), Err(_)) => true,
            _ => false,
        }
}
