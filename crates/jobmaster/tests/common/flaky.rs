//! A store that can be cut off, and that can lose what is written about packages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use meta_client::{Kv, KvError, LeaseGranted, MemKv, Revisioned, TypedKey, WatchRequest, Watcher};
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, Op, PutReply, PutRequest, RangeReply, RangeRequest,
    Revision, Txn, TxnReply,
};
use parking_lot::Mutex;
use records::keys::UnitKey;
use tokio::sync::Notify;

/// The store as one node sees it; while `down` nothing gets through.
pub struct FlakyKv {
    pub inner: Arc<MemKv>,
    pub down: AtomicBool,
    /// What happens is not seen either: watches end.
    pub blind: Arc<AtomicBool>,
    pub fate: Mutex<Fate>,
    late: Mutex<Vec<Txn>>,
    /// Lets the answer go that [`Fate::AnswerSlow`] holds.
    pub answer: Notify,
}

/// What becomes of transactions that write the record of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They are answered.
    Fine,
    /// The next one takes place, its answer is lost, and the store stays away.
    AnswerLost,
    /// The next one takes place, and its answer waits for `answer`; the others are fine.
    AnswerSlow,
    /// The next one is on its way, nobody knows for how long, and the store stays away.
    Late,
    /// None gets through.
    Refused,
    /// Those that make a package READY do not get through.
    NeverReady,
}

fn nobody_knows() -> KvError {
    KvError::Unknown("the answer is lost".into())
}

fn writes_a_package(txn: &Txn) -> bool {
    let prefix = UnitKey::PREFIX.as_bytes();
    txn.success.iter().any(|op| matches!(op, Op::Put(put) if put.key.starts_with(prefix)))
}

fn makes_ready(txn: &Txn) -> bool {
    let ready = b"\"state\":\"READY\"";
    txn.success
        .iter()
        .any(|op| matches!(op, Op::Put(put) if put.value.windows(ready.len()).any(|w| w == ready)))
}

impl FlakyKv {
    pub fn new(inner: Arc<MemKv>) -> Self {
        Self {
            inner,
            down: AtomicBool::new(false),
            blind: Arc::default(),
            fate: Mutex::new(Fate::Fine),
            late: Mutex::default(),
            answer: Notify::new(),
        }
    }

    /// What was on its way arrives; answers how much of it still took place.
    pub fn arrive(&self) -> usize {
        let late = std::mem::take(&mut *self.late.lock());
        late.iter().filter(|txn| self.inner.apply_txn(txn).is_ok_and(|reply| reply.value.succeeded)).count()
    }

    fn reach(&self) -> Result<&MemKv, KvError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(KvError::NotSent("the store is cut off".into()));
        }
        Ok(&self.inner)
    }
}

#[async_trait]
impl Kv for FlakyKv {
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
        let store = self.reach()?;
        if !writes_a_package(&txn) {
            return store.txn(txn).await;
        }
        let fate = {
            let mut fate = self.fate.lock();
            let now = *fate;
            *fate = match now {
                Fate::Fine | Fate::AnswerSlow => Fate::Fine,
                Fate::NeverReady => Fate::NeverReady,
                Fate::AnswerLost | Fate::Late | Fate::Refused => Fate::Refused,
            };
            now
        };
        match fate {
            Fate::NeverReady if makes_ready(&txn) => Err(KvError::NotSent("no leader".into())),
            Fate::Fine | Fate::NeverReady => store.txn(txn).await,
            Fate::Refused => Err(KvError::NotSent("no leader".into())),
            Fate::AnswerSlow => {
                let answered = store.txn(txn).await;
                self.answer.notified().await;
                answered
            }
            Fate::AnswerLost => {
                store.txn(txn).await?;
                Err(nobody_knows())
            }
            Fate::Late => {
                self.late.lock().push(txn);
                Err(nobody_knows())
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
        let mut watcher = self.reach()?.watch(request).await?;
        let blind = self.blind.clone();
        let sees = move |_: &_| std::future::ready(!blind.load(Ordering::SeqCst));
        watcher.batches = watcher.batches.take_while(sees).boxed();
        Ok(watcher)
    }
}
