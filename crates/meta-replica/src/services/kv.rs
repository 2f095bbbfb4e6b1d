//! Keys and transactions.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use meta_api::convert::{
    delete_reply_to_wire, delete_request_from_wire, key_value_to_wire, put_reply_to_wire,
    put_request_from_wire, range_reply_to_wire, range_request_from_wire, txn_from_wire, txn_reply_to_wire,
};
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::kv_server::Kv;
use meta_api::status::refusal_to_status;
use meta_core::Snapshot;
use meta_raft::blocking;
use meta_types::{
    Command, KeyValue, Op, RangeReply, RangeRequest, Refusal, Response as Answer, Revision, SortOrder,
    SortTarget, Txn, TxnReply,
};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::call::Deadline;
use crate::context::{Context, check_size};
use crate::metrics::Rpc;

/// A range of more keys than this is read on a thread that may block.
const INLINE_KEYS: i64 = 2_000;
/// Bytes after which a streamed range starts the next chunk.
const CHUNK_BYTES: usize = 512 * 1024;

/// The KV service.
#[derive(Clone)]
pub(crate) struct KvService(pub(crate) Arc<Context>);

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Kv for KvService {
    type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send>>;

    async fn range(&self, request: Request<pb::RangeRequest>) -> Answered<pb::RangeResponse> {
        let context = self.0.clone();
        context.metrics.measure(&context.clock, Rpc::Range, self.read(request)).await
    }

    async fn range_stream(&self, request: Request<pb::RangeRequest>) -> Answered<Self::RangeStreamStream> {
        let context = self.0.clone();
        context.metrics.measure(&context.clock, Rpc::RangeStream, self.read_stream(request)).await
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Answered<pb::PutResponse> {
        let context = self.0.clone();
        let work = async {
            let deadline = context.admit(&request)?;
            check_size(request.get_ref())?;
            let command = Command::Put(put_request_from_wire(request.into_inner()));
            let (revision, answer) = context.propose(command, &deadline).await?;
            let Answer::Put(reply) = answer else { return Err(wrong_answer()) };
            Ok(Response::new(put_reply_to_wire(&reply, context.header(revision))))
        };
        context.metrics.measure(&context.clock, Rpc::Put, work).await
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Answered<pb::DeleteRangeResponse> {
        let context = self.0.clone();
        let work = async {
            let deadline = context.admit(&request)?;
            check_size(request.get_ref())?;
            let command = Command::DeleteRange(delete_request_from_wire(request.into_inner()));
            let (revision, answer) = context.propose(command, &deadline).await?;
            let Answer::DeleteRange(reply) = answer else { return Err(wrong_answer()) };
            Ok(Response::new(delete_reply_to_wire(&reply, context.header(revision))))
        };
        context.metrics.measure(&context.clock, Rpc::DeleteRange, work).await
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Answered<pb::TxnResponse> {
        let context = self.0.clone();
        let work = async {
            let deadline = context.admit(&request)?;
            check_size(request.get_ref())?;
            let txn = txn_from_wire(request.into_inner())?;
            let (revision, reply) = if txn.is_read_only() {
                self.read_txn(&txn, &deadline).await?
            } else {
                let (revision, answer) = context.propose(Command::Txn(txn), &deadline).await?;
                let Answer::Txn(reply) = answer else { return Err(wrong_answer()) };
                (revision, reply)
            };
            Ok(Response::new(txn_reply_to_wire(&reply, revision, context.header(revision))))
        };
        context.metrics.measure(&context.clock, Rpc::Txn, work).await
    }

    async fn compact(&self, request: Request<pb::CompactionRequest>) -> Answered<pb::CompactionResponse> {
        let context = self.0.clone();
        let work = async {
            let deadline = context.admit(&request)?;
            let (revision, _) =
                context.propose(Command::Compact(request.into_inner().revision), &deadline).await?;
            Ok(Response::new(pb::CompactionResponse { header: context.header(revision) }))
        };
        context.metrics.measure(&context.clock, Rpc::Compact, work).await
    }
}

impl KvService {
    async fn read(&self, request: Request<pb::RangeRequest>) -> Answered<pb::RangeResponse> {
        let request = self.confirmed(request).await?;
        let (revision, reply) = if request.range.is_single() {
            let core = self.0.core.read();
            (core.revision(), core.range(&request).map_err(|refusal| refusal_to_status(&refusal))?)
        } else {
            self.read_many(request).await?
        };
        Ok(Response::new(range_reply_to_wire(&reply, self.0.header(revision))))
    }

    /// Waits until the read may be answered from the state here.
    async fn confirmed(&self, request: Request<pb::RangeRequest>) -> Result<RangeRequest, Status> {
        let context = &self.0;
        let deadline = context.admit_local(&request)?;
        let local = request.get_ref().serializable;
        if !local {
            context.admit(&request)?;
        }
        let request = range_request_from_wire(request.into_inner())?;
        if request.range.key.is_empty() {
            return Err(refusal_to_status(&Refusal::EmptyKey));
        }
        if local {
            context.serving(&deadline).await?;
        } else {
            context.read_index(&deadline).await?;
        }
        Ok(request)
    }

    /// Reads a range from a snapshot, which costs writers nothing; a long one off the threads that serve
    /// others.
    async fn read_many(&self, request: RangeRequest) -> Result<(Revision, RangeReply), Status> {
        let snapshot = self.0.core.read().snapshot();
        let revision = snapshot.revision();
        let reply = if is_long(&snapshot, &request) {
            let read = blocking(&*self.0.workers, move || snapshot.range(&request));
            read.await.map_err(|_| Status::internal("the read did not end"))?
        } else {
            snapshot.range(&request)
        };
        Ok((revision, reply.map_err(|refusal| refusal_to_status(&refusal))?))
    }

    async fn read_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Answered<<Self as Kv>::RangeStreamStream> {
        let asked = request.get_ref();
        if asked.sort_order != SortOrder::None as i32 || asked.sort_target != SortTarget::Key as i32 {
            return Err(Status::unimplemented(
                "etcdserver: range stream does not support custom sort orders",
            ));
        }
        let bounds = [
            asked.min_mod_revision,
            asked.max_mod_revision,
            asked.min_create_revision,
            asked.max_create_revision,
        ];
        if bounds.iter().any(|bound| *bound != 0) {
            return Err(Status::unimplemented("etcdserver: range stream does not support revision filters"));
        }
        let request = self.confirmed(request).await?;
        let (revision, reply) = self.read_many(request).await?;
        let last = pb::RangeResponse {
            header: self.0.header(revision),
            kvs: Vec::new(),
            more: reply.more,
            count: reply.count,
        };
        Ok(Response::new(chunks(reply.kvs, last).boxed()))
    }

    async fn read_txn(&self, txn: &Txn, deadline: &Deadline) -> Result<(Revision, TxnReply), Status> {
        if is_local(txn) {
            self.0.serving(deadline).await?;
        } else {
            self.0.read_index(deadline).await?;
        }
        let core = self.0.core.read();
        let reply = core.read_txn(txn).map_err(|refusal| refusal_to_status(&refusal))?;
        Ok((core.revision(), reply))
    }
}

/// True if every range of a transaction allows an answer from the replica's own state.
fn is_local(txn: &Txn) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure).peekable();
    ops.peek().is_some() && ops.all(|op| matches!(op, Op::Range(range) if range.serializable))
}

/// True if reading the range would hold up the other calls of a thread.
fn is_long(snapshot: &Snapshot, request: &RangeRequest) -> bool {
    if (1..=INLINE_KEYS).contains(&request.limit) && request.sort_order == SortOrder::None {
        return false;
    }
    let count = RangeRequest { range: request.range.clone(), count_only: true, ..RangeRequest::default() };
    snapshot.range(&count).is_ok_and(|reply| reply.count > INLINE_KEYS)
}

/// The keys in chunks; the last one carries what is said once.
fn chunks(
    kvs: Vec<Arc<KeyValue>>,
    last: pb::RangeResponse,
) -> impl Stream<Item = Result<pb::RangeStreamResponse, Status>> {
    let mut rest = kvs.into_iter().peekable();
    let mut last = Some(last);
    stream::iter(std::iter::from_fn(move || {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while bytes < CHUNK_BYTES
            && let Some(kv) = rest.next()
        {
            let kv = key_value_to_wire(&kv);
            bytes += kv.encoded_len();
            chunk.push(kv);
        }
        let mut response = pb::RangeResponse::default();
        if rest.peek().is_none() {
            response = last.take()?;
        }
        response.kvs = chunk;
        Some(Ok(pb::RangeStreamResponse { range_response: Some(response) }))
    }))
}

/// The state answered a command with another command's answer: cannot happen, and is no reason to stop
/// serving.
fn wrong_answer() -> Status {
    Status::internal("the answer does not fit the request")
}
