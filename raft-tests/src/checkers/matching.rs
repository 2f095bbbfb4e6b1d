//! Which call is which command of the committed log.
//!
//! An acknowledged write has to be there exactly once, with its revision. A write of unknown outcome is there or
//! not, which settles it. A failed one is not there. A command that nobody asked for must not be there. Commands are
//! told apart by what they say, so workloads write unique values; where several are alike (two deletes of one key),
//! the earlier call is the earlier command.

use std::collections::BTreeMap;

use meta_types::codec::encode_body;
use meta_types::{Command, LeaseId, Refusal, Response};

use super::replay::{Executed, Replay};
use super::{Finding, Findings};
use crate::history::{Failure, History, Input, Operation, Outcome, Reply};

/// Whether the history has the calls of everybody who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It has.
    All,
    /// Others wrote too (a dispatcher): what nobody in the history asked for may be theirs.
    Some,
}

/// Calls and commands, see the module.
pub struct Matching {
    of_operation: Vec<Option<usize>>,
    of_executed: Vec<Option<usize>>,
    /// What is lost, doubled, made up, or not as it was acknowledged.
    pub findings: Vec<Finding>,
}

/// Calls and commands that say the same.
#[derive(Default)]
struct Alike {
    operations: Vec<usize>,
    executed: Vec<usize>,
}

impl Matching {
    /// Finds each call's command.
    pub fn of(replay: &Replay, history: &History, recorded: Recorded) -> Self {
        let mut groups: BTreeMap<Vec<u8>, Alike> = BTreeMap::new();
        for (at, operation) in history.operations.iter().enumerate() {
            if let Some(command) = command_of(operation) {
                groups.entry(says(&command)).or_default().operations.push(at);
            }
        }
        for (at, executed) in replay.executed.iter().enumerate() {
            if is_clients(&executed.command) {
                groups.entry(says(&executed.command)).or_default().executed.push(at);
            }
        }
        let mut matcher = Matcher {
            replay,
            history,
            recorded,
            of_operation: vec![None; history.operations.len()],
            of_executed: vec![None; replay.executed.len()],
            findings: Findings::of("committed-once"),
        };
        groups.values().for_each(|alike| matcher.settle(alike));
        let Matcher { of_operation, of_executed, findings, .. } = matcher;
        Self { of_operation, of_executed, findings: findings.into_vec() }
    }

    /// The command of a call, as an index of [`Replay::executed`].
    pub fn executed(&self, operation: usize) -> Option<usize> {
        self.of_operation.get(operation).copied().flatten()
    }

    /// The call of a command, as an index of the history's operations.
    pub fn operation(&self, executed: usize) -> Option<usize> {
        self.of_executed.get(executed).copied().flatten()
    }
}

struct Matcher<'a> {
    replay: &'a Replay,
    history: &'a History,
    recorded: Recorded,
    of_operation: Vec<Option<usize>>,
    of_executed: Vec<Option<usize>>,
    findings: Findings,
}

