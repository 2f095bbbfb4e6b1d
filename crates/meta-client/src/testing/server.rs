//! [`MemKv`] on the wire: a replica without a cluster, for tests of the network client. Several servers may share one
//! store; each can be cut off.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use meta_api::convert;
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::kv_server::{Kv as KvService, KvServer};
use meta_api::pb::etcdserverpb::lease_server::{Lease as LeaseService, LeaseServer};
use meta_api::pb::etcdserverpb::watch_request::RequestUnion;
use meta_api::pb::etcdserverpb::watch_server::{Watch as WatchService, WatchServer};
use meta_types::Revision;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::kv::{Kv, KvError, WatchRequest};
use crate::mem::MemKv;

/// How often, and after which pause, it is looked at whether a stopped server still listens.
const LOOKS: u32 = 1000;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a test tells a server to do.
#[derive(Default)]
pub struct Switches {
    /// Answers everything with "no leader".
    pub no_leader: AtomicBool,
    /// Carries writes out and hangs up without an answer, so many times.
    pub lose_answers: AtomicUsize,
}

/// A running server, on a runtime of its own: when that ends, every connection breaks.
pub struct TestServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it is told to do.
    pub switches: Arc<Switches>,
    runtime: Option<Runtime>,
}

impl TestServer {
    /// Serves the store on a free loopback port.
    pub fn start(kv: MemKv) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("a bound port");
        let switches = Arc::<Switches>::default();
        let service = Service { kv, switches: Arc::clone(&switches) };
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
            tonic::transport::Server::builder()
                .add_service(KvServer::new(service.clone()))
                .add_service(LeaseServer::new(service.clone()))
                .add_service(WatchServer::new(service))
                .serve_with_incoming(incoming)
                .await
        });
        Self { address, switches, runtime: Some(runtime) }
    }

    /// Cuts it off: connections break, nothing listens any more.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
            // The runtime ends in its own time; until then the kernel takes connections that nobody will serve.
            for _ in 0..LOOKS {
                if std::net::TcpStream::connect(self.address).is_err() {
                    return;
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Clone)]
struct Service {
    kv: MemKv,
    switches: Arc<Switches>,
}

impl Service {
    fn lead(&self) -> Result<(), Status> {
        if self.switches.no_leader.load(Ordering::SeqCst) {
            return Err(Status::unavailable(meta_api::status::NO_LEADER));
        }
        Ok(())
    }

    /// The answer of a write, unless it is to be lost.
    fn answer<T>(&self, reply: T) -> Result<Response<T>, Status> {
        let lose = |left: usize| left.checked_sub(1);
        match self.switches.lose_answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose) {
            Ok(_) => Err(Status::unavailable("connection reset")),
            Err(_) => Ok(Response::new(reply)),
        }
    }
}

fn header(revision: Revision) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { cluster_id: 1, member_id: 1, revision, raft_term: 1 })
}

fn status(error: KvError) -> Status {
    match error {
        KvError::Rejected { code, message } => Status::new(Code::from(code), message),
        KvError::Compacted { compact_revision } => {
            meta_api::status::refusal_to_status(&meta_types::Refusal::Compacted { compact_revision })
        }
        KvError::NotSent(message) | KvError::Unknown(message) => Status::unavailable(message),
    }
}

