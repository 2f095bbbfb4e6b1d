//! Looks at the cluster after every step: turns what each replica is into a view for the invariants, and keeps
//! every entry that was ever in a log.
//!
//! Consensus counts entries from 0; here, as in the invariants, they are counted from 1, and 0 is none.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use meta_raft::{Inspection, RaftHandle};
use meta_store::{Position, Wal};

use super::node::Node;
use super::trace::Trace;
use crate::invariants::{ClusterView, EntryMark, LogChange, ReplicaView};

/// What a replica had applied at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Index of the last entry.
    pub index: u64,
    /// The state's revision.
    pub revision: i64,
    /// The state's hash.
    pub hash: u64,
}

/// What is remembered of one replica between steps.
#[derive(Default)]
struct Seen {
    /// Its id, once it had one.
    id: u64,
    boot: u64,
    up: bool,
    entries: BTreeMap<u64, u64>,
    durable: u64,
    purged: u64,
    last_view: ReplicaView,
}

/// See the module.
#[derive(Default)]
pub struct Observer {
    seen: Vec<Seen>,
    /// Payloads by index and term.
    pub entries: BTreeMap<(u64, u64), Bytes>,
    /// States seen, by index.
    pub samples: BTreeMap<u64, Sample>,
    /// What is known to be committed anywhere: index and term.
    pub chosen: BTreeMap<u64, u64>,
    /// Elections seen: terms with a leader.
    pub leaders: BTreeMap<u64, u64>,
}

impl Observer {
    /// Of so many replicas.
    pub fn new(replicas: usize) -> Self {
        Self { seen: (0..replicas).map(|_| Seen::default()).collect(), ..Self::default() }
    }

    /// The cluster now.
    pub fn look(&mut self, at: Duration, nodes: &[Rc<Node>], trace: &mut Trace) -> ClusterView {
        let mut replicas = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            if let Some(view) = self.look_at(at, number, node, trace) {
                replicas.push(view);
            }
        }
        ClusterView { at, replicas, records: Vec::new() }
    }

    fn look_at(
        &mut self,
        at: Duration,
        number: usize,
        node: &Node,
        trace: &mut Trace,
    ) -> Option<ReplicaView> {
        let seen = &mut self.seen[number];
        let mut log_changes = Vec::new();
        let handle = node.handle();
        if seen.up && (handle.is_none() || seen.boot != node.boots()) {
            seen.up = false;
            log_changes.push(LogChange::Stopped);
        }
        let Some(handle) = handle else {
            seen.last_view.alive = false;
            seen.last_view.log_changes = log_changes;
            return (seen.id != 0).then(|| seen.last_view.clone());
        };
        let inspection = handle.inspect();
        seen.id = inspection.member_id;
        if !seen.up {
            seen.start(node.boots(), handle.log(), &mut self.entries, &mut log_changes);
        }
        seen.follow(handle.log(), &mut self.entries, &mut log_changes);
        let applied = number_of(handle.core().read().applied().map(|at| at.index));
        let committed = known_committed(&inspection, applied, seen.last());
        let offered = number_of(inspection.offered);
        // State, log, and what is known to be committed follow a peer's checkpoint one after the other.
        let covered = offered.max(number_of(inspection.checkpoint)) >= committed;
        let takes_over = offered > applied || (committed > seen.last() && covered);
        let jumped = seen.jumps(handle.log());
        seen.follow_purge(handle.log(), &mut log_changes);
        if jumped {
            // The jump is on disk: what follows it can be seen.
            seen.follow(handle.log(), &mut self.entries, &mut log_changes);
        }
        let now = if takes_over || seen.jumps(handle.log()) {
            // A peer's checkpoint replaced the log, which is not on disk yet: a power cut takes it back. The replica
            // counts as it was before, or as down if it was not up yet.
            let (incarnation, last_log) = (seen.boot, seen.last());
            let alive = seen.last_view.alive && seen.last_view.incarnation == seen.boot;
            ReplicaView { alive, incarnation, last_log, is_leader: false, ..seen.last_view.clone() }
        } else {
            let from = seen.last_view.committed.min(committed) + 1;
            self.chosen.extend(seen.entries.range(from..committed + 1));
            ReplicaView { committed, ..seen.view(&handle, &inspection) }
        };
        let view = ReplicaView { id: inspection.member_id, log_changes, ..now };
        self.note(at, &node.name, number, &view, trace);
        self.seen[number].last_view = view.clone();
        Some(view)
    }

    fn note(&mut self, at: Duration, name: &str, number: usize, view: &ReplicaView, trace: &mut Trace) {
        let seen = &self.seen[number];
        if view.leader != seen.last_view.leader || view.term != seen.last_view.term {
            trace.note(at, format_args!("{name} term {} leader {:?}", view.term, view.leader));
        }
        if view.is_leader {
            self.leaders.insert(view.term, view.id);
        }
        for change in &view.log_changes {
            trace.note(at, format_args!("{name} {}", in_short(change)));
        }
        if view.applied != seen.last_view.applied {
            trace.note(at, format_args!("{name} applied {} hash {:016x}", view.applied, view.state_hash));
        }
        let sample = Sample { index: view.applied, revision: view.revision, hash: view.state_hash };
        self.samples.entry(sample.index).or_insert(sample);
    }
}

