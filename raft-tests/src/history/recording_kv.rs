//! A `Kv` that records every call and every watch through it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use meta_client::{Kv, KvError, LeaseGranted, Revisioned, WatchBatch, WatchRequest, Watcher};
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, PutReply, PutRequest, RangeReply, RangeRequest, Revision,
    Txn, TxnReply,
};

use super::{Clock, Input, Outcome, Recorder, Reply, WatchId, WatchWord};

/// Records for one client what goes through to the `Kv` behind it.
#[derive(Clone)]
pub struct RecordingKv {
    inner: Arc<dyn Kv>,
    recorder: Recorder,
    clock: Clock,
    client: u64,
}

impl RecordingKv {
    /// Records calls to `inner` as those of `client`.
    pub fn new(inner: Arc<dyn Kv>, recorder: Recorder, clock: Clock, client: u64) -> Self {
        Self { inner, recorder, clock, client }
    }

    async fn record<T>(
        &self,
        input: Input,
        call: impl Future<Output = Result<T, KvError>>,
        answer: impl FnOnce(&T) -> (Option<Revision>, Reply),
    ) -> Result<T, KvError> {
        let pending = self.recorder.call(self.client, self.clock.called(), input);
        let result = call.await;
        let outcome = match &result {
            Ok(value) => {
                let (revision, reply) = answer(value);
                Outcome::Ok { revision, reply }
            }
            Err(error) => Outcome::of_error(error),
        };
        self.recorder.returned(pending, self.clock.now(), outcome);
        result
    }

    fn saw(&self, id: WatchId, batch: &Result<WatchBatch, KvError>) {
        let word = match batch {
            Ok(WatchBatch { revision, events }) if events.is_empty() => {
                WatchWord::Progress { revision: *revision }
            }
            Ok(WatchBatch { revision, events }) => {
                WatchWord::Events { revision: *revision, events: events.clone() }
            }
            Err(KvError::Compacted { compact_revision }) => {
                WatchWord::Compacted { compact_revision: *compact_revision }
            }
            Err(error) => WatchWord::Ended(error.to_string()),
        };
        self.recorder.watch_response(id, self.clock.now(), word);
    }
}

fn revisioned<T: Clone>(
    wrap: impl Fn(T) -> Reply,
) -> impl FnOnce(&Revisioned<T>) -> (Option<Revision>, Reply) {
    move |answer| (Some(answer.revision), wrap(answer.value.clone()))
}

#[async_trait]
impl Kv for RecordingKv {
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        let input = Input::Range(request.clone());
        self.record(input, self.inner.range(request), revisioned(Reply::Range)).await
    }

    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        let input = Input::Put(request.clone());
        self.record(input, self.inner.put(request), revisioned(Reply::Put)).await
    }

    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        let input = Input::DeleteRange(request.clone());
        self.record(input, self.inner.delete_range(request), revisioned(Reply::DeleteRange)).await
    }

    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        let input = Input::Txn(txn.clone());
        self.record(input, self.inner.txn(txn), revisioned(Reply::Txn)).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        self.record(Input::Compact(revision), self.inner.compact(revision), |()| (None, Reply::Done)).await
    }

    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        let answer = |granted: &LeaseGranted| (None, Reply::LeaseGrant { id: granted.id, ttl: granted.ttl });
        self.record(Input::LeaseGrant { id, ttl }, self.inner.lease_grant(id, ttl), answer).await
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        let answer = |left: &Option<Duration>| (None, Reply::LeaseKeepAlive(*left));
        self.record(Input::LeaseKeepAlive(id), self.inner.lease_keep_alive(id), answer).await
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        self.record(Input::LeaseRevoke(id), self.inner.lease_revoke(id), |()| (None, Reply::Done)).await
    }

    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        let answer = |left: &Option<Duration>| (None, Reply::LeaseTimeToLive(*left));
        self.record(Input::LeaseTimeToLive(id), self.inner.lease_time_to_live(id), answer).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        let id = self.recorder.watch(self.client, self.clock.called(), request.clone());
        let watcher = match self.inner.watch(request).await {
            Ok(watcher) => watcher,
            Err(error) => {
                self.saw(id, &Err(error.clone()));
                return Err(error);
            }
        };
        self.recorder.watch_created(id, self.clock.now(), watcher.created_at);
        let recording = self.clone();
        let batches = watcher.batches.inspect(move |batch| recording.saw(id, batch)).boxed();
        Ok(Watcher { created_at: watcher.created_at, batches })
    }
}
