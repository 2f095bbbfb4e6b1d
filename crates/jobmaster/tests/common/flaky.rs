//! A store that can be cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use meta_client::{Kv, KvError, LeaseGranted, MemKv, Revisioned, WatchRequest, Watcher};
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, PutReply, PutRequest, RangeReply, RangeRequest, Revision,
    Txn, TxnReply,
};

/// The store as one node sees it; while `down` nothing gets through.
pub struct FlakyKv {
    pub inner: Arc<MemKv>,
    pub down: AtomicBool,
}

impl FlakyKv {
    pub fn new(inner: Arc<MemKv>) -> Self {
        Self { inner, down: AtomicBool::new(false) }
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
        self.reach()?.txn(txn).await
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
}
