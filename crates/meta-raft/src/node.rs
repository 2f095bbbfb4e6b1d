//! How a replica's Raft part comes up and goes down.
//!
//! ```text
//!  lock, identity, log, checkpoints      (disk)
//!  answer peers about forming            (port)
//!  form or join, unless it is a member   -> forming
//!  a state to start from                 -> recover; from a peer if the disk has none
//!  openraft, courier, read rounds, checkpoint driver, status
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use meta_store::DirectoryLock;
use meta_types::Origin;
use openraft::errors::{InitializeError, RaftError};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::checkpoint::Checkpoints;
use crate::checkpoint_driver::CheckpointDriver;
use crate::config::openraft_config;
use crate::data_dir::DataDir;
use crate::errors::StartError;
use crate::forming::{self, Decision, Forming};
use crate::handle::{Inner, RaftHandle};
use crate::hook::ApplyHook;
use crate::leader::LeaderDesk;
use crate::lease_clock::LeaseClock;
use crate::log_store::{FlushTimes, Flusher, LogStore};
use crate::net::Listener;
use crate::net::peers::{Me, Peers};
use crate::net::server::{PeerServer, Running};
use crate::net::transport::Transport;
use crate::options::{RaftOptions, Seams};
use crate::proposer::{Courier, Proposer};
use crate::read_index::{ReadQueue, ReadRounds};
use crate::recover::Start;
use crate::state::State;
use crate::state_machine::StateMachine;
use crate::status::RaftStatus;
use crate::status_task::StatusTask;
use crate::types::{Member, Raft};
use crate::upkeep::Upkeep;

/// Everything that runs.
pub(crate) struct Tasks {
    tasks: JoinSet<()>,
    flusher: Flusher,
    peers: Arc<Peers>,
    _lock: DirectoryLock,
}

impl Tasks {
    /// Stops all of it.
    pub(crate) async fn stop(self, raft: &Raft) {
        let Self { mut tasks, flusher, peers, _lock } = self;
        tasks.shutdown().await;
        peers.close();
        if let Err(error) = raft.shutdown().await {
            tracing::warn!(%error, "consensus did not stop cleanly");
        }
        // Joins a thread that may wait for the disk.
        if tokio::task::spawn_blocking(move || flusher.stop()).await.is_err() {
            tracing::error!("the log's flusher could not be stopped");
        }
    }
}

