//! A store of one state machine and its log: correct, slow at random, and now and then without an answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use meta_client::{Kv, KvError, LeaseGranted, Revisioned, WatchBatch, WatchRequest, Watcher};
use meta_core::{Core, EntryPosition};
use meta_types::{
    Batch, Command, DeleteRangeReply, DeleteRangeRequest, Event, LeaseId, LeaseStamp, Origin, PutReply,
    PutRequest, RangeReply, RangeRequest, Refusal, Response, Revision, RevisionEvents, Sequenced, Txn,
    TxnReply,
};
use parking_lot::Mutex;
use raft_tests::checkers::LogEntry;
use raft_tests::history::Clock;
use raft_tests::workload::Chance;
use tokio::sync::watch;

const ORIGIN: Origin = Origin { member: 1, boot: 1 };

struct State {
    core: Core,
    log: Vec<LogEntry>,
    chance: Chance,
    leases: LeaseId,
}

/// See the module. Clones share the store.
#[derive(Clone)]
pub struct LoggedKv {
    state: Arc<Mutex<State>>,
    revision: watch::Sender<Revision>,
    clock: Clock,
}

impl LoggedKv {
    pub fn new(clock: Clock, chance: Chance) -> Self {
        let state = State { core: Core::new(), log: Vec::new(), chance, leases: 0 };
        let kv = Self { state: Arc::new(Mutex::new(state)), revision: watch::Sender::new(1), clock };
        kv.apply(Command::RegisterOrigin).expect("an origin can be registered");
        kv
    }

    /// The log, and the state it made.
    pub fn log(&self) -> (Vec<LogEntry>, Revision, u64) {
        let state = self.state.lock();
        (state.log.clone(), state.core.revision(), state.core.state_hash())
    }

    /// Lets lease time pass and takes out what is due, for ever.
    pub async fn expire_leases(&self) {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.apply(Command::LeaseTick).expect("a tick is never refused");
            let ids = self.state.lock().core.due_leases(100);
            if !ids.is_empty() {
                self.apply(Command::LeaseExpire { term: 1, ids }).expect("due leases can go");
            }
        }
    }

    fn apply(&self, command: Command) -> Result<Revisioned<Response>, KvError> {
        let mut state = self.state.lock();
        let index = state.log.len() as u64 + 1;
        let now = self.clock.now();
        let stamp = Some(LeaseStamp { term: 1, lease_time_ms: now.as_millis() as u64 });
        let batch =
            Batch { origin: ORIGIN, low_water: 0, stamp, commands: vec![Sequenced { seq: index, command }] };
        let mut applied = state.core.apply(EntryPosition { index, term: 1 }, &batch);
        state.log.push(LogEntry { index, term: 1, at: Some(now), batch: Some(batch) });
        self.revision.send_replace(state.core.revision());
        let (_, outcome) = applied.outcomes.pop().expect("a new number has an outcome");
        let value = outcome.result.map_err(refused)?;
        Ok(Revisioned { revision: outcome.revision, value })
    }

    async fn on_the_way(&self, most_ms: u64) {
        let way =
            self.state.lock().chance.between(Duration::from_micros(100), Duration::from_millis(most_ms));
        tokio::time::sleep(way).await;
    }

    fn one_in(&self, many: usize) -> bool {
        self.state.lock().chance.one_in(many)
    }

    /// A call: there, carried out, and back; or lost on one of the ways.
    async fn call<T>(&self, what: impl FnOnce() -> Result<T, KvError>) -> Result<T, KvError> {
        if self.one_in(60) {
            return Err(KvError::NotSent("the line is busy".into()));
        }
        self.on_the_way(8).await;
        if self.one_in(40) {
            return Err(KvError::Unknown("lost before it came".into()));
        }
        let answer = what();
        self.on_the_way(8).await;
        if self.one_in(40) {
            return Err(KvError::Unknown("the answer was lost".into()));
        }
        answer
    }

    async fn write<T>(
        &self,
        command: Command,
        reply: impl FnOnce(Response) -> Option<T>,
    ) -> Result<Revisioned<T>, KvError> {
        let Revisioned { revision, value } = self.call(|| self.apply(command)).await?;
        let value = reply(value).expect("a command has an answer of its own kind");
        Ok(Revisioned { revision, value })
    }

    fn read<T>(&self, read: impl FnOnce(&Core) -> Result<T, Refusal>) -> Result<Revisioned<T>, KvError> {
        let state = self.state.lock();
        let value = read(&state.core).map_err(refused)?;
        Ok(Revisioned { revision: state.core.revision(), value })
    }
}

