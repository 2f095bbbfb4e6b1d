//! openraft's view of the network: appends pipelined over a standing connection, votes, checkpoints.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use meta_types::controls::{Control, active};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;

use super::BoxFuture;
use super::link::{Link, LinkError, Pending};
use super::message::{Append, Reply, Request};
use super::peers::{PeerLinks, Peers};
use super::transfer;
use crate::checkpoint::CheckpointData;
use crate::options::Timing;
use crate::types::{LogId, Member, TypeConfig, Vote};
use crate::workers::Workers;

/// Appends on their way to one peer. openraft resumes from the last acknowledged one after an error.
const PIPELINE: usize = 32;

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;
type AppendStream<'s> =
    std::pin::Pin<Box<dyn Stream<Item = RpcResult<StreamAppendResult<TypeConfig>>> + Send + 's>>;

/// Makes openraft's clients.
pub(crate) struct Transport {
    pub(crate) peers: Arc<Peers>,
    pub(crate) timing: Timing,
    pub(crate) workers: Arc<dyn Workers>,
}

/// One of openraft's clients: one peer, one purpose.
pub(crate) struct PeerClient {
    peers: Arc<Peers>,
    links: Arc<PeerLinks>,
    appends: Arc<Link>,
    target: u64,
    addr: String,
    /// Floor of an answer's deadline.
    floor: Duration,
    install: Duration,
    workers: Arc<dyn Workers>,
}

impl Transport {
    fn client(&self, target: u64, node: &Member, heartbeats: bool) -> PeerClient {
        let links = self.peers.links(target, &node.peer_addr);
        let appends = if heartbeats { links.heartbeats.clone() } else { links.appends.clone() };
        PeerClient {
            peers: self.peers.clone(),
            links,
            appends,
            target,
            addr: node.peer_addr.clone(),
            floor: self.timing.append_floor,
            install: self.timing.install,
            workers: self.workers.clone(),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Transport {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &Member) -> PeerClient {
        self.client(target, node, false)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> PeerClient {
        self.client(target, node, true)
    }
}

impl PeerClient {
    fn deadline(&self, option: &RPCOption) -> Duration {
        option.soft_ttl().max(self.floor)
    }

    async fn control(&self, request: Request, option: &RPCOption) -> RpcResult<Reply> {
        self.links.control.call(request, vec![], self.deadline(option)).await.map_err(rpc_error)
    }
}

/// The last entry that a peer has once it took the request.
fn last_of(rpc: &AppendEntriesRequest<TypeConfig>) -> Option<LogId> {
    rpc.entries.last().map(|entry| entry.log_id).or(rpc.prev_log_id)
}

async fn start_append(link: &Link, rpc: AppendEntriesRequest<TypeConfig>) -> RpcResult<Pending> {
    let (append, payloads) = Append::split(rpc).map_err(|e| RPCError::Unreachable(Unreachable::new(&e)))?;
    link.start(Request::Append(append), payloads).await.map_err(rpc_error)
}

async fn await_append(pending: Pending, timeout: Duration) -> RpcResult<StreamAppendResult<TypeConfig>> {
    match pending.wait(timeout).await.map_err(rpc_error)? {
        Reply::Append(result) => Ok(result),
        other => Err(unexpected(&other)),
    }
}

impl RaftNetworkV2<TypeConfig> for PeerClient {
    type SnapshotData = CheckpointData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let pending = start_append(&self.appends, rpc).await?;
        await_append(pending, self.deadline(&option)).await.map(Into::into)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<AppendStream<'s>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        let timeout = self.deadline(&option);
        let link = self.appends.clone();
        // `then` starts one request after the other, in order; only the waiting for answers overlaps.
        let started = input.then(move |rpc| {
            let link = link.clone();
            async move { (last_of(&rpc), start_append(&link, rpc).await) }
        });
        let answers = started.map(move |(last, started)| async move {
            let answer = match started {
                Ok(pending) => await_append(pending, timeout).await,
                Err(error) => Err(error),
            };
            // Positive control: a peer that does not answer counts as one that has it.
            if answer.is_err() && active(Control::AckBeforeQuorum) { Ok(Ok(last)) } else { answer }
        });
        let answers = answers.buffered(PIPELINE);
        Box::pin(async move { Ok(Box::pin(answers) as AppendStream<'s>) })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        match self.control(Request::Vote(rpc), &option).await? {
            Reply::Vote(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        match self.control(Request::PreVote(rpc), &option).await? {
            Reply::Vote(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, CheckpointData>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let sent = transfer::send(&self.peers, &*self.workers, self.target, &self.addr, vote, snapshot);
        tokio::select! {
            closed = cancel => Err(closed.into()),
            done = tokio::time::timeout(self.install, sent) => match done {
                Ok(Ok(vote)) => Ok(SnapshotResponse { vote }),
                Ok(Err(error)) => Err(Unreachable::new(&error).into()),
                Err(_) => Err(NetworkError::from_string("the checkpoint took too long").into()),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        match self.control(Request::TransferLeader(req), &option).await? {
            Reply::TransferLeader(None) => Ok(Ok(())),
            Reply::TransferLeader(Some(why)) => Err(NetworkError::from_string(why).into()),
            other => Err(unexpected(&other)),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        // A peer that comes back is found within this time; the link itself limits the attempts.
        Some(Backoff::new(std::iter::repeat(Duration::from_millis(100))))
    }
}

fn rpc_error(error: LinkError) -> RPCError<TypeConfig> {
    match error {
        LinkError::Unreachable { .. } => Unreachable::new(&error).into(),
        LinkError::NoAnswer(_) => NetworkError::new(&error).into(),
    }
}

fn unexpected(reply: &Reply) -> RPCError<TypeConfig> {
    Unreachable::from_string(format!("the peer answered {reply:?}")).into()
}