impl Matcher<'_> {
    /// Gives each command, in the order of the log, the call that has to return first of those it can be of; a call
    /// of unknown outcome only if there is no other.
    fn settle(&mut self, alike: &Alike) {
        for executed in alike.executed.iter().copied() {
            let step = &self.replay.executed[executed];
            let operations = &self.history.operations;
            let is_free = |at: &usize| {
                self.of_operation[*at].is_none() && step.at.is_none_or(|known| operations[*at].call <= known)
            };
            let free = || alike.operations.iter().copied().filter(is_free);
            let answered = free().filter(|at| is_answered_by(&operations[*at], step));
            let unknown = || free().filter(|at| operations[*at].is_unknown() && step.outcome.result.is_ok());
            let chosen = answered
                .min_by_key(|at| operations[*at].ret)
                .or_else(|| unknown().min_by_key(|at| operations[*at].call));
            if let Some(operation) = chosen {
                self.pair(operation, executed);
            }
        }
        for at in alike.operations.iter().copied() {
            if self.of_operation[at].is_none() && self.history.operations[at].is_ok() {
                self.not_as_acknowledged(at, &alike.executed);
            }
        }
        for executed in alike.executed.iter().copied() {
            if self.of_executed[executed].is_none() && self.replay.executed[executed].outcome.result.is_ok() {
                self.unasked(executed, alike);
            }
        }
    }

    fn pair(&mut self, operation: usize, executed: usize) {
        self.of_operation[operation] = Some(executed);
        self.of_executed[executed] = Some(operation);
    }

    /// An acknowledged call for which there is no command that answers it as it was answered. One that says the same
    /// is taken for it nevertheless, so that what differs is told, and told once.
    fn not_as_acknowledged(&mut self, at: usize, among: &[usize]) {
        let operation = &self.history.operations[at];
        let revision = operation.revision();
        let is_free = |executed: &&usize| {
            self.of_executed[**executed].is_none() && self.replay.executed[**executed].outcome.result.is_ok()
        };
        let at_revision =
            |executed: &&usize| Some(self.replay.executed[**executed].outcome.revision) == revision;
        let said =
            format!("{} acknowledged {:?} at revision {revision:?}", operation.client, operation.input);
        let free = || among.iter().filter(is_free);
        if let Some(executed) = free().find(at_revision).copied() {
            self.pair(at, executed);
        } else if let Some(executed) = free().next().copied() {
            let is = self.replay.executed[executed].outcome.revision;
            self.findings.add_as("wrong-revision", operation.ret, format!("{said}, the log has it at {is}"));
            self.pair(at, executed);
        } else {
            let instead = revision.and_then(|revision| self.replay.writer(revision));
            let instead = instead.map(|writer| &self.replay.executed[writer].command);
            let text = format!("{said}, which the log does not have; there it has {instead:?}");
            self.findings.add_as("lost", operation.ret, text);
        }
    }

    /// A committed command that no acknowledged or unknown call accounts for.
    fn unasked(&mut self, executed: usize, alike: &Alike) {
        let step = &self.replay.executed[executed];
        let operations = &self.history.operations;
        let denied = alike.operations.iter().find(|at| {
            matches!(operations[**at].outcome, Outcome::Failed(_)) && self.of_operation[**at].is_none()
        });
        let (name, why) = match denied {
            Some(at) => {
                ("denied", format!("{} was told that it was not carried out", operations[*at].client))
            }
            None if self.is_repeated_grant(alike) => return,
            None if !alike.operations.is_empty() => ("duplicated", "more often than it was asked for".into()),
            None if self.takes_unnamed_grant(executed) => return,
            None if self.recorded == Recorded::Some || matches!(step.command, Command::Compact(_)) => return,
            None => ("phantom", "nobody asked for it".into()),
        };
        let text = format!("{name}: entry {} executed {:?}: {why}", step.index, step.command);
        self.findings.add_as(name, step.at, text);
    }

    /// A grant that was asked again because nobody answered, after the lease of the first try had ended: a client
    /// that leaves the id to chance takes one id for all its tries, and a lease that stands refuses the next try. Of
    /// an ended lease that was never told to anyone nothing can be seen.
    fn is_repeated_grant(&self, alike: &Alike) -> bool {
        let operations = alike.executed.iter().filter_map(|executed| self.of_executed[*executed]);
        operations
            .map(|operation| &self.history.operations[operation].input)
            .any(|input| matches!(input, Input::LeaseGrant { id: 0, .. }))
    }

    /// A grant whose id the store chose and whose answer never came. Of those called before it was committed the
    /// last one, so that those called earlier are left for commands that are earlier.
    fn takes_unnamed_grant(&mut self, executed: usize) -> bool {
        let step = &self.replay.executed[executed];
        let Command::LeaseGrant { .. } = step.command else { return false };
        let unnamed = |at: &usize| {
            let operation = &self.history.operations[*at];
            let asked = matches!(operation.input, Input::LeaseGrant { id: 0, .. });
            let before = step.at.is_none_or(|known| operation.call <= known);
            asked && before && operation.is_unknown() && self.of_operation[*at].is_none()
        };
        let unnamed = (0..self.history.operations.len()).filter(unnamed);
        let last = unnamed.max_by_key(|at| self.history.operations[*at].call);
        let Some(operation) = last else { return false };
        self.pair(operation, executed);
        true
    }
}

