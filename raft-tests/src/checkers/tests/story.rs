//! A correct store made up by hand, and the history that its clients have of it. A test tells what happens, and then
//! spoils the log or the history.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use meta_client::WatchRequest;
use meta_types::{
    Batch, Command, DeleteRangeRequest, Event, KeyRange, LeaseId, LeaseStamp, Op, Origin, PutRequest,
    RangeRequest, Refusal, Response, Revision, Sequenced, Txn,
};

use crate::checkers::model::Model;
use crate::checkers::{
    Evidence, Figures, FinalState, Finding, LeaseRules, Limits, LogEntry, Recorded, Replay, check_all,
};
use crate::history::{
    Failure, History, Input, Operation, Outcome, Reply, WatchHistory, WatchResponse, WatchWord,
};

const ORIGIN: Origin = Origin { member: 1, boot: 11 };

/// The store and its clients.
#[derive(Clone)]
pub struct Story {
    pub log: Vec<LogEntry>,
    pub history: History,
    pub now: Duration,
    pub term: u64,
    pub model: Model,
    pub limits: Limits,
    seq: u64,
}

pub fn put(key: &str, value: &str) -> Input {
    Input::Put(PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..PutRequest::default()
    })
}

pub fn put_leased(key: &str, value: &str, lease: LeaseId) -> Input {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    Input::Put(PutRequest { key, value, lease, ..PutRequest::default() })
}

pub fn get(key: &str) -> Input {
    Input::Range(RangeRequest::get(key.to_owned()))
}

pub fn list(prefix: &str) -> Input {
    Input::Range(RangeRequest::prefix(prefix.to_owned()))
}

pub fn delete(key: &str) -> Input {
    Input::DeleteRange(DeleteRangeRequest { range: KeyRange::one(key.to_owned()), prev_kv: false })
}

/// Puts `value` if the key was last written at `revision`, else reads it.
pub fn swap(key: &str, revision: Revision, value: &str) -> Input {
    Input::Txn(Txn {
        compare: vec![meta_types::Compare::unchanged(key.to_owned(), revision)],
        success: vec![Op::put(key.to_owned(), value.to_owned())],
        failure: vec![Op::get(key.to_owned())],
    })
}

impl Story {
    pub fn new() -> Self {
        let mut story = Self {
            log: Vec::new(),
            history: History::default(),
            now: Duration::from_secs(1),
            term: 1,
            model: Model::default(),
            limits: Limits::default(),
            seq: 0,
        };
        story.append(None);
        story.commit(Command::RegisterOrigin);
        story
    }

    pub fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn append(&mut self, batch: Option<Batch>) {
        let index = self.log.len() as u64 + 1;
        self.log.push(LogEntry { index, term: self.term, at: Some(self.now), batch });
    }

    /// Commits a command now.
    pub fn commit(&mut self, command: Command) -> meta_types::Outcome {
        self.seq += 1;
        let stamp = LeaseStamp { term: self.term, lease_time_ms: self.now.as_millis() as u64 };
        let commands = vec![Sequenced { seq: self.seq, command }];
        let batch = Batch { origin: ORIGIN, low_water: 0, stamp: Some(stamp), commands };
        let done = self.model.apply(self.term, &batch);
        self.append(Some(batch));
        done.into_iter().next().expect("a new number is executed").outcome
    }

    /// Another leader takes over.
    pub fn elect(&mut self) {
        self.term += 1;
        self.append(None);
    }

    /// Time passes as in a store with leases: something is committed every half second, and what is due goes.
    pub fn live(&mut self, ms: u64) {
        for _ in 0..ms / 500 {
            self.pass(500);
            self.commit(Command::LeaseTick);
            let ids = (1..=9).filter(|id| {
                self.model
                    .leases
                    .standing(*id)
                    .is_some_and(|lease| lease.due_ms <= self.model.leases.now_ms())
            });
            let ids: Vec<LeaseId> = ids.collect();
            if !ids.is_empty() {
                self.commit(Command::LeaseExpire { term: self.term, ids });
            }
        }
    }

    pub fn revision(&self) -> Revision {
        self.model.keys.revision()
    }

    /// A call that has not returned: unknown, unless its return is told.
    pub fn call(&mut self, client: u64, input: Input) -> usize {
        let operation = Operation { client, call: self.now, ret: None, input, outcome: Outcome::Unknown };
        self.history.operations.push(operation);
        self.history.operations.len() - 1
    }