impl Seen {
    /// A new process, and the log that it found.
    fn start(
        &mut self,
        boot: u64,
        log: &Wal,
        kept: &mut BTreeMap<(u64, u64), Bytes>,
        changes: &mut Vec<LogChange>,
    ) {
        self.up = true;
        self.boot = boot;
        let purged = log.durably_purged();
        self.purged = place(purged);
        self.durable = place(log.durable());
        self.entries.clear();
        let first = number_of(log.first_index()).max(1);
        let entries = (first..=self.durable).filter_map(|index| self.take(log, index, kept)).collect();
        changes.push(LogChange::Found { purged: (self.purged, purged.map_or(0, |at| at.term)), entries });
    }

    fn last(&self) -> u64 {
        self.entries.last_key_value().map_or(self.purged, |(last, _)| *last)
    }

    /// True if the log goes on beyond what was seen of it.
    fn jumps(&self, log: &Wal) -> bool {
        let kept_from = log.first_index().map_or(place(log.last()), |first| first) + 1;
        kept_from > self.last() + 1
    }

    /// Notes the entry at an index.
    fn take(&mut self, log: &Wal, index: u64, kept: &mut BTreeMap<(u64, u64), Bytes>) -> Option<EntryMark> {
        let raw = index - 1;
        let term = log.position(raw).filter(|_| log.first_index().is_some_and(|first| first <= raw))?.term;
        let payload = match kept.get(&(index, term)) {
            // Log matching is checked: two entries of an index and a term are one.
            Some(known) if log.read(raw..raw + 1).is_err() => known.clone(),
            _ => log.read(raw..raw + 1).ok()?.pop()?.payload,
        };
        let crc = crc32c::crc32c(&payload);
        kept.entry((index, term)).or_insert(payload);
        self.entries.insert(index, term);
        Some(EntryMark { index, term, crc })
    }

    /// What changed in the log since the last look.
    fn follow(&mut self, log: &Wal, kept: &mut BTreeMap<(u64, u64), Bytes>, changes: &mut Vec<LogChange>) {
        let last = place(log.last());
        let kept_from = log.first_index().map_or(last, |first| first) + 1;
        let same = |index: u64, term: u64| {
            index < kept_from || log.position(index - 1).is_some_and(|there| there.term == term)
        };
        let mut cut = self.replaced_from(log);
        if let Some(from) = cut {
            drop(self.entries.split_off(&from));
        }
        while let Some((&index, &term)) = self.entries.last_key_value()
            && !same(index, term)
        {
            self.entries.pop_last();
            cut = Some(index);
        }
        if let Some(from) = cut {
            self.durable = self.durable.min(from - 1);
            changes.push(LogChange::Truncated { from });
        }
        let next = self.last() + 1;
        // After a peer's checkpoint the log goes on further up, once that jump is on disk.
        let until = if self.jumps(log) { 0 } else { last };
        for index in next..=until {
            // A log that stopped is not read any more.
            let Some(mark) = self.take(log, index, kept) else { break };
            changes.push(LogChange::Appended(mark));
        }
        let durable = place(log.durable()).min(self.last());
        if durable > self.durable {
            self.durable = durable;
            changes.push(LogChange::Durable { up_to: durable });
        }
    }

    /// A peer's checkpoint over entries of another history: the log was cut down to what was committed, and the jump
    /// over the rest followed before anybody looked. Only the term of the entry it jumped to tells.
    fn replaced_from(&self, log: &Wal) -> Option<u64> {
        let purged = log.purged()?;
        let seen = self.entries.get(&place(Some(purged)))?;
        (*seen != purged.term).then_some(self.last_view.committed + 1)
    }

    /// Purged in memory is not purged yet: a power cut brings it back.
    fn follow_purge(&mut self, log: &Wal, changes: &mut Vec<LogChange>) {
        let purged = log.durably_purged();
        if place(purged) > self.purged {
            self.purged = place(purged);
            self.entries.retain(|index, _| *index > place(purged));
            changes.push(LogChange::Purged { up_to: self.purged, term: purged.map_or(0, |at| at.term) });
        }
    }

