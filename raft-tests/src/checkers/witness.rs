//! The revision witness: since every answer carries the store's revision, linearizability can be checked by looking
//! once at each call instead of searching for an order.
//!
//! 1. An answer's revision exists, and what it says is what the committed log makes of it: a read equals the replay
//!    at its revision, a write's answer equals the model's.
//! 2. If A returned before B was called, B's revision is not below A's, and above it if B wrote. Serializable reads
//!    may lag, but what they and watches have shown is seen by all later linearizable calls.
//! 3. If A returned before B was called, A's command is before B's in the log.
//! 4. After a compaction was acknowledged nothing below it is read; a revision is refused as a future one only
//!    while nobody has seen it.

use std::time::Duration;

use meta_types::{Op, OpReply, Refusal, Revision, Txn, TxnReply};

use super::matching::{Matching, is_reply};
use super::replay::Replay;
use super::{Finding, Findings};
use crate::history::{Failure, History, Input, Operation, Outcome, Reply, WatchWord};

/// Checks every call, see the module.
pub fn witness(replay: &Replay, history: &History, matching: &Matching) -> Vec<Finding> {
    let mut findings = Findings::of("witness");
    for (at, operation) in history.operations.iter().enumerate() {
        answers(replay, operation, matching.executed(at), &mut findings);
    }
    let mut sweep = Sweep {
        replay,
        history,
        matching,
        findings,
        seen: 1,
        seen_at: Duration::ZERO,
        compacted: 0,
        log: None,
    };
    sweep.run();
    sweep.findings.into_vec()
}

/// Rule 1.
fn answers(replay: &Replay, operation: &Operation, executed: Option<usize>, findings: &mut Findings) {
    let Outcome::Ok { revision, reply } = &operation.outcome else { return };
    if let Some(revision) = revision.filter(|revision| !(1..=replay.revision()).contains(revision)) {
        let text = format!("{} was answered at revision {revision}, which does not exist", operation.client);
        findings.add_as("phantom", operation.ret, text);
        return;
    }
    let is_right = match (&operation.input, reply, revision, executed) {
        (_, reply, _, Some(executed)) => match &replay.executed[executed].outcome.result {
            Ok(response) => is_reply(reply, response),
            // Asked again, "no such lease" is what was wanted.
            Err(error) => {
                *error == Refusal::LeaseNotFound && matches!(operation.input, Input::LeaseRevoke(_))
            }
        },
        (Input::Range(request), Reply::Range(is), Some(revision), None) => {
            request.revision <= *revision && *is == replay.model.keys.range(request, *revision)
        }
        (Input::Txn(txn), Reply::Txn(is), Some(revision), None) if txn.is_read_only() => {
            *is == read_txn(replay, txn, *revision)
        }
        // Leases have checks of their own; what is not matched was found lost already.
        _ => true,
    };
    if !is_right {
        let expected = expected(replay, operation, executed);
        let text = format!(
            "{} asked {:?} and was answered {reply:?} at revision {revision:?}, the log says {expected}",
            operation.client, operation.input
        );
        findings.add_as("wrong-answer", operation.ret, text);
    }
}

fn read_txn(replay: &Replay, txn: &Txn, revision: Revision) -> TxnReply {
    let keys = &replay.model.keys;
    let succeeded = txn.compare.iter().all(|compare| keys.holds(compare, revision));
    let branch = if succeeded { &txn.success } else { &txn.failure };
    let reply = |op: &Op| match op {
        Op::Range(request) => Some(OpReply::Range(keys.range(request, revision))),
        Op::Put(_) | Op::DeleteRange(_) => None,
    };
    TxnReply { succeeded, replies: branch.iter().filter_map(reply).collect() }
}

fn expected(replay: &Replay, operation: &Operation, executed: Option<usize>) -> String {
    let revision = operation.revision().unwrap_or(0);
    match (&operation.input, executed) {
        (_, Some(executed)) => format!("{:?}", replay.executed[executed].outcome),
        (Input::Range(request), None) => format!("{:?}", replay.model.keys.range(request, revision)),
        (Input::Txn(txn), None) => format!("{:?}", read_txn(replay, txn, revision)),
        _ => "otherwise".into(),
    }
}

/// True if the call promises to see everything that was acknowledged before it.
fn is_linearizable(input: &Input) -> bool {
    match input {
        Input::Range(request) => !request.serializable,
        Input::Txn(txn) => {
            let is_stale = |op: &Op| matches!(op, Op::Range(request) if request.serializable);
            let mut ops = txn.success.iter().chain(&txn.failure).peekable();
            ops.peek().is_none() || !ops.all(is_stale)
        }
        _ => true,
    }
}

