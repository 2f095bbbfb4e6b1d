//! The store as a client sees it. Implemented by the network client and by an in-memory model; one suite runs over
//! every implementation.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, Event, KeyRange, LeaseId, PutReply, PutRequest, RangeReply,
    RangeRequest, Revision, Txn, TxnReply,
};
use thiserror::Error;

/// An answer and the store's revision at its linearization point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revisioned<T> {
    /// The store's revision.
    pub revision: Revision,
    /// The answer.
    pub value: T,
}

/// Why a call failed. `Unknown` is the default: an unanswered write may have been carried out.
#[derive(Debug, Clone, Error)]
pub enum KvError {
    /// The store said no; nothing was changed. `code` is the gRPC code's number.
    #[error("{message}")]
    Rejected {
        /// gRPC code.
        code: i32,
        /// The store's words.
        message: String,
    },
    /// History below the compact revision was asked for.
    #[error("etcdserver: mvcc: required revision has been compacted (compact revision {compact_revision})")]
    Compacted {
        /// The compact revision.
        compact_revision: Revision,
    },
    /// The request never left, or the store says it did nothing (no leader, overload): safe to send again.
    #[error("the store is unavailable: {0}")]
    NotSent(String),
    /// The request left and no answer came: it may have been carried out.
    #[error("no answer from the store, the request may have been carried out: {0}")]
    Unknown(String),
}

impl KvError {
    /// True if sending the same request again cannot do anything twice.
    pub fn is_safe_to_resend(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Rejected { .. } | Self::Compacted { .. } | Self::Unknown(_) => false,
        }
    }
}

/// A granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseGranted {
    /// Its id.
    pub id: LeaseId,
    /// Its time to live, possibly raised to the store's minimum.
    pub ttl: Duration,
}

/// What to watch.
#[derive(Debug, Clone, Default)]
pub struct WatchRequest {
    /// Which keys.
    pub range: KeyRange,
    /// First revision to deliver; 0 = from now on.
    pub start_revision: Revision,
    /// Deliver the version before each change too.
    pub prev_kv: bool,
}

/// Events of one or more whole revisions, in order; or, with no events, word that all up to `revision` was seen.
#[derive(Debug, Clone)]
pub struct WatchBatch {
    /// Everything up to this revision has been delivered.
    pub revision: Revision,
    /// The events.
    pub events: Vec<Event>,
}

/// A running watch. It resumes by itself across replicas without gap or repeat; its end is an error.
pub struct Watcher {
    /// The store's revision when the watch was created: every later change is delivered.
    pub created_at: Revision,
    /// The batches. `Compacted` means: read the state again and start a new watch behind it.
    pub batches: BoxStream<'static, Result<WatchBatch, KvError>>,
}

/// The store. Reads are linearizable unless the request says `serializable`; every call has a deadline.
#[async_trait]
pub trait Kv: Send + Sync + 'static {
    /// Reads a range.
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError>;
    /// Puts a key.
    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError>;
    /// Deletes keys.
    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError>;
    /// Runs a transaction.
    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError>;
    /// Forgets history below `revision`.
    async fn compact(&self, revision: Revision) -> Result<(), KvError>;
    /// Makes a lease; `id` 0 lets the store choose.
    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError>;
    /// Renews a lease; `None` if it is gone.
    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError>;
    /// Revokes a lease and deletes its keys. Revoking an unknown lease is `Rejected` with code 5.
    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError>;
    /// What is left of a lease; `None` if it is gone.
    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError>;
    /// Watches a range.
    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError>;
    /// A client of its own for the runtime that calls this, where the connections of `self` are driven by the runtime
    /// they were made in: for what must get through while that one is busy. `None` if `self` does as well.
    fn apart(&self) -> Option<Arc<dyn Kv>> {
        None
    }
}