/// Starts a replica's Raft part; returns when it is a member and runs. While it waits for peers to form a cluster
/// with, or to be added to one, it logs what is missing; dropping the future gives up.
pub async fn start(
    options: RaftOptions,
    seams: Seams,
    listener: Box<dyn Listener>,
    hook: Arc<dyn ApplyHook>,
) -> Result<RaftHandle, StartError> {
    let config = openraft_config(&options)?;
    let mut disk = DataDir::open(&options, &seams).await?;
    let forming = Arc::new(Forming::new(disk.identity.member_id, &options));
    if disk.identity.cluster_id != 0 {
        forming.set_starting();
    }
    let server = Arc::new(PeerServer {
        cluster_name: options.cluster_name.clone(),
        forming: forming.clone(),
        running: RwLock::new(None),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(server.clone().run(listener));
    let founders = join(&options, &seams, &forming, &mut disk).await?;
    let me = Me {
        cluster_id: disk.identity.cluster_id,
        cluster_name: options.cluster_name.clone(),
        member_id: disk.identity.member_id,
    };
    let peers = Arc::new(Peers::new(seams.net.clone(), me, options.timing.connect));
    let start = disk.state_to_start_from(&options, &peers).await?;
    let parts = Parts::new(&options, &seams, &disk, start);
    let log = LogStore::new(disk.wal.clone(), seams.clock.clone(), parts.flush_times.clone());
    let (log, flusher) = log.map_err(|e| StartError::Raft(e.to_string()))?;
    let launch = Launch { options, disk, forming, server, peers, parts };
    let transport = Transport { peers: launch.peers.clone(), timing: launch.options.timing };
    let grown = log.grown();
    let machine = launch.parts.state_machine(hook);
    let raft = Raft::new(launch.disk.identity.member_id, config, transport, log, machine).await;
    let raft = raft.map_err(|e| StartError::Raft(e.to_string()))?;
    if let Some(founders) = founders {
        found(&raft, founders).await?;
    }
    Ok(launch.run(raft, tasks, flusher, grown))
}

/// Makes this replica a member, if it is none yet. The founders, if it founds the cluster.
async fn join(
    options: &RaftOptions,
    seams: &Seams,
    forming: &Forming,
    disk: &mut DataDir,
) -> Result<Option<BTreeMap<u64, Member>>, StartError> {
    let known = disk.identity.cluster_id;
    let first = options.initial.iter().map(|m| &m.name).min() == Some(&options.node_name);
    if known != 0 && !(first && disk.log_is_empty()) {
        return Ok(None);
    }
    match forming::decide(options, seams, forming).await? {
        Decision::Found(founders) => {
            if known == 0 {
                // Never 0, which means none.
                disk.set_cluster(seams, (seams.rng.next_u64() >> 1).max(1)).await?;
            }
            forming.set_starting();
            Ok(Some(founders))
        }
        Decision::Join(_) if known != 0 => Err(StartError::Refused(format!(
            "the cluster knows {} as a member, but its log is empty: what it promised is lost. Remove it from the \
             cluster and re-add it",
            options.node_name
        ))),
        Decision::Join(cluster_id) => {
            disk.set_cluster(seams, cluster_id).await?;
            forming.set_starting();
            Ok(None)
        }
    }
}

async fn found(raft: &Raft, founders: BTreeMap<u64, Member>) -> Result<(), StartError> {
    match raft.initialize(founders).await {
        // "Not allowed": it was initialised before, which is what we want.
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        Err(error) => Err(StartError::Raft(error.to_string())),
    }
}

/// What is shared between the tasks.
struct Parts {
    state: Arc<State>,
    checkpoints: Arc<Checkpoints>,
    proposer: Arc<Proposer>,
    reads: Arc<ReadQueue>,
    lease_clock: Arc<LeaseClock>,
    flush_times: Arc<FlushTimes>,
}

impl Parts {
    fn new(options: &RaftOptions, seams: &Seams, disk: &DataDir, start: Start) -> Self {
        let state = Arc::new(State::new(start.core, start.membership));
        let origin = Origin { member: disk.identity.member_id, boot: seams.rng.next_u64().max(1) };
        Self {
            checkpoints: Arc::new(Checkpoints::new(disk.generations.clone(), state.clone(), start.newest)),
            state,
            proposer: Arc::new(Proposer::new(origin, options.proposer)),
            reads: Arc::new(ReadQueue::new()),
            lease_clock: Arc::new(LeaseClock::new(seams.clock.clone())),
            flush_times: Arc::default(),
        }
    }

    fn state_machine(&self, hook: Arc<dyn ApplyHook>) -> StateMachine {
        StateMachine {
            state: self.state.clone(),
            checkpoints: self.checkpoints.clone(),
            hook,
            proposer: self.proposer.clone(),
            lease_clock: self.lease_clock.clone(),
        }
    }
}

/// Everything but openraft itself.
struct Launch {
    options: RaftOptions,
    disk: DataDir,
    forming: Arc<Forming>,
    server: Arc<PeerServer>,
    peers: Arc<Peers>,
    parts: Parts,
}

impl Launch {
    fn run(
        self,
        raft: Raft,
        mut tasks: JoinSet<()>,
        flusher: Flusher,
        grown: Arc<tokio::sync::Notify>,
    ) -> RaftHandle {
        let Self { options, disk, forming, server, peers, parts } = self;
        let Parts { state, checkpoints, proposer, reads, lease_clock, flush_times } = parts;
        let first = RaftStatus {
            member_id: disk.identity.member_id,
            cluster_id: disk.identity.cluster_id,
            ..RaftStatus::default()
        };
        let (to, status) = watch::channel(first);
        let round_timeout = options.timing.append_floor;
        let desk =
            LeaderDesk { raft: raft.clone(), lease_clock: lease_clock.clone(), read_timeout: round_timeout };
        let cluster_id = disk.identity.cluster_id;
        *server.running.write() = Some(Arc::new(Running {
            cluster_id,
            member_id: disk.identity.member_id,
            raft: raft.clone(),
            desk: desk.clone(),
            checkpoints: checkpoints.clone(),
        }));
        tasks.spawn(
            Courier {
                proposer: proposer.clone(),
                desk: desk.clone(),
                peers: peers.clone(),
                status: status.clone(),
            }
            .run(),
        );
        tasks.spawn(
            ReadRounds {
                queue: reads.clone(),
                desk: desk.clone(),
                peers: peers.clone(),
                status: status.clone(),
                round_timeout,
            }
            .run(),
        );
        tasks.spawn(
            CheckpointDriver {
                checkpoints,
                wal: disk.wal.clone(),
                grown,
                applied: state.applied(),
                raft: raft.clone(),
                options: options.checkpoints,
            }
            .run(),
        );
        tasks.spawn(
            StatusTask {
                cluster_id,
                raft: raft.clone(),
                forming,
                state: state.clone(),
                reads: reads.clone(),
                proposer: proposer.clone(),
                to,
            }
            .run(),
        );
        let mine = Member {
            name: options.node_name,
            peer_addr: options.peer_addr,
            client_addr: options.client_addr,
        };
        tasks.spawn(
            Upkeep {
                cluster_name: options.cluster_name,
                mine,
                desk,
                peers: peers.clone(),
                state: state.clone(),
                proposer: proposer.clone(),
                status: status.clone(),
            }
            .run(),
        );
        let tasks = Mutex::new(Some(Tasks { tasks, flusher, peers, _lock: disk.lock }));
        let inner = Inner { proposer, reads, state, status, lease_clock, flush_times, raft, tasks };
        RaftHandle { inner: Arc::new(inner) }
    }
}
