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
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::checkpoint::Checkpoints;
use crate::checkpoint_driver::CheckpointDriver;
use crate::config::openraft_config;
use crate::data_dir::DataDir;
use crate::errors::StartError;
use crate::flush_watch::FlushWatch;
use crate::forming::{self, Decision, Forming};
use crate::handle::{Inner, RaftHandle};
use crate::hook::ApplyHook;
use crate::leader::LeaderDesk;
use crate::lease_clock::LeaseClock;
use crate::log_store::{FlushTimes, Flusher, LogParts, LogStore};
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
    checkpoints: Arc<Checkpoints>,
    peers: Arc<Peers>,
    _lock: Arc<DirectoryLock>,
}

impl Tasks {
    /// Stops all of it.
    pub(crate) async fn stop(self, raft: &Raft) {
        let Self { mut tasks, flusher, checkpoints, peers, _lock } = self;
        tasks.shutdown().await;
        peers.close();
        if let Err(error) = raft.shutdown().await {
            tracing::warn!(%error, "consensus did not stop cleanly");
        }
        checkpoints.stop().await;
        flusher.stop().await;
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
    let mut tasks = JoinSet::new();
    match launch(options, seams, listener, hook, &mut tasks).await {
        Ok((launch, raft, flusher, grown)) => Ok(launch.run(raft, tasks, flusher, grown)),
        Err(error) => {
            // Whoever starts again after an error finds the port free.
            tasks.shutdown().await;
            Err(error)
        }
    }
}

async fn launch(
    options: RaftOptions,
    seams: Seams,
    listener: Box<dyn Listener>,
    hook: Arc<dyn ApplyHook>,
    tasks: &mut JoinSet<()>,
) -> Result<(Launch, Raft, Flusher, Arc<Notify>), StartError> {
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
    tasks.spawn(server.clone().run(listener));
    let founders = join(&options, &seams, &forming, &mut disk).await?;
    let me = Me {
        cluster_id: disk.identity.cluster_id,
        cluster_name: options.cluster_name.clone(),
        member_id: disk.identity.member_id,
    };
    let peers = Arc::new(Peers::new(seams.net.clone(), me, options.timing.connect));
    let start = disk.state_to_start_from(&options, &seams.workers, &peers).await?;
    let parts = Parts::new(&options, &seams, &disk, start);
    let log = LogStore::new(LogParts {
        wal: disk.wal.clone(),
        clock: seams.clock.clone(),
        workers: seams.workers.clone(),
        times: parts.flush_times.clone(),
        _lock: Some(disk.lock.clone()),
    });
    let (log, flusher) = log.map_err(|e| StartError::Raft(e.to_string()))?;
    let launch = Launch { options, seams, disk, forming, server, peers, parts };
    let transport = Transport {
        peers: launch.peers.clone(),
        timing: launch.options.timing,
        workers: launch.seams.workers.clone(),
    };
    let grown = log.grown();
    let machine = launch.parts.state_machine(hook);
    let raft = Raft::new(launch.disk.identity.member_id, config, transport, log, machine).await;
    let raft = raft.map_err(|e| StartError::Raft(e.to_string()))?;
    if let Some(founders) = founders {
        found(&raft, founders).await?;
    }
    Ok((launch, raft, flusher, grown))
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
        forming::check_directory(options, seams, forming, known).await?;
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
            checkpoints: Arc::new(Checkpoints::new(
                seams.workers.clone(),
                disk.generations.clone(),
                state.clone(),
                start.newest,
            )),
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
    seams: Seams,
    disk: DataDir,
    forming: Arc<Forming>,
    server: Arc<PeerServer>,
    peers: Arc<Peers>,
    parts: Parts,
}

impl Launch {
    fn run(self, raft: Raft, mut tasks: JoinSet<()>, flusher: Flusher, grown: Arc<Notify>) -> RaftHandle {
        let desk = LeaderDesk {
            raft: raft.clone(),
            lease_clock: self.parts.lease_clock.clone(),
            read_timeout: self.options.timing.append_floor,
        };
        let cluster_id = self.disk.identity.cluster_id;
        let member_id = self.disk.identity.member_id;
        *self.server.running.write() = Some(Arc::new(Running {
            cluster_id,
            member_id,
            raft: raft.clone(),
            desk: desk.clone(),
            checkpoints: self.parts.checkpoints.clone(),
        }));
        let (to, status) = watch::channel(RaftStatus { member_id, cluster_id, ..RaftStatus::default() });
        tasks.spawn(self.status_task(&raft, to).run());
        tasks.spawn(self.courier(&desk, &status).run());
        tasks.spawn(self.read_rounds(&desk, &status).run());
        tasks.spawn(self.checkpoint_driver(&raft, grown).run());
        tasks.spawn(self.flush_watch(&raft, &status).run());
        tasks.spawn(self.upkeep(&desk, &status).run());
        let Self { disk, peers, parts, .. } = self;
        let Parts { state, checkpoints, proposer, reads, lease_clock, flush_times } = parts;
        let lock = disk.lock;
        let tasks = Tasks { tasks, flusher, checkpoints: checkpoints.clone(), peers, _lock: lock };
        let (wal, tasks) = (disk.wal, Mutex::new(Some(tasks)));
        let inner =
            Inner { proposer, reads, state, status, lease_clock, flush_times, wal, checkpoints, raft, tasks };
        RaftHandle { inner: Arc::new(inner) }
    }

