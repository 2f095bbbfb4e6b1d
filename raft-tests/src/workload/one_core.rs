//! A store without Raft: the real state machine behind `Kv`, with the log that the checkers want, and a network
//! that takes its time and loses requests and answers as the seed says. What the workload's own tests run on, and
//! what shows in seconds whether a bug of the domain is caught.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use meta_api::status::{ErrorClass, classify, refusal_to_status};
use meta_client::{Kv, KvError, LeaseGranted, Revisioned, WatchBatch, WatchRequest, Watcher};
use meta_core::{Core, EntryPosition, Snapshot};
use meta_types::{
    Batch, Command, DeleteRangeReply, DeleteRangeRequest, Event, LeaseId, LeaseStamp, Origin, PutReply,
    PutRequest, RangeReply, RangeRequest, Refusal, Response, Revision, Sequenced, Txn, TxnReply,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::env::Chance;
use crate::checkers::LogEntry;
use crate::history::Clock;

const ORIGIN: Origin = Origin { member: 1, boot: 1 };
const TERM: u64 = 1;
/// How often leases are looked at.
const LEASE_DUTY: Duration = Duration::from_millis(250);
/// Way of a request, and of an answer.
const WAY: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(6));
/// How late a late request is.
const LATE: Duration = Duration::from_millis(900);
/// What a client waits for an answer that is lost.
const DEADLINE: Duration = Duration::from_secs(2);
/// So many states a stale read may come from.
const STALE: usize = 30;
/// Revisions a watch reads at a time.
const STEP: usize = 64;

/// The store. Clones share it.
#[derive(Clone)]
pub struct OneCore {
    state: Arc<Mutex<State>>,
    /// Wakes watches in the order in which they wait; a `watch` channel would wake them in any.
    written: Arc<Notify>,
    clock: Clock,
}

struct State {
    core: Core,
    log: Vec<LogEntry>,
    seq: u64,
    chance: Chance,
    /// One request in so many meets with an accident.
    accidents: usize,
    stale: VecDeque<Snapshot>,
    records: Vec<records::View>,
}

/// What becomes of a write on its way.
enum Way {
    Through,
    NotSent,
    RequestLost,
    AnswerLost,
    Late,
}

impl OneCore {
    /// An empty store; one write in `accidents` goes wrong, none for 0.
    pub fn new(clock: Clock, chance: Chance, accidents: usize) -> Self {
        let core = Core::new();
        let stale = VecDeque::from([core.snapshot()]);
        let state = State { core, log: vec![], seq: 0, chance, accidents, stale, records: vec![] };
        let one = Self { state: Arc::new(Mutex::new(state)), written: Arc::default(), clock };
        let registered = one.apply(Command::RegisterOrigin);
        debug_assert!(registered.is_ok(), "the first command of an origin registers it");
        one
    }

    /// Revokes what is due; never ends.
    pub async fn lease_duty(&self) {
        loop {
            tokio::time::sleep(LEASE_DUTY).await;
            let (any, ids) = {
                let core = &self.state.lock().core;
                (!core.leases().is_empty(), core.due_leases(100))
            };
            let command = match (any, ids.is_empty()) {
                (false, _) => continue,
                (true, true) => Command::LeaseTick,
                (true, false) => Command::LeaseExpire { term: TERM, ids },
            };
            // Neither is ever refused.
            let _ = self.apply(command);
        }
    }

    /// The log so far.
    pub fn log(&self) -> Vec<LogEntry> {
        self.state.lock().log.clone()
    }

    /// The domain's records after each change of them.
    pub fn take_records(&self) -> Vec<records::View> {
        std::mem::take(&mut self.state.lock().records)
    }

    /// The domain's records now.
    pub fn records(&self) -> records::View {
        records_of(&self.state.lock().core)
    }

