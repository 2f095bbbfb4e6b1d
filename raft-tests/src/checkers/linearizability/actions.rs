//! Calls, cut into actions on few keys, with the time in which each took effect.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use meta_types::{
    Command, Compare, DeleteRangeRequest, KeyRange, KeyValue, LeaseId, Op, OpReply, PutRequest, RangeReply,
    RangeRequest, Revision, SortOrder, Txn, TxnReply,
};

use crate::checkers::matching::Matching;
use crate::checkers::replay::{Executed, Replay};
use crate::history::{History, Input, Operation, Outcome, Reply};

/// Something that took effect at one moment between `call` and `ret`.
#[derive(Debug, Clone)]
pub struct Action {
    /// Not before.
    pub call: Duration,
    /// Not after; `None` = at any time, or never.
    pub ret: Option<Duration>,
    /// What it did.
    pub does: Does,
    /// The keys it touches or looks at.
    pub keys: BTreeSet<Bytes>,
    /// Where to try it first: by revision, reads after writes. A hint to the search, never a reason.
    pub hint: (Revision, bool),
}

/// What an action does.
#[derive(Debug, Clone)]
pub enum Does {
    /// The key was seen like this.
    Saw(Bytes, Option<Arc<KeyValue>>),
    /// A put; `saw` is the previous version if it was asked for and answered.
    Put { request: PutRequest, revision: Revision, saw: Option<Option<Arc<KeyValue>>> },
    /// A key is deleted if it is there; `was_there` if the answer tells.
    Delete { key: Bytes, was_there: Option<bool> },
    /// If the key hangs on the lease, it goes.
    DropLease { key: Bytes, lease: LeaseId },
    /// A transaction; `saw` = the answer, if there was one.
    Txn { txn: Box<Txn>, revision: Revision, saw: Option<Box<TxnReply>> },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, called at {:?}, returned at {:?}", self.does, self.call, self.ret)
    }
}

/// Every action of a history.
pub fn of(replay: &Replay, history: &History, matching: &Matching) -> Vec<Action> {
    let mut cutter = Cutter { universe: universe(replay, history), actions: Vec::new() };
    for operation in &history.operations {
        match operation.input.is_read() {
            true => cutter.read(operation),
            false => cutter.write(operation),
        }
    }
    cutter.of_the_log(replay, history, matching);
    cutter.actions
}

/// Every key that was ever written or named.
fn universe(replay: &Replay, history: &History) -> BTreeSet<Bytes> {
    let written = replay.events_from(0).flat_map(|events| events.events.iter());
    let mut keys: BTreeSet<Bytes> = written.map(|event| event.kv.key.clone()).collect();
    for operation in &history.operations {
        match &operation.input {
            Input::Range(request) if request.range.is_single() => keys.extend([request.range.key.clone()]),
            Input::Put(request) => keys.extend([request.key.clone()]),
            Input::DeleteRange(request) if request.range.is_single() => {
                keys.extend([request.range.key.clone()])
            }
            Input::Txn(txn) => {
                let ranges = txn.compare.iter().map(|compare| &compare.range);
                keys.extend(ranges.filter(|range| range.is_single()).map(|range| range.key.clone()));
            }
            _ => {}
        }
    }
    keys
}

/// From when to when.
type Span = (Duration, Option<Duration>);

struct Cutter {
    universe: BTreeSet<Bytes>,
    actions: Vec<Action>,
}

impl Cutter {
    fn add(&mut self, (call, ret): Span, revision: Revision, does: Does) {
        let keys = match &does {
            Does::Saw(key, _) | Does::Delete { key, .. } | Does::DropLease { key, .. } => {
                [key.clone()].into()
            }
            Does::Put { request, .. } => [request.key.clone()].into(),
            Does::Txn { txn, .. } => self.keys_of(txn),
        };
        let hint = (revision, matches!(does, Does::Saw(..)));
        self.actions.push(Action { call, ret, does, keys, hint });
    }

    fn within(&self, range: &KeyRange) -> Vec<Bytes> {
        if range.is_single() {
            return vec![range.key.clone()];
        }
        self.universe.iter().filter(|key| range.contains(key)).cloned().collect()
    }

    fn keys_of(&self, txn: &Txn) -> BTreeSet<Bytes> {
        let compares = txn.compare.iter().map(|Compare { range, .. }| range.clone());
        let ops = txn.success.iter().chain(&txn.failure).map(|op| match op {
            Op::Range(RangeRequest { range, .. }) | Op::DeleteRange(DeleteRangeRequest { range, .. }) => {
                range.clone()
            }
            Op::Put(PutRequest { key, .. }) => KeyRange::one(key.clone()),
        });
        compares.chain(ops).flat_map(|range| self.within(&range)).collect()
    }