    fn status_task(&self, raft: &Raft, to: watch::Sender<RaftStatus>) -> StatusTask {
        StatusTask {
            cluster_id: self.disk.identity.cluster_id,
            raft: raft.clone(),
            forming: self.forming.clone(),
            state: self.parts.state.clone(),
            reads: self.parts.reads.clone(),
            proposer: self.parts.proposer.clone(),
            to,
        }
    }

    fn courier(&self, desk: &LeaderDesk, status: &watch::Receiver<RaftStatus>) -> Courier {
        Courier {
            proposer: self.parts.proposer.clone(),
            desk: desk.clone(),
            peers: self.peers.clone(),
            status: status.clone(),
        }
    }

    fn read_rounds(&self, desk: &LeaderDesk, status: &watch::Receiver<RaftStatus>) -> ReadRounds {
        ReadRounds {
            queue: self.parts.reads.clone(),
            desk: desk.clone(),
            peers: self.peers.clone(),
            status: status.clone(),
            round_timeout: self.options.timing.append_floor,
        }
    }

    fn checkpoint_driver(&self, raft: &Raft, grown: Arc<Notify>) -> CheckpointDriver {
        CheckpointDriver {
            checkpoints: self.parts.checkpoints.clone(),
            wal: self.disk.wal.clone(),
            grown,
            applied: self.parts.state.applied(),
            raft: raft.clone(),
            options: self.options.checkpoints,
        }
    }

    fn flush_watch(&self, raft: &Raft, status: &watch::Receiver<RaftStatus>) -> FlushWatch {
        FlushWatch {
            times: self.parts.flush_times.clone(),
            clock: self.seams.clock.clone(),
            raft: raft.clone(),
            status: status.clone(),
            limit: self.options.timing.election_max,
        }
    }

    fn upkeep(&self, desk: &LeaderDesk, status: &watch::Receiver<RaftStatus>) -> Upkeep {
        Upkeep {
            cluster_name: self.options.cluster_name.clone(),
            mine: Member {
                name: self.options.node_name.clone(),
                peer_addr: self.options.peer_addr.clone(),
                client_addr: self.options.client_addr.clone(),
            },
            desk: desk.clone(),
            peers: self.peers.clone(),
            state: self.parts.state.clone(),
            proposer: self.parts.proposer.clone(),
            status: status.clone(),
        }
    }
}
