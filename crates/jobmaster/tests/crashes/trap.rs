//! The store as one node sees it, with a trap at one numbered step of a package's life: whoever comes to it is held
//! there, to be killed or let go on, or loses its answer, as when the store's leader dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use meta_client::{Kv, KvError, LeaseGranted, Record, Revisioned, TypedKey, WatchRequest, Watcher};
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, Op, PutReply, PutRequest, RangeReply, RangeRequest,
    Revision, Txn, TxnReply,
};
use parking_lot::Mutex;
use records::keys::{CopyKey, UnitKey};
use records::record::{Copy, CopyState, Unit, UnitState};
use tokio::sync::Notify;

/// gRPC's code for "no such lease".
const NOT_FOUND: i32 = 5;

/// The steps of DESIGN section 6, by the transaction that each of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// T1: absent -> CREATING.
    Reserve,
    /// The content is known and here.
    Announce,
    /// T3: CREATING -> READY.
    Ready,
    /// T4: CREATING -> PURGING.
    Abort,
    /// N1: FETCHING.
    Fetching,
    /// N1: PRESENT.
    Present,
    /// N1 of a register: what was found.
    Inspected,
    /// N1 of a register: what was found is the copy.
    Adopted,
    /// N2.
    Draining,
    /// N3.
    Dropped,
}

/// On which side of the store's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

/// What becomes of who comes to the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is held.
    Held,
    /// The store's leader dies meanwhile: the answer is lost, and so many of the next calls do not get through.
    Unanswered { away: u32 },
}

#[derive(Debug, Clone, Copy)]
pub struct Trap {
    pub step: Step,
    pub when: When,
    pub fate: Fate,
}

pub struct TrapKv {
    inner: Arc<dyn Kv>,
    trap: Mutex<Option<Trap>>,
    away: Mutex<u32>,
    dead: AtomicBool,
    sprung: Notify,
    go_on: Notify,
}

fn read<T: Record>(bytes: &[u8]) -> Option<T> {
    meta_client::record::from_bytes(bytes).ok()
}

/// Which step a transaction is.
fn step_of(txn: &Txn) -> Option<Step> {
    txn.success.iter().find_map(|op| match op {
        Op::Put(put) if put.key.starts_with(UnitKey::PREFIX.as_bytes()) => {
            let unit: Unit = read(&put.value)?;
            Some(match unit.state {
                UnitState::Creating if unit.manifest.is_none() || unit.uploading => Step::Reserve,
                UnitState::Creating => Step::Announce,
                UnitState::Ready => Step::Ready,
                UnitState::Purging => Step::Abort,
                UnitState::Removing => return None,
            })
        }
        Op::Put(put) if put.key.starts_with(CopyKey::PREFIX.as_bytes()) => {
            let copy: Copy = read(&put.value)?;
            Some(match (copy.state, copy.digest.is_some()) {
                (CopyState::Fetching, true) => Step::Inspected,
                (CopyState::Fetching, false) => Step::Fetching,
                (CopyState::Present, true) => Step::Adopted,
                (CopyState::Present, false) => Step::Present,
                (CopyState::Draining, _) => Step::Draining,
                (CopyState::Failed | CopyState::Corrupt, _) => return None,
            })
        }
        Op::DeleteRange(range) if range.range.key.starts_with(CopyKey::PREFIX.as_bytes()) => {
            Some(Step::Dropped)
        }
        Op::Put(_) | Op::DeleteRange(_) | Op::Range(_) => None,
    })
}

impl TrapKv {
    pub fn new(inner: Arc<dyn Kv>) -> Self {
        Self {
            inner,
            trap: Mutex::default(),
            away: Mutex::default(),
            dead: AtomicBool::new(false),
            sprung: Notify::new(),
            go_on: Notify::new(),
        }
    }

    pub fn set(&self, trap: Trap) {
        *self.trap.lock() = Some(trap);
    }

    /// Somebody came to the step.
    pub async fn sprung(&self) {
        self.sprung.notified().await;
    }

    /// Whoever is held goes on.
    pub fn go_on(&self) {
        self.go_on.notify_one();
    }

    /// The node is dead: nothing of it reaches the store any more.
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    fn reach(&self) -> Result<&dyn Kv, KvError> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(KvError::Rejected { code: NOT_FOUND, message: "this node is dead".into() });
        }
        let mut away = self.away.lock();
        if *away > 0 {
            *away -= 1;
            return Err(KvError::NotSent("no leader".into()));
        }
        Ok(&*self.inner)
    }

    fn spring(&self, txn: &Txn) -> Option<Trap> {
        let step = step_of(txn)?;
        self.trap.lock().take_if(|trap| trap.step == step)
    }

    async fn held(&self) {
        self.sprung.notify_one();
        self.go_on.notified().await;
    }
}

#[async_trait]
impl Kv for TrapKv {
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        self.reach()?.range(request).await
    }
    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        self.reach()?.put(request).await
    }
    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        self.reach()?.delete_range(request).await
    }
    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        self.reach()?;
        let Some(trap) = self.spring(&txn) else { return self.inner.txn(txn).await };
        match (trap.fate, trap.when) {
            (Fate::Held, When::Before) => {
                self.held().await;
                self.reach()?.txn(txn).await
            }
            (Fate::Held, When::After) => {
                let reply = self.inner.txn(txn).await;
                self.held().await;
                reply
            }
            (Fate::Unanswered { away }, when) => {
                if when == When::After {
                    self.inner.txn(txn).await?;
                }
                *self.away.lock() = away;
                self.held().await;
                Err(KvError::Unknown("the leader died".into()))
            }
        }
    }
    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        self.reach()?.compact(revision).await
    }
    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        self.reach()?.lease_grant(id, ttl).await
    }
    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        self.reach()?.lease_keep_alive(id).await
    }
    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        self.reach()?.lease_revoke(id).await
    }
    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        self.reach()?.lease_time_to_live(id).await
    }
    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        self.reach()?.watch(request).await
    }
    /// Leases pass no trap.
    fn apart(&self) -> Option<Arc<dyn Kv>> {
        self.inner.apart()
    }
}