    fn apply(&self, command: Command) -> Result<(Revision, Response), KvError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.seq += 1;
        let index = state.seq;
        let lease_time_ms = self.clock.now().as_millis() as u64;
        let stamp = Some(LeaseStamp { term: TERM, lease_time_ms });
        let commands = vec![Sequenced { seq: index, command }];
        let batch = Batch { origin: ORIGIN, low_water: index, stamp, commands };
        let mut applied = state.core.apply(EntryPosition { index, term: TERM }, &batch);
        let at = Some(self.clock.now());
        state.log.push(LogEntry { index, term: TERM, at, batch: Some(batch) });
        state.stale.push_back(state.core.snapshot());
        if state.stale.len() > STALE {
            state.stale.pop_front();
        }
        let of_domain = |event: &Event| event.kv.key.starts_with(b"/");
        if applied.events.iter().any(|revision| revision.events.iter().any(of_domain)) {
            state.records.push(records_of(&state.core));
        }
        self.written.notify_waiters();
        let (_, outcome) = applied.outcomes.pop().ok_or_else(lost)?;
        outcome.result.map(|response| (outcome.revision, response)).map_err(rejected)
    }

    fn way(&self, accidents: bool) -> (Duration, Way) {
        let state = &mut *self.state.lock();
        let time = state.chance.between(WAY.0, WAY.1);
        if !accidents || state.accidents == 0 || !state.chance.one_in(state.accidents) {
            return (time, Way::Through);
        }
        let way = match state.chance.below(5) {
            0 => Way::NotSent,
            1 => Way::RequestLost,
            2 => Way::Late,
            _ => Way::AnswerLost,
        };
        (time, way)
    }

    async fn call(&self, command: Command) -> Result<(Revision, Response), KvError> {
        let (time, way) = self.way(true);
        tokio::time::sleep(time).await;
        match way {
            Way::NotSent => return Err(KvError::NotSent("no leader".into())),
            Way::RequestLost => {}
            Way::AnswerLost => drop(self.apply(command)),
            Way::Late => {
                let one = self.clone();
                // Nobody waits for it.
                drop(tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    // Nobody hears of what came of it.
                    let _ = one.apply(command);
                }));
            }
            Way::Through => {
                let answer = self.apply(command);
                tokio::time::sleep(self.way(false).0).await;
                return answer;
            }
        }
        // A late one goes out after its client gave up: then it is not known either.
        tokio::time::sleep(DEADLINE / 4).await;
        Err(lost())
    }

    /// Waits until the revision is written.
    async fn reached(&self, revision: Revision) {
        loop {
            let mut written = std::pin::pin!(self.written.notified());
            written.as_mut().enable();
            if self.state.lock().core.revision() >= revision {
                return;
            }
            written.await;
        }
    }

    async fn read<T>(&self, read: impl FnOnce(&Core) -> T) -> T {
        tokio::time::sleep(self.way(false).0).await;
        let answer = read(&self.state.lock().core);
        tokio::time::sleep(self.way(false).0).await;
        answer
    }
}

fn records_of(core: &Core) -> records::View {
    let ranges = records::Scope::everything().ranges().to_vec();
    let read = |range: &meta_types::KeyRange| {
        let request = RangeRequest { range: range.clone(), ..RangeRequest::default() };
        core.range(&request).map(|reply| reply.kvs).unwrap_or_default()
    };
    let kvs: Vec<_> = ranges.iter().flat_map(read).collect();
    meta_client::Snapshot::new(core.revision(), ranges, kvs).into()
}

fn lost() -> KvError {
    KvError::Unknown("no answer came".into())
}

/// A refusal as a client of the network sees it.
fn rejected(refusal: Refusal) -> KvError {
    match classify(&refusal_to_status(&refusal)) {
        ErrorClass::Rejected { code, message } => KvError::Rejected { code, message },
        ErrorClass::Compacted { compact_revision } => KvError::Compacted { compact_revision },
        ErrorClass::NotSent(message) => KvError::NotSent(message),
        ErrorClass::Unknown(message) => KvError::Unknown(message),
    }
}

