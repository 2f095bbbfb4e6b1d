//! A store whose transactions meet with accidents, as a script says.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, PutReply, PutRequest, RangeReply, RangeRequest, Revision,
    Txn, TxnReply,
};
use parking_lot::Mutex;

use crate::kv::{Kv, KvError, LeaseGranted, Revisioned, WatchRequest, Watcher};
use crate::mem::MemKv;

/// What happens to one writing transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accident {
    /// Nothing.
    None,
    /// It never leaves.
    NotSent,
    /// It is carried out, the answer is lost.
    AnswerLost,
    /// It is lost on its way; nobody knows.
    RequestLost,
    /// Nobody knows; it arrives later, with [`Faulty::arrive`].
    Late,
}

/// A [`MemKv`] with accidents.
pub struct Faulty {
    inner: MemKv,
    script: Mutex<VecDeque<Accident>>,
    late: Mutex<Vec<Txn>>,
}

impl Faulty {
    /// The script's accidents happen to the next writing transactions, then none.
    pub fn new(inner: MemKv, script: impl IntoIterator<Item = Accident>) -> Self {
        Self { inner, script: Mutex::new(script.into_iter().collect()), late: Mutex::default() }
    }

    /// The late ones arrive; answers how many of them still took place.
    pub fn arrive(&self) -> usize {
        let late = std::mem::take(&mut *self.late.lock());
        late.iter().filter(|txn| self.inner.apply_txn(txn).is_ok_and(|reply| reply.value.succeeded)).count()
    }
}

fn nobody_knows() -> KvError {
    KvError::Unknown("the answer is lost".into())
}

#[async_trait]
impl Kv for Faulty {
    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        if txn.is_read_only() {
            return self.inner.txn(txn).await;
        }
        let accident = self.script.lock().pop_front().unwrap_or(Accident::None);
        match accident {
            Accident::None => self.inner.txn(txn).await,
            Accident::NotSent => Err(KvError::NotSent("no leader".into())),
            Accident::RequestLost => Err(nobody_knows()),
            Accident::AnswerLost => {
                let _ = self.inner.txn(txn).await;
                Err(nobody_knows())
            }
            Accident::Late => {
                self.late.lock().push(txn);
                Err(nobody_knows())
            }
        }
    }

    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        self.inner.range(request).await
    }
    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        self.inner.put(request).await
    }
    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        self.inner.delete_range(request).await
    }
    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        self.inner.compact(revision).await
    }
    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        self.inner.lease_grant(id, ttl).await
    }
    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        self.inner.lease_keep_alive(id).await
    }
    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        self.inner.lease_revoke(id).await
    }
    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        self.inner.lease_time_to_live(id).await
    }
    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        self.inner.watch(request).await
    }
}
