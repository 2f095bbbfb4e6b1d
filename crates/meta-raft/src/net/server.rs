//! The receiving side: accepts peers, checks their hello, serves their requests.
//!
//! The port is open before this replica has a cluster, so that replicas can find each other; until it runs, only
//! questions about forming are answered. Appends of one connection are handed to openraft in the order they came
//! and answered in that order; everything else runs side by side.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use openraft::raft::AppendEntriesRequest;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::frame::{self, Frame, Outgoing};
use super::link::{BUFFER_BYTES, Call, Stream, write_frames};
use super::message::{Forwarded, Hello, HelloReply, MAGIC, NotLeader, PROTOCOL, Purpose, Reply, Request};
use super::transfer::{self, Done, Part};
use super::{BoxFuture, Connection, Listener};
use crate::checkpoint::{CheckpointData, Checkpoints};
use crate::forming::{self, Forming};
use crate::leader::LeaderDesk;
use crate::types::{LogId, Member, Raft, TypeConfig};
use crate::workers::blocking;

/// Connections served at a time: three a peer and some to spare; more are closed at once.
const MAX_CONNECTIONS: usize = 256;
/// A peer that says nothing for this long is gone; if it is not, it connects again.
const IDLE: Duration = Duration::from_secs(300);
/// Requests of one connection under way, and answers waiting to be written.
const MAX_UNDER_WAY: usize = 256;

/// What a replica that runs offers its peers.
pub(crate) struct Running {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
    pub(crate) raft: Raft,
    pub(crate) desk: LeaderDesk,
    pub(crate) checkpoints: Arc<Checkpoints>,
}

/// The server.
pub(crate) struct PeerServer {
    pub(crate) cluster_name: String,
    pub(crate) forming: Arc<Forming>,
    pub(crate) running: RwLock<Option<Arc<Running>>>,
}

impl PeerServer {
    /// Runs until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, listener: Box<dyn Listener>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(connection) if connections.len() < MAX_CONNECTIONS => {
                        let server = self.clone();
                        connections.spawn(async move {
                            if let Err(error) = server.serve(connection).await {
                                tracing::debug!(%error, "a peer's connection ended");
                            }
                        });
                    }
                    Ok(_) => tracing::warn!("too many peer connections; one was closed"),
                    Err(error) => {
                        // Out of file descriptors, say: closing connections is what helps.
                        tracing::warn!(%error, "a peer could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn serve(&self, connection: Box<dyn Connection>) -> io::Result<()> {
        let mut stream = BufReader::with_capacity(BUFFER_BYTES, connection);
        let Some(frame) = frame::read(&mut stream).await? else { return Ok(()) };
        let hello = frame.head::<Hello>()?;
        let running = self.running.read().clone();
        let refusal = self.refuse(&hello, running.as_deref());
        let answer = refusal.clone().map_or(HelloReply::Welcome, HelloReply::Refused);
        frame::write(&mut stream, &Outgoing::new(&answer, vec![])?).await?;
        stream.flush().await?;
        if let Some(why) = refusal {
            tracing::debug!(from = hello.from, why, "refused a peer");
            return Ok(());
        }
        match (hello.purpose, running) {
            (Purpose::Forming, _) => forming::answer(&mut stream, &self.forming).await,
            (Purpose::Calls, Some(running)) => serve_calls(stream, running).await,
            (Purpose::Checkpoint, Some(running)) => take_checkpoint(stream, running).await,
            (Purpose::FetchCheckpoint, Some(running)) => give_checkpoint(stream, running).await,
            (_, None) => Ok(()),
        }
    }

    fn refuse(&self, hello: &Hello, running: Option<&Running>) -> Option<String> {
        if hello.magic != MAGIC {
            return Some("this port is for metastore replicas".into());
        }
        if hello.protocol != PROTOCOL {
            return Some(format!("peer protocol {} where this replica speaks {PROTOCOL}", hello.protocol));
        }
        if hello.cluster_name != self.cluster_name {
            let (ours, theirs) = (&self.cluster_name, &hello.cluster_name);
            return Some(format!("this replica belongs to cluster {ours:?}, not {theirs:?}"));
        }
        if hello.purpose == Purpose::Forming {
            return None;
        }
        let Some(running) = running else { return Some("this replica has not joined a cluster yet".into()) };
        if hello.cluster_id != running.cluster_id {
            return Some(format!(
                "this replica belongs to the cluster {:x}, not {:x}",
                running.cluster_id, hello.cluster_id
            ));
        }
        if hello.to != running.member_id && hello.purpose != Purpose::FetchCheckpoint {
            return Some(format!("this is member {:x}, not {:x}", running.member_id, hello.to));
        }
        None
    }
}