#[async_trait]
impl Kv for OneCore {
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        if request.serializable {
            tokio::time::sleep(self.way(false).0).await;
            let snapshot = {
                let state = &mut *self.state.lock();
                let at = state.chance.below(state.stale.len());
                state.stale[at].clone()
            };
            let value = snapshot.range(&request).map_err(rejected)?;
            return Ok(Revisioned { revision: snapshot.revision(), value });
        }
        let (revision, reply) = self.read(|core| (core.revision(), core.range(&request))).await;
        Ok(Revisioned { revision, value: reply.map_err(rejected)? })
    }

    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        match self.call(Command::Put(request)).await? {
            (revision, Response::Put(value)) => Ok(Revisioned { revision, value }),
            _ => Err(lost()),
        }
    }

    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        match self.call(Command::DeleteRange(request)).await? {
            (revision, Response::DeleteRange(value)) => Ok(Revisioned { revision, value }),
            _ => Err(lost()),
        }
    }

    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        if txn.is_read_only() {
            let (revision, reply) = self.read(|core| (core.revision(), core.read_txn(&txn))).await;
            return Ok(Revisioned { revision, value: reply.map_err(rejected)? });
        }
        match self.call(Command::Txn(txn)).await? {
            (revision, Response::Txn(value)) => Ok(Revisioned { revision, value }),
            _ => Err(lost()),
        }
    }

    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        self.call(Command::Compact(revision)).await.map(drop)
    }

    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        let id = match id {
            0 => ((self.state.lock().chance.bits() as i64).unsigned_abs() >> 1).max(1) as LeaseId,
            chosen => chosen,
        };
        match self.call(Command::LeaseGrant { id, ttl: ttl.as_secs() as i64 }).await? {
            (_, Response::LeaseGrant { id, ttl }) => {
                Ok(LeaseGranted { id, ttl: Duration::from_secs(ttl.unsigned_abs()) })
            }
            _ => Err(lost()),
        }
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        match self.call(Command::LeaseKeepAlive { ids: vec![id] }).await? {
            (_, Response::LeaseKeepAlive { ttls }) => {
                let ttl = ttls.first().copied().unwrap_or(0);
                Ok((ttl > 0).then(|| Duration::from_secs(ttl.unsigned_abs())))
            }
            _ => Err(lost()),
        }
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        self.call(Command::LeaseRevoke { id }).await.map(drop)
    }

    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        // Whole seconds, as etcd answers.
        let left = |core: &Core| core.lease(id).map(|lease| Duration::from_secs(lease.remaining_ms / 1000));
        Ok(self.read(left).await)
    }

    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        tokio::time::sleep(self.way(false).0).await;
        let created_at = self.state.lock().core.revision();
        let from = if request.start_revision > 0 { request.start_revision } else { created_at + 1 };
        let follow = Follow { one: self.clone(), request, next: from, ended: false };
        Ok(Watcher { created_at, batches: stream::unfold(follow, Follow::step).boxed() })
    }
}

/// A watch.
struct Follow {
    one: OneCore,
    request: WatchRequest,
    next: Revision,
    ended: bool,
}

impl Follow {
    async fn step(mut self) -> Option<(Result<WatchBatch, KvError>, Self)> {
        while !self.ended {
            self.one.reached(self.next).await;
            tokio::time::sleep(self.one.way(false).0).await;
            let history = self.one.state.lock().core.history(self.next, STEP);
            match history {
                Err(refusal) => {
                    self.ended = true;
                    return Some((Err(rejected(refusal)), self));
                }
                Ok(revisions) => {
                    let Some(last) = revisions.last().map(|revision| revision.revision) else { continue };
                    self.next = last + 1;
                    let events = revisions.iter().flat_map(|revision| revision.events.iter());
                    let wanted = events.filter(|event| self.request.range.contains(&event.kv.key));
                    let events: Vec<Event> = wanted.map(|event| self.shown(event)).collect();
                    if !events.is_empty() {
                        return Some((Ok(WatchBatch { revision: last, events }), self));
                    }
                }
            }
        }
        None
    }

    fn shown(&self, event: &Event) -> Event {
        Event { prev: event.prev.clone().filter(|_| self.request.prev_kv), ..event.clone() }
    }
}