/// A refusal, as it comes to a client.
fn refused(refusal: Refusal) -> KvError {
    match refusal {
        Refusal::Compacted { compact_revision } => KvError::Compacted { compact_revision },
        Refusal::LeaseNotFound => KvError::Rejected { code: 5, message: refusal.to_string() },
        other => KvError::Rejected { code: 3, message: other.to_string() },
    }
}

fn ttl(seconds: i64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds.unsigned_abs()))
}

#[async_trait]
impl Kv for LoggedKv {
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        self.call(|| self.read(|core| core.range(&request))).await
    }

    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        let reply = |response| if let Response::Put(reply) = response { Some(reply) } else { None };
        self.write(Command::Put(request), reply).await
    }

    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        let reply = |response| if let Response::DeleteRange(reply) = response { Some(reply) } else { None };
        self.write(Command::DeleteRange(request), reply).await
    }

    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        if txn.is_read_only() {
            return self.call(|| self.read(|core| core.read_txn(&txn))).await;
        }
        let reply = |response| if let Response::Txn(reply) = response { Some(reply) } else { None };
        self.write(Command::Txn(txn), reply).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        self.write(Command::Compact(revision), |_| Some(())).await.map(drop)
    }

    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        let id = if id == 0 {
            let mut state = self.state.lock();
            state.leases += 1;
            1_000_000 + state.leases
        } else {
            id
        };
        let reply = |response| match response {
            Response::LeaseGrant { id, ttl } => {
                Some(LeaseGranted { id, ttl: Duration::from_secs(ttl.unsigned_abs()) })
            }
            _ => None,
        };
        let command = Command::LeaseGrant { id, ttl: ttl.as_secs() as i64 };
        Ok(self.write(command, reply).await?.value)
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        let reply = |response| match response {
            Response::LeaseKeepAlive { ttls } => Some(ttl(ttls[0])),
            _ => None,
        };
        Ok(self.write(Command::LeaseKeepAlive { ids: vec![id] }, reply).await?.value)
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        self.write(Command::LeaseRevoke { id }, |_| Some(())).await.map(drop)
    }

    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        let left =
            |core: &Core| Ok(core.lease(id).map(|lease| Duration::from_secs(lease.remaining_ms / 1000)));
        Ok(self.call(|| self.read(left)).await?.value)
    }

    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        self.on_the_way(8).await;
        let created_at = self.state.lock().core.revision();
        let next = if request.start_revision > 0 { request.start_revision } else { created_at + 1 };
        let follow = Follow { kv: self.clone(), request, next, ready: VecDeque::new() };
        let batches = stream::unfold(Some(follow), |follow| async move {
            let mut follow = follow?;
            match follow.batch().await {
                Ok(batch) => Some((Ok(batch), Some(follow))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Watcher { created_at, batches: batches.boxed() })
    }
}

/// A watch that reads the state's history at its own pace.
struct Follow {
    kv: LoggedKv,
    request: WatchRequest,
    next: Revision,
    ready: VecDeque<RevisionEvents>,
}

impl Follow {
    async fn batch(&mut self) -> Result<WatchBatch, KvError> {
        loop {
            if let Some(RevisionEvents { revision, events }) = self.ready.pop_front() {
                self.next = revision + 1;
                let wanted = events.iter().filter(|event| self.request.range.contains(&event.kv.key));
                let with_prev = self.request.prev_kv;
                let events: Vec<Event> = wanted
                    .map(|event| Event { prev: event.prev.clone().filter(|_| with_prev), ..event.clone() })
                    .collect();
                // Where nothing was wanted the client hears of progress, once it has all.
                if !events.is_empty() || self.ready.is_empty() {
                    return Ok(WatchBatch { revision, events });
                }
                continue;
            }
            let mut revision = self.kv.revision.subscribe();
            let next = self.next;
            if revision.wait_for(|revision| *revision >= next).await.is_err() {
                std::future::pending::<()>().await;
            }
            self.kv.on_the_way(30).await;
            self.ready = self.kv.state.lock().core.history(next, 8).map_err(refused)?.into();
        }
    }
}
