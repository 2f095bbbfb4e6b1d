//! [`MemKv`]: the store in memory, for tests: as simple as it can be, with the whole history, watches from any
//! revision, and leases on a clock that only the test moves.

mod read;
mod state;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use meta_api::status::{ErrorClass, classify, refusal_to_status};
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, Op, OpReply, PutReply, PutRequest, RangeReply,
    RangeRequest, Refusal, Revision, Txn, TxnReply,
};
use parking_lot::Mutex;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::kv::{Kv, KvError, LeaseGranted, Revisioned, WatchRequest, Watcher};
use crate::snapshot::Snapshot;
use state::State;

/// A store in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemKv {
    state: Arc<Mutex<State>>,
}

impl MemKv {
    /// An empty store, at revision 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock; leases that are due by then are revoked, each in a revision of its own.
    pub fn advance(&self, by: Duration) {
        self.state.lock().advance(by);
    }

    /// The clock.
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// The store's revision.
    pub fn revision(&self) -> Revision {
        self.state.lock().revision
    }

    /// Everything, now.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        Snapshot::new(state.revision, vec![meta_types::KeyRange::prefix("")], state.keys.values().cloned())
    }

    /// A transaction, without waiting: for tests that need no runtime.
    pub fn apply_txn(&self, txn: &Txn) -> Result<Revisioned<TxnReply>, KvError> {
        let mut state = self.state.lock();
        let value = state.txn(txn).map_err(rejected)?;
        Ok(Revisioned { revision: state.revision, value })
    }

    /// Grants a lease, without waiting.
    pub fn grant(&self, ttl: Duration) -> LeaseGranted {
        self.state.lock().grant(0, ttl).expect("a chosen id is free")
    }

    /// Renews a lease, without waiting; false if it is gone.
    pub fn keep_alive(&self, id: LeaseId) -> bool {
        self.state.lock().keep_alive(id).is_some()
    }

    /// Revokes a lease, without waiting; false if it is gone.
    pub fn revoke(&self, id: LeaseId) -> bool {
        self.state.lock().revoke(id).is_ok()
    }

    fn one(&self, op: Op) -> Result<Revisioned<OpReply>, KvError> {
        let reply = self.apply_txn(&Txn { success: vec![op], ..Txn::default() })?;
        let value = reply.value.replies.into_iter().next();
        value
            .map(|value| Revisioned { revision: reply.revision, value })
            .ok_or_else(|| KvError::Unknown("no reply".into()))
    }
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

fn wrong_reply() -> KvError {
    KvError::Unknown("a reply of another kind".into())
}

#[async_trait]
impl Kv for MemKv {
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        let reply = self.one(Op::Range(request))?;
        let OpReply::Range(value) = reply.value else { return Err(wrong_reply()) };
        Ok(Revisioned { revision: reply.revision, value })
    }

    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        let reply = self.one(Op::Put(request))?;
        let OpReply::Put(value) = reply.value else { return Err(wrong_reply()) };
        Ok(Revisioned { revision: reply.revision, value })
    }

    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        let reply = self.one(Op::DeleteRange(request))?;
        let OpReply::DeleteRange(value) = reply.value else { return Err(wrong_reply()) };
        Ok(Revisioned { revision: reply.revision, value })
    }

    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        self.apply_txn(&txn)
    }

    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        self.state.lock().compact(revision).map_err(rejected)
    }

    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        self.state.lock().grant(id, ttl).map_err(rejected)
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        Ok(self.state.lock().keep_alive(id))
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        self.state.lock().revoke(id).map_err(rejected)
    }

    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        Ok(self.state.lock().time_to_live(id))
    }

    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        let mut state = self.state.lock();
        let created_at = state.revision;
        let receiver = state.watch(request).map_err(rejected)?;
        let batches = UnboundedReceiverStream::new(receiver).map(Ok).boxed();
        Ok(Watcher { created_at, batches })
    }
}