#[tonic::async_trait]
impl KvService for Service {
    type RangeStreamStream =
        Pin<Box<dyn Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send + 'static>>;

    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        self.lead()?;
        let request = convert::range_request_from_wire(request.into_inner())?;
        let reply = self.kv.range(request).await.map_err(status)?;
        Ok(Response::new(convert::range_reply_to_wire(&reply.value, header(reply.revision))))
    }

    async fn range_stream(
        &self,
        _: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("not for tests"))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        self.lead()?;
        let reply =
            self.kv.put(convert::put_request_from_wire(request.into_inner())).await.map_err(status)?;
        self.answer(convert::put_reply_to_wire(&reply.value, header(reply.revision)))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        self.lead()?;
        let request = convert::delete_request_from_wire(request.into_inner());
        let reply = self.kv.delete_range(request).await.map_err(status)?;
        self.answer(convert::delete_reply_to_wire(&reply.value, header(reply.revision)))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        self.lead()?;
        let txn = convert::txn_from_wire(request.into_inner())?;
        let read_only = txn.is_read_only();
        let reply = self.kv.txn(txn).await.map_err(status)?;
        let answer = convert::txn_reply_to_wire(&reply.value, reply.revision, header(reply.revision));
        if read_only { Ok(Response::new(answer)) } else { self.answer(answer) }
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        self.lead()?;
        self.kv.compact(request.into_inner().revision).await.map_err(status)?;
        Ok(Response::new(pb::CompactionResponse { header: header(self.kv.revision()) }))
    }
}

#[tonic::async_trait]
impl LeaseService for Service {
    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send + 'static>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        self.lead()?;
        let request = request.into_inner();
        let ttl = Duration::from_secs(request.ttl.max(0) as u64);
        let granted = self.kv.lease_grant(request.id, ttl).await.map_err(status)?;
        self.answer(pb::LeaseGrantResponse {
            header: header(self.kv.revision()),
            id: granted.id,
            ttl: granted.ttl.as_secs() as i64,
            error: String::new(),
        })
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        self.lead()?;
        self.kv.lease_revoke(request.into_inner().id).await.map_err(status)?;
        self.answer(pb::LeaseRevokeResponse { header: header(self.kv.revision()) })
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.lead()?;
        let kv = self.kv.clone();
        let answers = request.into_inner().then(move |request| {
            let kv = kv.clone();
            async move {
                let id = request?.id;
                let ttl = kv.lease_keep_alive(id).await.map_err(status)?;
                let ttl = ttl.map_or(0, |ttl| ttl.as_secs() as i64);
                Ok(pb::LeaseKeepAliveResponse { header: header(kv.revision()), id, ttl })
            }
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let id = request.into_inner().id;
        let left = self.kv.lease_time_to_live(id).await.map_err(status)?;
        Ok(Response::new(pb::LeaseTimeToLiveResponse {
            header: header(self.kv.revision()),
            id,
            ttl: left.map_or(-1, |left| left.as_secs() as i64),
            granted_ttl: 0,
            keys: vec![],
        }))
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        Err(Status::unimplemented("not for tests"))
    }
}

#[tonic::async_trait]
impl WatchService for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send + 'static>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.lead()?;
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|request| request.request_union);
        let Some(RequestUnion::CreateRequest(create)) = first else {
            return Err(Status::invalid_argument("the first request makes the watch"));
        };
        let prev_kv = create.prev_kv;
        let request = WatchRequest {
            range: meta_types::KeyRange::between(create.key, create.range_end),
            start_revision: create.start_revision,
            prev_kv,
        };
        let made =
            pb::WatchResponse { created: true, header: header(self.kv.revision()), ..Default::default() };
        let watcher = match self.kv.watch(request).await {
            Ok(watcher) => watcher,
            Err(KvError::Compacted { compact_revision }) => {
                let ended = pb::WatchResponse { canceled: true, compact_revision, ..Default::default() };
                return Ok(Response::new(tokio_stream::iter([Ok(made), Ok(ended)]).boxed()));
            }
            Err(error) => return Err(status(error)),
        };
        let created_at = watcher.created_at;
        let made = pb::WatchResponse { header: header(created_at), ..made };
        let batches = watcher.batches.map(move |batch| {
            let batch = batch.map_err(status)?;
            let events = batch.events.iter().map(|event| convert::event_to_wire(event, prev_kv)).collect();
            Ok(pb::WatchResponse { header: header(batch.revision), events, ..Default::default() })
        });
        // The client's side is held open by being read until its end.
        let closed = Box::pin(async move { drop(requests.message().await) });
        let answers = tokio_stream::once(Ok(made)).chain(batches).take_until(closed);
        Ok(Response::new(answers.boxed()))
    }
}
