//! The life of a replica: bind every port, form or join the cluster, serve, hand over, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use meta_raft::{
    AppliedBatch, ApplyHook, Listener, RaftHandle, RaftOptions, RaftStatus, Seams, TcpNet, Threads,
};
use meta_store::RealDisk;
use meta_types::Revision;
use process_kit::net::{BindError, Listen, bind};
use process_kit::{Metrics, Shutdown, SystemClock, SystemRng};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::consensus::Consensus;
use crate::context::{Context, CoreHistory};
use crate::metrics::ReplicaMetrics;
use crate::options::ReplicaOptions;
use crate::quota::Quota;
use crate::upkeep::CompactionRules;
use crate::watch::{Dispatcher, Feed, FeedItem, Headers, Hub};
use crate::{http, leader, lease_expiry, server, services, upkeep};

/// How long a leader that stops waits for each possible successor.
const HAND_OVER: Duration = Duration::from_millis(750);

/// Why a replica does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A port.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A port that was bound has no address.
    #[error("the port's address cannot be read: {0}")]
    Address(#[source] std::io::Error),
    /// A key that cannot work.
    #[error("{key}: {why}")]
    Config {
        /// The key.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Consensus or its disk.
    #[error(transparent)]
    Raft(#[from] meta_raft::StartError),
    /// The shutdown came first.
    #[error("stopped before the cluster was formed")]
    Stopped,
}

/// The open ports of a replica.
pub struct Ports {
    /// Where clients come.
    pub client: Box<dyn Listener>,
    /// Where peers come.
    pub peer: Box<dyn Listener>,
}

/// A running replica.
pub struct Replica {
    client_addr: SocketAddr,
    peer_addr: SocketAddr,
    raft: RaftHandle,
    context: Arc<Context>,
    metrics: Metrics,
    tasks: Vec<JoinHandle<()>>,
}

impl Replica {
    /// Binds the ports, forms or joins the cluster, and serves. Returns once this replica is a member; until
    /// then the client port answers that it waits. `shutdown` begun ends the wait; after this returns,
    /// [`Replica::shutdown`] is the way to stop.
    pub async fn start(options: ReplicaOptions, shutdown: &Shutdown) -> Result<Self, StartError> {
        let ports = bind_ports(&options).await?;
        let address = |port: &dyn Listener| port.local_addr().map_err(StartError::Address);
        let raft_options = options.raft(address(&*ports.client)?, address(&*ports.peer)?)?;
        let seams = Seams {
            clock: Arc::new(SystemClock::new()),
            rng: Arc::new(SystemRng),
            disk: Arc::new(RealDisk),
            net: Arc::new(TcpNet),
            workers: Arc::new(Threads),
        };
        Self::start_with(options, raft_options, seams, ports, shutdown, |_| ()).await
    }

    /// The same in a world that is given: `raft_options` are those of [`ReplicaOptions::raft`], as they are or with
    /// smaller limits. `joined` is called once this replica is a member: from then on it votes.
    pub async fn start_with(
        options: ReplicaOptions,
        raft_options: RaftOptions,
        seams: Seams,
        ports: Ports,
        shutdown: &Shutdown,
        joined: impl FnMut(&RaftHandle),
    ) -> Result<Self, StartError> {
        let Ports { client, peer } = ports;
        let client_addr = client.local_addr().map_err(StartError::Address)?;
        let peer_addr = peer.local_addr().map_err(StartError::Address)?;
        let (feed, items) = Feed::new();
        let hook = Arc::new(FeedHook(feed.clone()));
        let formed = CancellationToken::new();
        // Ends the waiting server on every way out of here.
        let over = formed.clone().drop_guard();
        let waiting = tokio::spawn(server::serve(client, http::waiting_routes(), formed));
        // In a box: it holds options and disk by value, and whoever waits for a replica would carry them along.
        let raft = Box::pin(meta_raft::start(raft_options, seams.clone(), peer, hook));
        let raft = tokio::select! {
            raft = raft => raft.map_err(StartError::from),
            () = shutdown.begun() => Err(StartError::Stopped),
        };
        raft.iter().for_each(joined);
        drop(over);
        // Before an error is told: whoever starts again finds the port free.
        let client = waiting.await.map_err(|_| StartError::Stopped)?;
        let raft = raft?;
        let metrics = Metrics::new("replica");
        let (context, mut tasks) = build(&options, &raft, &seams, &metrics);
        let history = Arc::new(CoreHistory(context.core.clone()));
        let dispatcher = Dispatcher::new(context.hub.clone(), history, feed.clone(), items);
        tasks.push(tokio::spawn(dispatcher.run(context.shutdown.clone())));
        context.metrics.attach(&context, &feed);
        let router = services::routes(&context)
            .into_axum_router()
            .merge(http::routes(context.clone(), metrics.clone()))
            .fallback(server::not_found);
        let serving = server::serve(client, router, context.shutdown.clone());
        tasks.push(tokio::spawn(async move { drop(serving.await) }));
        let member = context.headers.member_id;
        tracing::info!(client = %client_addr, peer = %peer_addr, member, "replica started");
        Ok(Self { client_addr, peer_addr, raft, context, metrics, tasks })
    }

    /// Where clients reach it: the port that was bound.
    pub fn client_addr(&self) -> SocketAddr {
        self.client_addr
    }

    /// Where peers reach it: the port that was bound.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// Its part in the consensus.
    pub fn raft(&self) -> &RaftHandle {
        &self.raft
    }

    /// What it knows of its cluster.
    pub fn status(&self) -> watch::Receiver<RaftStatus> {
        self.context.status.clone()
    }

    /// Its figures.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns once it may show its state and a leader is known.
    pub async fn ready(&self) {
        let mut status = self.context.status.clone();
        // The sender ends with the replica; then nobody waits any more.
        let _ = status.wait_for(|status| status.serving && status.leader.is_some()).await;
    }

    /// Returns with the reason if consensus stops for good, such as a failed disk.
    pub async fn failed(&self) -> String {
        let mut status = self.context.status.clone();
        let failed = status.wait_for(|status| status.failed.is_some()).await;
        match failed {
            Ok(status) => status.failed.clone().unwrap_or_default(),
            Err(_) => "consensus has stopped".to_owned(),
        }
    }

    /// Stops: hands leadership over, ends the streams, lets calls under way finish, closes the log.
    pub async fn shutdown(self) {
        self.hand_over().await;
        self.context.shutdown.cancel();
        for task in self.tasks {
            // A task that panicked has been reported by the panic.
            let _ = task.await;
        }
        self.raft.shutdown().await;
        tracing::info!("replica stopped");
    }

    /// Ends at once, as if the process was killed: no hand-over, no drain. For tests.
    pub async fn abandon(self) {
        for task in &self.tasks {
            task.abort();
        }
        self.context.shutdown.cancel();
        self.raft.shutdown().await;
    }

    /// Offers the leadership to one voter after the other until one has it.
    async fn hand_over(&self) {
        let mut status = self.context.status.clone();
        let now = status.borrow_and_update().clone();
        let others = now.members.iter().filter(|member| member.voter && member.id != now.member_id);
        for successor in others {
            if !status.borrow().is_leader() {
                return;
            }
            self.raft.transfer_leader(successor.id).await;
            let led_by_other = |status: &RaftStatus| status.leader.is_some() && !status.is_leader();
            if tokio::time::timeout(HAND_OVER, status.wait_for(led_by_other)).await.is_ok() {
                tracing::info!(successor = successor.member.name, "leadership handed over");
                return;
            }
            tracing::warn!(successor = successor.member.name, "did not take over in time");
        }
    }
}

async fn bind_ports(options: &ReplicaOptions) -> Result<Ports, BindError> {
    let client = Listen {
        addr: options.listen_client,
        key: "listen.client",
        exposes: "whoever reaches it reads and writes every key",
        insecure: options.insecure,
    };
    let peer = Listen {
        addr: options.listen_peer,
        key: "listen.peer",
        exposes: "whoever reaches it can put anything into the log",
        insecure: options.insecure,
    };
    Ok(Ports { client: Box::new(bind(client).await?), peer: Box::new(bind(peer).await?) })
}

/// What the services share, and the tasks beside them.
fn build(
    options: &ReplicaOptions,
    raft: &RaftHandle,
    seams: &Seams,
    metrics: &Metrics,
) -> (Arc<Context>, Vec<JoinHandle<()>>) {
    let mut status = raft.status();
    let now = status.borrow_and_update().clone();
    let core = raft.core();
    let head = core.read().revision();
    let (has_leader_sender, has_leader) = watch::channel(now.leader.is_some());
    let headers = Headers {
        cluster_id: now.cluster_id,
        member_id: now.member_id,
        term: Arc::new(AtomicU64::new(now.term)),
    };
    let shutdown = CancellationToken::new();
    let following = leader::follow(status.clone(), headers.term.clone(), shutdown.clone());
    let consensus: Arc<dyn Consensus> = Arc::new(raft.clone());
    let probing = leader::probe(consensus.clone(), has_leader_sender, options.election_max, shutdown.clone());
    let context = Arc::new(Context {
        consensus,
        core,
        status,
        has_leader,
        headers,
        hub: Arc::new(Hub::new(head)),
        quota: Quota::new(options.quota.0, options.history_max_bytes.0 == 0),
        clock: seams.clock.clone(),
        rng: seams.rng.clone(),
        workers: seams.workers.clone(),
        metrics: ReplicaMetrics::new(metrics),
        leader_patience: options.election_max,
        progress_interval: options.progress_interval,
        shutdown,
    });
    let rules = CompactionRules {
        history_max_bytes: options.history_max_bytes.0,
        periodic: options.compact_periodic,
        revisions: options.compact_revisions,
    };
    let tasks = vec![
        tokio::spawn(following),
        tokio::spawn(probing),
        tokio::spawn(lease_expiry::run(context.clone())),
        tokio::spawn(upkeep::run(context.clone(), rules)),
    ];
    (context, tasks)
}

/// Puts what is applied into the watch feed.
struct FeedHook(Arc<Feed>);

impl ApplyHook for FeedHook {
    fn applied(&self, batches: Vec<AppliedBatch>) {
        let Some(revision) = batches.last().map(|batch| batch.revision) else { return };
        let events: Vec<_> = batches.into_iter().flat_map(|batch| batch.events).collect();
        if !events.is_empty() {
            self.0.report(revision, FeedItem::Applied(events));
        }
    }

    fn jumped(&self, revision: Revision, _: Revision) {
        self.0.report(revision, FeedItem::Jumped);
    }
}
