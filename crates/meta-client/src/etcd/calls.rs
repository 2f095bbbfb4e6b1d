//! The calls, each a message and back.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use meta_api::convert;
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::kv_client::KvClient;
use meta_api::pb::etcdserverpb::lease_client::LeaseClient;
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, PutReply, PutRequest, RangeReply, RangeRequest, Revision,
    Txn, TxnReply,
};
use tonic::Status;
use tonic::transport::Channel;

use super::EtcdKv;
use super::connection::{Repeat, timed};
use crate::kv::{Kv, KvError, LeaseGranted, Revisioned, WatchRequest, Watcher};

/// gRPC's NOT_FOUND.
const NOT_FOUND: i32 = 5;
/// gRPC's FAILED_PRECONDITION: etcd's code for a lease that exists.
const FAILED_PRECONDITION: i32 = 9;

fn kv_client(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(usize::MAX)
}

fn revision(header: Option<&pb::ResponseHeader>) -> Revision {
    header.map_or(0, |header| header.revision)
}

/// An answer of a server that does not keep to the protocol: what it did is not known.
fn bad_answer(error: convert::BadAnswer) -> KvError {
    KvError::Unknown(error.to_string())
}

#[async_trait]
impl Kv for EtcdKv {
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        let message = convert::range_request_to_wire(request);
        let call = |channel, limit| {
            let request = timed(message.clone(), limit);
            async move { kv_client(channel).range(request).await }
        };
        let reply = self.connections.call(Repeat::Always, call).await?.into_inner();
        Ok(Revisioned {
            revision: revision(reply.header.as_ref()),
            value: convert::range_reply_from_wire(reply),
        })
    }

    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        let message = convert::put_request_to_wire(request);
        let call = |channel, limit| {
            let request = timed(message.clone(), limit);
            async move { kv_client(channel).put(request).await }
        };
        let reply = self.connections.call(Repeat::IfNotSent, call).await?.into_inner();
        Ok(Revisioned {
            revision: revision(reply.header.as_ref()),
            value: convert::put_reply_from_wire(reply),
        })
    }

    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        let message = convert::delete_request_to_wire(request);
        let call = |channel, limit| {
            let request = timed(message.clone(), limit);
            async move { kv_client(channel).delete_range(request).await }
        };
        let reply = self.connections.call(Repeat::IfNotSent, call).await?.into_inner();
        Ok(Revisioned {
            revision: revision(reply.header.as_ref()),
            value: convert::delete_reply_from_wire(reply),
        })
    }

    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        let repeat = if txn.is_read_only() { Repeat::Always } else { Repeat::IfNotSent };
        let message = convert::txn_to_wire(txn);
        let call = |channel, limit| {
            let request = timed(message.clone(), limit);
            async move { kv_client(channel).txn(request).await }
        };
        let reply = self.connections.call(repeat, call).await?.into_inner();
        let revision = revision(reply.header.as_ref());
        let value = convert::txn_reply_from_wire(reply).map_err(bad_answer)?;
        Ok(Revisioned { revision, value })
    }

    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        let call = |channel, limit| {
            let request = timed(pb::CompactionRequest { revision, physical: false }, limit);
            async move { kv_client(channel).compact(request).await }
        };
        self.connections.call(Repeat::IfNotSent, call).await.map(drop)
    }

    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        // With an id of our own the grant can be repeated: "exists" after an unknown outcome is the first one.
        let chosen = if id != 0 { id } else { (self.connections.rng().next_u64() >> 1).max(1) as LeaseId };
        let message = pb::LeaseGrantRequest { ttl: ttl.as_secs() as i64, id: chosen };
        let call = |channel: Channel, limit| {
            let request = timed(message, limit);
            async move { LeaseClient::new(channel).lease_grant(request).await }
        };
        let repeat = if id == 0 { Repeat::Always } else { Repeat::IfNotSent };
        match self.connections.call(repeat, call).await {
            Ok(reply) => {
                let reply = reply.into_inner();
                Ok(LeaseGranted { id: reply.id, ttl: Duration::from_secs(reply.ttl.max(0) as u64) })
            }
            Err(KvError::Rejected { code: FAILED_PRECONDITION, .. }) if id == 0 => {
                let left = self.lease_keep_alive(chosen).await?;
                let gone = || KvError::Unknown("the lease was granted and is gone".into());
                Ok(LeaseGranted { id: chosen, ttl: left.ok_or_else(gone)? })
            }
            Err(error) => Err(error),
        }
    }

    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        let call = |channel: Channel, limit| async move {
            let requests = tokio_stream::once(pb::LeaseKeepAliveRequest { id });
            let mut answers =
                LeaseClient::new(channel).lease_keep_alive(timed(requests, limit)).await?.into_inner();
            answers.message().await?.ok_or_else(|| Status::unavailable("the keep-alive stream ended"))
        };
        let reply = self.connections.call(Repeat::Always, call).await?;
        Ok((reply.ttl > 0).then(|| Duration::from_secs(reply.ttl as u64)))
    }

    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        let mut tries = 0;
        let call = |channel: Channel, limit| {
            tries += 1;
            let request = timed(pb::LeaseRevokeRequest { id }, limit);
            async move { LeaseClient::new(channel).lease_revoke(request).await }
        };
        match self.connections.call(Repeat::Always, call).await {
            Ok(_) => Ok(()),
            // An earlier try that was not answered may have done it; either way the lease is gone.
            Err(KvError::Rejected { code: NOT_FOUND, .. }) if tries > 1 => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        let call = |channel: Channel, limit| {
            let request = timed(pb::LeaseTimeToLiveRequest { id, keys: false }, limit);
            async move { LeaseClient::new(channel).lease_time_to_live(request).await }
        };
        let reply = self.connections.call(Repeat::Always, call).await?.into_inner();
        Ok((reply.ttl >= 0).then(|| Duration::from_secs(reply.ttl as u64)))
    }

    fn apart(&self) -> Option<Arc<dyn Kv>> {
        Some(Arc::new(Self { connections: Arc::new(self.connections.apart()?) }))
    }

    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        super::watch::start(std::sync::Arc::clone(&self.connections), request).await
    }
}