/// True if a command gave a call the answer it got.
fn is_answered_by(operation: &Operation, step: &Executed) -> bool {
    match (&operation.outcome, &step.outcome.result) {
        (Outcome::Ok { revision, reply }, Ok(response)) => {
            revision.is_none_or(|revision| revision == step.outcome.revision) && is_reply(reply, response)
        }
        (Outcome::Failed(Failure::Rejected { .. } | Failure::Compacted { .. }), Err(_)) => true,
        // A client that asked again takes "no such lease" for success: gone is what it wanted.
        (Outcome::Ok { .. }, Err(error)) => {
            *error == Refusal::LeaseNotFound && matches!(step.command, Command::LeaseRevoke { .. })
        }
        _ => false,
    }
}

/// True for commands that clients ask for one by one. Renewals of many are put together by the server.
fn is_clients(command: &Command) -> bool {
    match command {
        Command::Put(_)
        | Command::DeleteRange(_)
        | Command::Txn(_)
        | Command::Compact(_)
        | Command::LeaseGrant { .. }
        | Command::LeaseRevoke { .. } => true,
        Command::RegisterOrigin
        | Command::LeaseKeepAlive { .. }
        | Command::LeaseExpire { .. }
        | Command::LeaseTick
        | Command::SetCluster { .. } => false,
    }
}

/// The command that a call becomes in the log, if it becomes one that can be told.
fn command_of(operation: &Operation) -> Option<Command> {
    match &operation.input {
        Input::Put(request) => Some(Command::Put(request.clone())),
        Input::DeleteRange(request) => Some(Command::DeleteRange(request.clone())),
        Input::Txn(txn) if !txn.is_read_only() => Some(Command::Txn(txn.clone())),
        Input::Compact(revision) => Some(Command::Compact(*revision)),
        Input::LeaseGrant { id, .. } => Some(Command::LeaseGrant { id: granted(operation, *id)?, ttl: 0 }),
        Input::LeaseRevoke(id) => Some(Command::LeaseRevoke { id: *id }),
        Input::Range(_) | Input::Txn(_) | Input::LeaseKeepAlive(_) | Input::LeaseTimeToLive(_) => None,
    }
}

fn granted(operation: &Operation, asked: LeaseId) -> Option<LeaseId> {
    match &operation.outcome {
        Outcome::Ok { reply: Reply::LeaseGrant { id, .. }, .. } => Some(*id),
        _ => (asked != 0).then_some(asked),
    }
}

/// What a command says, so that equal ones can be found. A lease is told by its id: its TTL may have been raised.
fn says(command: &Command) -> Vec<u8> {
    let told = match command {
        Command::LeaseGrant { id, .. } => Command::LeaseGrant { id: *id, ttl: 0 },
        other => other.clone(),
    };
    encode_body(&told).expect("a command can be encoded")
}

/// True if a reply is what the model answered.
pub(super) fn is_reply(reply: &Reply, response: &Response) -> bool {
    match (reply, response) {
        (Reply::Put(is), Response::Put(expected)) => is == expected,
        (Reply::DeleteRange(is), Response::DeleteRange(expected)) => is == expected,
        (Reply::Txn(is), Response::Txn(expected)) => is == expected,
        (Reply::LeaseGrant { id, ttl }, Response::LeaseGrant { id: expected, ttl: expected_s }) => {
            id == expected && i64::try_from(ttl.as_secs()) == Ok(*expected_s)
        }
        (Reply::Done, Response::Done) => true,
        _ => false,
    }
}