async fn serve_calls(stream: Stream, running: Arc<Running>) -> io::Result<()> {
    let (mut reader, writer) = tokio::io::split(stream);
    let (replies, to_writer) = mpsc::channel(MAX_UNDER_WAY);
    let (appends, appended) = mpsc::channel(MAX_UNDER_WAY);
    let mut others = JoinSet::new();
    let read = async {
        while let Ok(frame) = tokio::time::timeout(IDLE, frame::read(&mut reader)).await {
            let Some(frame) = frame? else { break };
            let Call { id, body } = frame.head::<Call<Request>>()?;
            if let Request::Append(append) = body {
                let answer = start_append(&running.raft, append.join(frame.tail)?).await;
                if appends.send((id, answer)).await.is_err() {
                    break;
                }
                continue;
            }
            while others.len() >= MAX_UNDER_WAY {
                others.join_next().await;
            }
            while others.try_join_next().is_some() {}
            let (running, replies) = (running.clone(), replies.clone());
            others.spawn(async move {
                let reply = handle(&running, body, frame).await;
                send(&replies, id, reply).await;
            });
        }
        Ok(())
    };
    tokio::select! {
        read = read => read,
        written = write_frames(writer, to_writer) => written,
        () = answer_appends(appended, replies.clone()) => Ok(()),
    }
}

type AppendAnswer = BoxFuture<'static, Reply>;

/// Hands an append to openraft before the next frame is read; its answer comes later.
async fn start_append(raft: &Raft, rpc: AppendEntriesRequest<TypeConfig>) -> AppendAnswer {
    let raft = raft.clone();
    let mut answer: AppendAnswer = Box::pin(async move {
        let prev = rpc.prev_log_id;
        let last: Option<LogId> = rpc.entries.last().map(|entry| entry.log_id).or(prev);
        match raft.append_entries(rpc).await {
            Ok(response) => Reply::Append(response.into_stream_result(prev, last)),
            Err(_) => Reply::Stopped,
        }
    });
    // The first poll puts it into openraft's queue. `unconstrained`: the runtime must not make it wait its turn.
    let polled = tokio::task::unconstrained(std::future::poll_fn(|cx| {
        std::task::Poll::Ready(answer.as_mut().poll(cx))
    }));
    match polled.await {
        std::task::Poll::Ready(reply) => Box::pin(std::future::ready(reply)),
        std::task::Poll::Pending => answer,
    }
}

async fn answer_appends(mut appended: mpsc::Receiver<(u64, AppendAnswer)>, replies: mpsc::Sender<Outgoing>) {
    while let Some((id, answer)) = appended.recv().await {
        send(&replies, id, answer.await).await;
    }
    // The reader ended first; leave the rest to it.
    std::future::pending().await
}

async fn send(replies: &mpsc::Sender<Outgoing>, id: u64, body: Reply) {
    match Outgoing::new(&Call { id, body }, vec![]) {
        // A connection that broke meanwhile needs no answer.
        Ok(frame) => drop(replies.send(frame).await),
        Err(error) => tracing::error!(%error, "an answer to a peer cannot be encoded"),
    }
}