    /// An acknowledged write, also one that the log does not have.
    fn write(&mut self, operation: &Operation) {
        let Outcome::Ok { revision: Some(revision), reply } = &operation.outcome else { return };
        let (revision, span) = (*revision, (operation.call, operation.ret));
        match (&operation.input, reply) {
            (Input::Put(request), Reply::Put(reply)) => {
                let saw = request.prev_kv.then(|| reply.prev_kv.clone());
                self.add(span, revision, Does::Put { request: request.clone(), revision, saw });
            }
            (Input::DeleteRange(request), Reply::DeleteRange(reply)) => {
                for key in self.within(&request.range) {
                    let single = request.range.is_single().then_some(reply.deleted > 0);
                    let seen = reply.prev_kvs.iter().any(|kv| kv.key == key);
                    let was_there = if request.prev_kv { Some(seen) } else { single };
                    self.add(span, revision, Does::Delete { key, was_there });
                }
            }
            (Input::Txn(txn), Reply::Txn(reply)) => {
                let does =
                    Does::Txn { txn: Box::new(txn.clone()), revision, saw: Some(Box::new(reply.clone())) };
                self.add(span, revision, does);
            }
            _ => {}
        }
    }

    /// A call that only looks.
    fn read(&mut self, operation: &Operation) {
        let Outcome::Ok { revision: Some(revision), reply } = &operation.outcome else { return };
        let (revision, span) = (*revision, (operation.call, operation.ret));
        match (&operation.input, reply) {
            (Input::Range(request), Reply::Range(reply)) => {
                for does in self.seen(request, reply) {
                    self.add(span, revision, does);
                }
            }
            (Input::Txn(txn), Reply::Txn(reply)) if txn.is_read_only() && txn.compare.is_empty() => {
                for (op, reply) in txn.success.iter().zip(&reply.replies) {
                    if let (Op::Range(request), OpReply::Range(reply)) = (op, reply) {
                        for does in self.seen(request, reply) {
                            self.add(span, revision, does);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// What a range's answer says of each key. Reads of the past and stale ones say nothing of the present.
    fn seen(&self, request: &RangeRequest, reply: &RangeReply) -> Vec<Does> {
        if request.serializable || request.revision > 0 || request.keys_only || request.count_only {
            return Vec::new();
        }
        let plain =
            RangeRequest { range: request.range.clone(), limit: request.limit, ..RangeRequest::default() };
        let sorted = RangeRequest { sort_order: SortOrder::Ascend, ..plain.clone() };
        let tells_absence = (*request == plain || *request == sorted) && !reply.more;
        let mut seen: Vec<Does> =
            reply.kvs.iter().map(|kv| Does::Saw(kv.key.clone(), Some(kv.clone()))).collect();
        if tells_absence {
            let there: BTreeSet<&Bytes> = reply.kvs.iter().map(|kv| &kv.key).collect();
            let absent = self.within(&request.range).into_iter().filter(|key| !there.contains(key));
            seen.extend(absent.map(|key| Does::Saw(key, None)));
        }
        seen
    }

    /// What no answered call did, but the log: unknown writes, revocations, leases that ran out. They took effect
    /// after the calls of all commands before them in the log, and before the returns of all after them.
    fn of_the_log(&mut self, replay: &Replay, history: &History, matching: &Matching) {
        let bounds = bounds(replay, history, matching);
        for (at, executed) in replay.executed.iter().enumerate() {
            let operation = matching.operation(at).map(|operation| &history.operations[operation]);
            if executed.outcome.result.is_err() {
                continue;
            }
            let (low, high) = bounds[at];
            let span = match operation {
                Some(operation) => {
                    (low.max(operation.call), operation.ret.filter(|_| operation.is_ok()).or(high))
                }
                None => (low, high),
            };
            let revision = executed.outcome.revision;
            let is_answered = operation.is_some_and(Operation::is_ok);
            match &executed.command {
                Command::LeaseExpire { .. } | Command::LeaseRevoke { .. } => self.dropped(executed, span),
                _ if is_answered => {}
                Command::Put(request) => {
                    self.add(span, revision, Does::Put { request: request.clone(), revision, saw: None })
                }
                Command::DeleteRange(request) => {
                    for key in self.within(&request.range) {
                        self.add(span, revision, Does::Delete { key, was_there: None });
                    }
                }
                Command::Txn(txn) => {
                    self.add(span, revision, Does::Txn { txn: Box::new(txn.clone()), revision, saw: None })
                }
                _ => {}
            }
        }
    }

    fn dropped(&mut self, executed: &Executed, span: Span) {
        let events = executed.events.iter().flat_map(|events| events.events.iter());
        for event in events {
            let Some(prev) = &event.prev else { continue };
            let does = Does::DropLease { key: prev.key.clone(), lease: prev.lease };
            self.add(span, event.kv.mod_revision, does);
        }
    }
}

/// For each command: the latest call of those up to it, and the earliest return of those from it on.
fn bounds(replay: &Replay, history: &History, matching: &Matching) -> Vec<(Duration, Option<Duration>)> {
    let answered = |at: usize| {
        let operation = &history.operations[matching.operation(at)?];
        operation.is_ok().then_some((operation.call, operation.ret?))
    };
    let mut low = Duration::ZERO;
    let mut bounds: Vec<(Duration, Option<Duration>)> = Vec::new();
    for at in 0..replay.executed.len() {
        low = answered(at).map_or(low, |(call, _)| low.max(call));
        bounds.push((low, None));
    }
    let mut high: Option<Duration> = None;
    for at in (0..replay.executed.len()).rev() {
        if let Some((_, ret)) = answered(at) {
            high = Some(high.map_or(ret, |high| high.min(ret)));
        }
        bounds[at].1 = high;
    }
    bounds
}