    /// Its vote. A replica that hears of the elected leader notes that one, whomever it had voted for.
    fn vote(&self, of: &Inspection) -> Option<u64> {
        if of.elected && of.voted_for != of.member_id {
            return self.last_view.vote.filter(|_| self.last_view.term == of.term);
        }
        (of.term > 0).then_some(of.voted_for)
    }

    fn view(&self, handle: &RaftHandle, of: &Inspection) -> ReplicaView {
        let core = handle.core();
        let core = core.read();
        let applied = number_of(core.applied().map(|at| at.index));
        ReplicaView {
            id: of.member_id,
            alive: true,
            incarnation: self.boot,
            term: of.term,
            durable_term: handle.log().durable_vote().map_or(0, |vote| vote.term),
            vote: self.vote(of),
            is_leader: of.leads,
            leader: of.leader,
            voters: of.voters.clone(),
            last_log: self.last(),
            applied,
            purged: self.purged,
            // A received one counts from its installation on.
            checkpoint: number_of(of.checkpoint).min(applied),
            revision: core.revision(),
            state_hash: core.state_hash(),
            lease_time_ms: core.lease_time_ms(),
            ..ReplicaView::default()
        }
    }
}

/// The last entry that a replica knows to be committed. What is applied was known to be; the published number may be a
/// moment behind. Where consensus ended on a disk that failed, it counted entries, or a peer's checkpoint, that were to
/// be written next: nobody was told of them, and they are gone with the process.
fn known_committed(of: &Inspection, applied: u64, last: u64) -> u64 {
    let committed = number_of(of.committed).max(applied);
    if of.ended { committed.min(last.max(applied)) } else { committed }
}

/// A change in one line.
fn in_short(change: &LogChange) -> String {
    match change {
        LogChange::Found { purged, entries } => {
            let crc = entries.iter().fold(0, |crc, mark| crc32c::crc32c_append(crc, &mark.crc.to_le_bytes()));
            let last = entries.last().map_or((0, 0), |last| (last.index, last.term));
            format!("found its log purged {purged:?} last {last:?} crc {crc:08x}")
        }
        LogChange::Appended(EntryMark { index, term, crc }) => {
            format!("appended {index} term {term} crc {crc:08x}")
        }
        other => format!("{other:?}"),
    }
}

/// The number of an entry, counted from 1, by its index.
pub fn number_of(index: Option<u64>) -> u64 {
    index.map_or(0, |index| index + 1)
}

fn place(position: Option<Position>) -> u64 {
    number_of(position.map(|position| position.index))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use meta_store::disk::MemDisk;
    use meta_store::{LogEntry, WalOptions};

    use super::*;

    #[test]
    fn a_replica_that_ended_knows_no_more_than_its_log_has() {
        let mut of = Inspection { committed: Some(155), ..Inspection::default() };
        assert_eq!(known_committed(&of, 119, 119), 156, "while it runs, its word counts");
        of.ended = true;
        assert_eq!(known_committed(&of, 119, 119), 119);
        assert_eq!(known_committed(&of, 140, 119), 140, "what is applied was committed");
        assert_eq!(known_committed(&of, 119, 170), 156);
    }

    /// Five entries of term 1, two of them committed; then a leader's checkpoint of term 2 replaces the rest.
    #[test]
    fn a_log_that_was_cut_and_jumped_between_two_looks_is_seen_as_cut() {
        for (term, cut) in [(2, true), (1, false)] {
            let disk = Arc::new(MemDisk::new());
            let (log, _) = Wal::open(disk, Path::new("/log"), WalOptions::default()).unwrap();
            let entry = |index| LogEntry { position: Position { term: 1, index }, payload: Bytes::new() };
            log.append((0..5).map(entry)).unwrap();
            log.sync().unwrap();
            let (mut kept, mut changes) = (BTreeMap::new(), Vec::new());
            let mut seen = Seen::default();
            seen.start(1, &log, &mut kept, &mut changes);
            seen.last_view.committed = 2;
            assert_eq!(seen.last(), 5);

            log.truncate_after(Some(1)).unwrap();
            log.purge(Position { term, index: 3 }).unwrap();
            log.sync().unwrap();
            changes.clear();
            seen.follow(&log, &mut kept, &mut changes);
            let found = changes.iter().find(|change| matches!(change, LogChange::Truncated { .. }));
            let from = if cut { 3 } else { 5 };
            assert_eq!(found, Some(&LogChange::Truncated { from }), "{changes:?}");
            assert_eq!(seen.jumps(&log), cut, "then it goes on above the checkpoint");
            seen.follow_purge(&log, &mut changes);
            assert_eq!(changes.last(), Some(&LogChange::Purged { up_to: 4, term }));
        }
    }
}