/// Moments in order: what returned at a time was seen before what is called later, not before what is called then.
enum Moment {
    Called(usize),
    Returned(usize),
    Shown(Revision),
}

/// Goes through time once, remembering the most that anybody has seen.
struct Sweep<'a> {
    replay: &'a Replay,
    history: &'a History,
    matching: &'a Matching,
    findings: Findings,
    /// The highest revision seen by a call that returned, or by a watch.
    seen: Revision,
    /// When it was seen first.
    seen_at: Duration,
    /// The highest acknowledged compaction.
    compacted: Revision,
    /// The last command in the log of a call that returned.
    log: Option<usize>,
}

impl Sweep<'_> {
    fn run(&mut self) {
        let mut moments: Vec<(Duration, u8, Moment)> = Vec::new();
        for (at, operation) in self.history.operations.iter().enumerate() {
            moments.push((operation.call, 0, Moment::Called(at)));
            if let Some(ret) = operation.ret {
                moments.push((ret, 1, Moment::Returned(at)));
            }
        }
        for response in self.history.watches.iter().flat_map(|watch| &watch.responses) {
            if let WatchWord::Events { revision, .. } | WatchWord::Progress { revision } = &response.word {
                moments.push((response.at, 1, Moment::Shown(*revision)));
            }
        }
        moments.sort_by_key(|(at, order, _)| (*at, *order));
        for (now, _, moment) in moments {
            match moment {
                Moment::Called(at) => self.called(at),
                Moment::Returned(at) => self.returned(at),
                Moment::Shown(revision) => self.saw(revision, now),
            }
        }
    }

    fn saw(&mut self, revision: Revision, now: Duration) {
        if revision > self.seen {
            (self.seen, self.seen_at) = (revision, now);
        }
    }

    fn called(&mut self, at: usize) {
        let operation = &self.history.operations[at];
        let executed = self.matching.executed(at);
        self.revision_is_newer(operation, executed);
        if let (Some(executed), Some(log)) = (executed, self.log)
            && executed < log
        {
            let text = format!(
                "{:?} was called after {:?} had returned, but is before it in the log",
                operation.input, self.replay.executed[log].command
            );
            self.findings.add_as("real-time", operation.ret, text);
        }
        self.history_is_there(operation);
    }

    /// Rule 2.
    fn revision_is_newer(&mut self, operation: &Operation, executed: Option<usize>) {
        if !is_linearizable(&operation.input) {
            return;
        }
        let wrote = executed.is_some_and(|executed| !self.replay.executed[executed].events.is_empty());
        let of_log =
            executed.filter(|_| wrote).map(|executed| self.replay.executed[executed].outcome.revision);
        let Some(revision) = operation.revision().or(of_log) else { return };
        if revision < self.seen || (wrote && revision == self.seen) {
            let text = format!(
                "{} got revision {revision} at {:?}, after revision {} was seen at {:?}: {:?}",
                operation.client, operation.call, self.seen, self.seen_at, operation.input
            );
            self.findings.add_as("stale", operation.ret, text);
        }
    }

    /// Rule 4.
    fn history_is_there(&mut self, operation: &Operation) {
        let Input::Range(request) = &operation.input else { return };
        if request.serializable || request.revision <= 0 {
            return;
        }
        let asked = request.revision;
        let text = match &operation.outcome {
            Outcome::Ok { .. } if asked < self.compacted => {
                format!("revision {asked} was read after a compaction to {}", self.compacted)
            }
            Outcome::Failed(Failure::Compacted { compact_revision }) if asked >= *compact_revision => {
                format!("revision {asked} was refused as compacted to {compact_revision}")
            }
            Outcome::Failed(Failure::Compacted { compact_revision })
                if *compact_revision > self.replay.compacted() =>
            {
                format!(
                    "revision {asked} was refused as compacted, but nobody compacts to {compact_revision}"
                )
            }
            Outcome::Failed(Failure::Rejected { message, .. })
                if *message == Refusal::FutureRevision.to_string() && asked <= self.seen =>
            {
                format!("revision {asked} was refused as a future one after revision {} was seen", self.seen)
            }
            _ => return,
        };
        self.findings.add_as("history", operation.ret, text);
    }

    fn returned(&mut self, at: usize) {
        let operation = &self.history.operations[at];
        if let Some(revision) = operation.revision() {
            self.saw(revision, operation.ret.unwrap_or_default());
        }
        match (&operation.input, &operation.outcome) {
            (Input::Compact(revision), Outcome::Ok { .. }) => self.compacted = self.compacted.max(*revision),
            (_, Outcome::Ok { .. }) => {}
            (_, Outcome::Failed(_) | Outcome::Unknown) => return,
        }
        if let Some(executed) = self.matching.executed(at) {
            self.log = self.log.max(Some(executed));
        }
    }
}