    /// The store does what a call asks for, now.
    pub fn carry_out(&mut self, at: usize) -> Outcome {
        let input = self.history.operations[at].input.clone();
        let command = match input {
            Input::Range(request) => {
                let reply = Reply::Range(self.model.keys.range(&request, self.revision()));
                return Outcome::Ok { revision: Some(self.revision()), reply };
            }
            Input::LeaseTimeToLive(id) => {
                let now = self.model.leases.now_ms();
                let left =
                    self.model.leases.standing(id).map(|lease| lease.due_ms.saturating_sub(now) / 1000);
                let reply = Reply::LeaseTimeToLive(left.map(Duration::from_secs));
                return Outcome::Ok { revision: None, reply };
            }
            Input::Put(request) => Command::Put(request),
            Input::DeleteRange(request) => Command::DeleteRange(request),
            Input::Txn(txn) => Command::Txn(txn),
            Input::Compact(revision) => Command::Compact(revision),
            Input::LeaseGrant { id, ttl } => Command::LeaseGrant { id, ttl: ttl.as_secs() as i64 },
            Input::LeaseKeepAlive(id) => Command::LeaseKeepAlive { ids: vec![id] },
            Input::LeaseRevoke(id) => Command::LeaseRevoke { id },
        };
        let told = matches!(command, Command::Put(_) | Command::DeleteRange(_) | Command::Txn(_));
        let outcome = self.commit(command.clone());
        let reply = match outcome.result {
            Ok(Response::Done) => Reply::Done,
            Ok(Response::Put(reply)) => Reply::Put(reply),
            Ok(Response::DeleteRange(reply)) => Reply::DeleteRange(reply),
            Ok(Response::Txn(reply)) => Reply::Txn(reply),
            Ok(Response::LeaseGrant { id, ttl }) => {
                Reply::LeaseGrant { id, ttl: Duration::from_secs(ttl as u64) }
            }
            Ok(Response::LeaseKeepAlive { ttls }) => {
                Reply::LeaseKeepAlive((ttls[0] > 0).then(|| Duration::from_secs(ttls[0] as u64)))
            }
            Err(Refusal::Compacted { compact_revision }) => {
                return Outcome::Failed(Failure::Compacted { compact_revision });
            }
            Err(refusal) => {
                return Outcome::Failed(Failure::Rejected { code: 5, message: refusal.to_string() });
            }
        };
        Outcome::Ok { revision: told.then_some(outcome.revision), reply }
    }

    /// A call returns, now.
    pub fn ret(&mut self, at: usize, outcome: Outcome) {
        let operation = &mut self.history.operations[at];
        (operation.ret, operation.outcome) = (Some(self.now), outcome);
    }

    /// A whole call: a millisecond each until it is carried out, until it returns, and after it.
    pub fn does(&mut self, client: u64, input: Input) -> usize {
        let at = self.call(client, input);
        self.pass(1);
        let outcome = self.carry_out(at);
        self.pass(1);
        self.ret(at, outcome);
        self.pass(1);
        at
    }

    /// A watch that is created now; its events come with [`Story::deliver`].
    pub fn watch(&mut self, client: u64, prefix: &str, start_revision: Revision) -> usize {
        let range = KeyRange::prefix(prefix.to_owned());
        let request = WatchRequest { range, start_revision, prev_kv: true };
        let created = Some((self.now, self.revision()));
        self.history.watches.push(WatchHistory {
            client,
            asked: self.now,
            request,
            created,
            responses: Vec::new(),
        });
        self.history.watches.len() - 1
    }

    /// Everything comes, a response for each revision, and a word of progress.
    pub fn deliver(&mut self, at: usize) {
        let replay = Replay::of(&self.log);
        let revision = self.revision();
        let watch = &mut self.history.watches[at];
        let first = watch.first_revision().expect("the watch was created");
        for written in replay.events_from(first) {
            let events = written.events.iter().filter(|event| watch.request.range.contains(&event.kv.key));
            let events: Vec<Event> = events.cloned().collect();
            if !events.is_empty() {
                let word = WatchWord::Events { revision: written.revision, events };
                watch.responses.push(WatchResponse { at: self.now, word });
            }
        }
        watch.responses.push(WatchResponse { at: self.now, word: WatchWord::Progress { revision } });
    }

    /// The operation, to be spoilt.
    pub fn operation(&mut self, at: usize) -> &mut Operation {
        &mut self.history.operations[at]
    }

    /// What every replica holds at the end.
    pub fn finals(&self) -> Vec<FinalState> {
        let replay = Replay::of(&self.log);
        let (revision, hash) = *replay.hashes.last().expect("the log is not empty");
        let state =
            |replica| FinalState { replica, applied: replay.last_index, revision, hash, recomputed: hash };
        (1..=3).map(state).collect()
    }

    /// Runs every checker.
    pub fn check(&self) -> (Figures, Vec<Finding>) {
        check_all(&Evidence {
            log: &self.log,
            history: &self.history,
            finals: &self.finals(),
            recorded: Recorded::All,
            lease_rules: LeaseRules { slack: Duration::ZERO, end: Some(self.now) },
            limits: self.limits,
        })
    }

    #[track_caller]
    pub fn is_fine(&self) -> Figures {
        let (figures, found) = self.check();
        assert_eq!(found, []);
        figures
    }

    /// Expects a finding of each of these names and none of another.
    #[track_caller]
    pub fn is_found(&self, names: &[&str]) {
        let (_, found) = self.check();
        let found_names: BTreeSet<&str> = found.iter().map(|finding| finding.name).collect();
        assert_eq!(found_names, names.iter().copied().collect(), "{found:#?}");
    }
}

/// The reply of a range, to be spoilt.
pub fn range_reply(operation: &mut Operation) -> &mut meta_types::RangeReply {
    match &mut operation.outcome {
        Outcome::Ok { reply: Reply::Range(reply), .. } => reply,
        other => panic!("not the answer of a range: {other:?}"),
    }
}

/// The header's revision, to be spoilt.
pub fn header(operation: &mut Operation) -> &mut Revision {
    match &mut operation.outcome {
        Outcome::Ok { revision: Some(revision), .. } => revision,
        other => panic!("no revision in {other:?}"),
    }
}

/// Changes one key-value.
pub fn change(kv: &mut Arc<meta_types::KeyValue>, how: impl FnOnce(&mut meta_types::KeyValue)) {
    let mut changed = (**kv).clone();
    how(&mut changed);
    *kv = Arc::new(changed);
}