async fn handle(running: &Running, request: Request, frame: Frame) -> Reply {
    let Running { raft, desk, .. } = running;
    match request {
        Request::Append(_) => unreachable!("appends are handled in order, before"),
        Request::Vote(rpc) => raft.vote(rpc).await.map_or(Reply::Stopped, Reply::Vote),
        Request::PreVote(rpc) => raft.pre_vote(rpc).await.map_or(Reply::Stopped, Reply::Vote),
        Request::TransferLeader(rpc) => match raft.handle_transfer_leader(rpc).await {
            Ok(done) => Reply::TransferLeader(done.err().map(|e| e.to_string())),
            Err(_) => Reply::Stopped,
        },
        Request::Forward => match desk.propose_forwarded(BytesMut::from(frame.tail)).await {
            Some(forwarded) => Reply::Forward(forwarded),
            // Whatever happens to a replica that stops: somebody else may commit it.
            None => Reply::Forward(Forwarded::Discarded),
        },
        Request::ReadIndex => match desk.read_index().await {
            Ok(answer) => Reply::ReadIndex(answer),
            Err(_) => Reply::ReadIndex(Err(NotLeader { leader: None })),
        },
        Request::Announce { id, member } => Reply::Announce(announce(desk, id, member).await),
    }
}

/// Notes a member's new addresses in the membership; why not, if not.
pub(crate) async fn announce(desk: &LeaderDesk, id: u64, member: Member) -> Option<String> {
    let nodes = openraft::ChangeMembers::SetNodes([(id, member)].into());
    desk.raft.change_membership(nodes, true).await.err().map(|e| e.to_string())
}

/// A leader sends its checkpoint.
async fn take_checkpoint(stream: Stream, running: Arc<Running>) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let installed = receive_and_install(&mut reader, &running);
    let done = match transfer::saying(&mut writer, &Done::Working, installed).await {
        Ok(vote) => Done::Installed(vote),
        Err(error) => {
            tracing::warn!(%error, "a leader's checkpoint could not be taken");
            Done::Failed(error.to_string())
        }
    };
    frame::write(&mut writer, &Outgoing::new(&done, vec![])?).await?;
    writer.flush().await
}

async fn receive_and_install<R>(stream: &mut R, running: &Running) -> io::Result<crate::types::Vote>
where
    R: AsyncRead + Unpin,
{
    let no_vote = || io::Error::new(io::ErrorKind::InvalidData, "a leader's checkpoint without a vote");
    let start = transfer::read_start(stream).await?.ok_or_else(no_vote)?;
    let vote = start.vote.ok_or_else(no_vote)?;
    let (snapshot, meta) = transfer::receive(stream, start, running.checkpoints.clone()).await?;
    let generation = snapshot.generation.clone();
    generation.iter().for_each(|generation| running.checkpoints.offer(generation));
    let snapshot = openraft::storage::Snapshot { meta, snapshot };
    let installed = running.raft.install_full_snapshot(vote, snapshot).await;
    let checkpoints = running.checkpoints.clone();
    let discard = blocking(&*running.checkpoints.workers, move || {
        if let Some(generation) = generation {
            checkpoints.discard_unless_used(&generation);
        }
    });
    discard.await?;
    installed.map(|response| response.vote).map_err(io::Error::other)
}

/// A replica that has no state to start from asks for one.
async fn give_checkpoint(mut stream: Stream, running: Arc<Running>) -> io::Result<()> {
    let Some(frame) = frame::read(&mut stream).await? else { return Ok(()) };
    let at_least = frame.head::<u64>()?;
    let newest = newest_at_least(&running, at_least);
    match transfer::saying(&mut stream, &Part::Working, newest).await {
        Some(data) => transfer::write(&mut stream, &*running.checkpoints.workers, None, data).await,
        None => {
            frame::write(&mut stream, &Outgoing::new(&Part::None, vec![])?).await?;
            stream.flush().await
        }
    }
}

async fn newest_at_least(running: &Running, at_least: u64) -> Option<CheckpointData> {
    let enough = |checkpoints: &Checkpoints| {
        checkpoints.newest().is_some_and(|newest| newest.position.index >= at_least)
    };
    let checkpoints = running.checkpoints.clone();
    if !enough(&checkpoints) {
        checkpoints.build().await.ok()?;
    }
    if enough(&checkpoints) { checkpoints.current().map(|snapshot| snapshot.snapshot) } else { None }
}

/// Reads frames until `done`; for one-shot questions.
pub(crate) async fn ask<T: serde::Serialize>(stream: &mut Stream, question: &T) -> io::Result<Frame> {
    frame::write(stream, &Outgoing::new(question, vec![])?).await?;
    stream.flush().await?;
    frame::read(stream).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
