//! Leases. A renewal is answered after its entry is applied; the renewals of all streams share entries.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::lease_server::Lease;
use meta_api::status::{NO_LEADER, SERVER_STOPPED, refusal_to_status};
use meta_types::limits::{MAX_LEASE_TTL_S, MIN_LEASE_TTL_S};
use meta_types::{Command, LeaseId, Refusal, Response as Answer, Revision};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::call::Deadline;
use crate::context::Context;
use crate::metrics::Rpc;

/// Renewals that may wait for the next entry.
const RENEWALS_WAITING: usize = 16_384;
/// Renewals in one entry.
const RENEWALS_PER_ENTRY: usize = 1_024;
/// Answers a keep-alive stream may be ahead of its client.
const ANSWERS_AHEAD: usize = 16;

/// The Lease service.
#[derive(Clone)]
pub(crate) struct LeaseService {
    context: Arc<Context>,
    renewals: mpsc::Sender<Renewal>,
}

/// A renewal and where its answer goes: the revision and the TTL, 0 for an unknown lease.
struct Renewal {
    id: LeaseId,
    answer: oneshot::Sender<Result<(Revision, i64), Status>>,
}

type Answered<T> = Result<Response<T>, Status>;

impl LeaseService {
    /// The service; its renewals run until the context's shutdown.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let (renewals, waiting) = mpsc::channel(RENEWALS_WAITING);
        tokio::spawn(renew_all(context.clone(), waiting));
        Self { context, renewals }
    }

    fn lease_id(&self, asked: LeaseId) -> LeaseId {
        if asked != 0 {
            return asked;
        }
        loop {
            let id = (self.context.rng.next_u64() >> 1) as LeaseId;
            if id != 0 {
                return id;
            }
        }
    }
}

#[tonic::async_trait]
impl Lease for LeaseService {
    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_grant(&self, request: Request<pb::LeaseGrantRequest>) -> Answered<pb::LeaseGrantResponse> {
        let context = &self.context;
        let work = async {
            let deadline = context.admit(&request)?;
            let pb::LeaseGrantRequest { ttl, id } = request.into_inner();
            if ttl > MAX_LEASE_TTL_S {
                return Err(refusal_to_status(&Refusal::LeaseTtlTooLarge));
            }
            let command = Command::LeaseGrant { id: self.lease_id(id), ttl: ttl.max(MIN_LEASE_TTL_S) };
            let (revision, answer) = context.propose(command, &deadline).await?;
            let Answer::LeaseGrant { id, ttl } = answer else {
                return Err(Status::internal("the answer does not fit the request"));
            };
            let header = context.header(revision);
            Ok(Response::new(pb::LeaseGrantResponse { header, id, ttl, error: String::new() }))
        };
        context.metrics.measure(&context.clock, Rpc::LeaseGrant, work).await
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Answered<pb::LeaseRevokeResponse> {
        let context = &self.context;
        let work = async {
            let deadline = context.admit(&request)?;
            let command = Command::LeaseRevoke { id: request.into_inner().id };
            let (revision, _) = context.propose(command, &deadline).await?;
            Ok(Response::new(pb::LeaseRevokeResponse { header: context.header(revision) }))
        };
        context.metrics.measure(&context.clock, Rpc::LeaseRevoke, work).await
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Answered<Self::LeaseKeepAliveStream> {
        self.context.admit(&request)?;
        let (answers, out) = mpsc::channel(ANSWERS_AHEAD);
        tokio::spawn(keep_alive(self.clone(), request.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(out).boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Answered<pb::LeaseTimeToLiveResponse> {
        let context = &self.context;
        let work = async {
            let deadline = context.admit(&request)?;
            let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
            context.read_index(&deadline).await?;
            let core = context.core.read();
            let header = context.header(core.revision());
            let answer = match core.lease(id) {
                Some(lease) => pb::LeaseTimeToLiveResponse {
                    header,
                    id,
                    ttl: i64::try_from(lease.remaining_ms / 1000).unwrap_or(i64::MAX),
                    granted_ttl: lease.ttl_s,
                    keys: if keys { lease.keys } else { Vec::new() },
                },
                None => pb::LeaseTimeToLiveResponse { header, id, ttl: -1, granted_ttl: 0, keys: Vec::new() },
            };
            Ok(Response::new(answer))
        };
        context.metrics.measure(&context.clock, Rpc::LeaseTimeToLive, work).await
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Answered<pb::LeaseLeasesResponse> {
        let context = &self.context;
        let work = async {
            let deadline = context.admit(&request)?;
            context.read_index(&deadline).await?;
            let core = context.core.read();
            let leases = core.leases().into_iter().map(|id| pb::LeaseStatus { id }).collect();
            Ok(Response::new(pb::LeaseLeasesResponse { header: context.header(core.revision()), leases }))
        };
        context.metrics.measure(&context.clock, Rpc::LeaseLeases, work).await
    }
}

/// One keep-alive stream: each request is answered in order, after its renewal is applied.
async fn keep_alive(
    service: LeaseService,
    mut requests: Streaming<pb::LeaseKeepAliveRequest>,
    answers: mpsc::Sender<Result<pb::LeaseKeepAliveResponse, Status>>,
) {
    let context = &service.context;
    loop {
        let request = tokio::select! {
            () = context.shutdown.cancelled() => {
                // No room means the client does not read; it finds the stream closed.
                let _ = answers.try_send(Err(Status::unavailable(SERVER_STOPPED)));
                return;
            }
            () = answers.closed() => return,
            request = requests.next() => request,
        };
        let Some(Ok(pb::LeaseKeepAliveRequest { id })) = request else { return };
        let renewed = context.metrics.measure(&context.clock, Rpc::LeaseKeepAlive, service.renew(id)).await;
        let ends = renewed.is_err();
        let answer = renewed.map(|(revision, ttl)| pb::LeaseKeepAliveResponse {
            header: context.header(revision),
            id,
            ttl,
        });
        if answers.send(answer).await.is_err() || ends {
            return;
        }
    }
}

impl LeaseService {
    async fn renew(&self, id: LeaseId) -> Result<(Revision, i64), Status> {
        let (answer, renewed) = oneshot::channel();
        let stopped = || Status::unavailable(SERVER_STOPPED);
        self.renewals.send(Renewal { id, answer }).await.map_err(|_| stopped())?;
        renewed.await.map_err(|_| stopped())?
    }
}

/// Takes all renewals that wait into one entry, and the next ones while that is under way into the next.
async fn renew_all(context: Arc<Context>, mut waiting: mpsc::Receiver<Renewal>) {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return,
            taken = waiting.recv_many(&mut batch, RENEWALS_PER_ENTRY) => if taken == 0 { return },
        }
        let ids: Vec<_> = batch.iter().map(|renewal| renewal.id).collect();
        let renewed = context.propose(Command::LeaseKeepAlive { ids }, &Deadline::SERVER).await;
        let (revision, ttls) = match renewed {
            Ok((revision, Answer::LeaseKeepAlive { ttls })) if ttls.len() == batch.len() => (revision, ttls),
            other => {
                let status = other.err().unwrap_or_else(|| Status::unavailable(NO_LEADER));
                batch.drain(..).for_each(|renewal| drop(renewal.answer.send(Err(status.clone()))));
                continue;
            }
        };
        for (renewal, ttl) in batch.drain(..).zip(ttls) {
            // A client that left needs no answer.
            let _ = renewal.answer.send(Ok((revision, ttl)));
        }
    }
}
