//! A cluster in process: start, stop, restart, damage; every wait is bounded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meta_raft::{
    ApplyHook, CheckpointOptions, InitialMember, NoHook, ProposeError, RaftHandle, RaftOptions, RaftStatus,
    Seams, StartError, TcpNet, Threads, Timing, start,
};
use meta_raft::{CheckpointKind, Listener, Net};
use meta_store::{MemDisk, RealDisk, WalOptions};
use meta_types::seams::{Clock, Rng};
use meta_types::{Command, Outcome, PutRequest, RangeRequest};
use tempfile::TempDir;

use crate::cut_net::CutNet;

/// Bound of every wait.
pub const SOON: Duration = Duration::from_secs(30);

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

struct RealRng;

impl Rng for RealRng {
    fn next_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish()
    }
}

/// The real world.
pub fn seams() -> Seams {
    Seams {
        clock: Arc::new(RealClock(Instant::now())),
        rng: Arc::new(RealRng),
        disk: Arc::new(RealDisk),
        net: Arc::new(TcpNet),
        workers: Arc::new(Threads),
    }
}

/// One replica.
pub struct Node {
    pub options: RaftOptions,
    pub seams: Seams,
    pub handle: Option<RaftHandle>,
    port: Option<Box<dyn Listener>>,
}

/// All replicas, and the directories they live in.
pub struct Cluster {
    pub nodes: Vec<Node>,
    _dir: TempDir,
}

/// Short times, for tests that wait for elections.
pub fn quick() -> Timing {
    Timing {
        heartbeat: Duration::from_millis(50),
        election_min: Duration::from_millis(250),
        election_max: Duration::from_millis(400),
        ..Timing::default()
    }
}

/// A disk in memory for one replica; checkpoints go through it too.
pub fn on_mem_disk(node: &mut Node, disk: MemDisk) {
    node.seams.disk = Arc::new(disk);
    node.options.checkpoints.kind = CheckpointKind::Disk;
    node.options.wal = WalOptions { segment_bytes: 64 * 1024, prewrite_bytes: 0, ..WalOptions::default() };
}

/// A log that is purged and checkpointed after a few entries.
pub fn tiny(options: &mut RaftOptions) {
    options.checkpoints = CheckpointOptions { min_log_bytes: 8 * 1024, kind: CheckpointKind::Sled };
    options.wal = WalOptions {
        segment_bytes: 16 * 1024,
        prewrite_bytes: 0,
        cache_bytes: 4096,
        ..WalOptions::default()
    };
}

impl Cluster {
    /// `n` replicas with open ports, none started.
    pub async fn prepare(n: usize, adjust: impl Fn(&mut RaftOptions)) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let dir = TempDir::new().unwrap();
        let mut ports = Vec::new();
        let address = testkit::own_address();
        for _ in 0..n {
            ports.push(TcpNet.bind(&format!("{address}:0")).await.unwrap());
        }
        let initial: Vec<InitialMember> = ports
            .iter()
            .enumerate()
            .map(|(i, port)| InitialMember {
                name: format!("r{}", i + 1),
                peer_addr: port.local_addr().unwrap().to_string(),
            })
            .collect();
        let nodes = ports.into_iter().zip(&initial).map(|(port, me)| {
            let mut options = RaftOptions {
                cluster_name: "test".into(),
                node_name: me.name.clone(),
                data_dir: dir.path().join(&me.name),
                peer_addr: me.peer_addr.clone(),
                client_addr: format!("client-of-{}", me.name),
                initial: initial.clone(),
                timing: quick(),
                checkpoints: CheckpointOptions::default(),
                proposer: Default::default(),
                wal: WalOptions::default(),
            };
            adjust(&mut options);
            Node { options, seams: seams(), handle: None, port: Some(port) }
        });
        Self { nodes: nodes.collect(), _dir: dir }
    }

    /// `n` replicas that form a cluster and serve.
    pub async fn start(n: usize, adjust: impl Fn(&mut RaftOptions)) -> Self {
        let mut cluster = Self::prepare(n, adjust).await;
        futures_util::future::join_all(cluster.nodes.iter_mut().map(Node::start)).await;
        cluster.serving().await;
        cluster
    }

    /// Waits until all that run serve.
    pub async fn serving(&self) {
        for node in &self.nodes {
            if let Some(handle) = &node.handle {
                wait_for(handle, |status| status.serving).await;
            }
        }
    }

    /// The handle of replica `i`.
    pub fn at(&self, i: usize) -> &RaftHandle {
        self.nodes[i].handle.as_ref().expect("it runs")
    }

    /// The replica that leads, as those that run agree.
    pub async fn leader(&self) -> usize {
        let running: Vec<usize> = (0..self.nodes.len()).filter(|i| self.nodes[*i].handle.is_some()).collect();
        let found = async {
            loop {
                let views: Vec<RaftStatus> =
                    running.iter().map(|i| self.at(*i).status().borrow().clone()).collect();
                let leader = views[0].leader;
                if let Some(leader) = leader
                    && views.iter().all(|view| view.leader == Some(leader))
                    && let Some(at) = views.iter().position(|view| view.member_id == leader)
                {
                    return running[at];
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, found).await.expect("a leader in time")
    }

    /// Stops everything.
    pub async fn stop(&mut self) {
        for node in &mut self.nodes {
            node.stop().await;
        }
    }
}

impl Node {
    /// Starts it.
    pub async fn start(&mut self) {
        self.try_start().await.expect("it starts");
    }

    /// Starts it, or says why not.
    pub async fn try_start(&mut self) -> Result<(), StartError> {
        self.try_start_with(Arc::new(NoHook)).await
    }

    /// Starts it with a hook.
    pub async fn start_with(&mut self, hook: Arc<dyn ApplyHook>) {
        self.try_start_with(hook).await.expect("it starts");
    }

    async fn try_start_with(&mut self, hook: Arc<dyn ApplyHook>) -> Result<(), StartError> {
        let port = match self.port.take() {
            Some(port) => port,
            None => TcpNet.bind(&self.options.peer_addr).await.expect("its own port is free again"),
        };
        let starting = start(self.options.clone(), self.seams.clone(), port, hook);
        let handle = tokio::time::timeout(SOON, starting).await.expect("it starts in time")?;
        self.handle = Some(handle);
        Ok(())
    }

    /// A second process on the same directory.
    pub async fn try_start_beside(&self) -> Result<RaftHandle, StartError> {
        let port = TcpNet.bind("127.0.0.1:0").await.unwrap();
        start(self.options.clone(), self.seams.clone(), port, Arc::new(NoHook)).await
    }

    /// Puts it behind a network that can be cut. Before it starts.
    pub async fn behind_cut_net(&mut self) -> CutNet {
        let net = CutNet::new();
        self.port = None;
        self.port = Some(net.bind(&self.options.peer_addr).await.expect("its own port is free again"));
        self.seams.net = Arc::new(net.clone());
        net
    }

    /// Stops it.
    pub async fn stop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.shutdown().await;
        }
    }

    /// A directory of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.options.data_dir.join(name)
    }
}

/// Waits until a replica's status is as wanted.
pub async fn wait_for(handle: &RaftHandle, wanted: impl Fn(&RaftStatus) -> bool) -> RaftStatus {
    let mut status = handle.status();
    let found = tokio::time::timeout(SOON, status.wait_for(|status| wanted(status))).await;
    match found {
        Ok(found) => found.expect("it runs").clone(),
        Err(_) => panic!("not in time: {:?}", handle.status().borrow()),
    }
}

/// A put.
pub fn put(key: impl Into<String>, value: impl Into<String>) -> Command {
    let (key, value) = (key.into().into_bytes().into(), value.into().into_bytes().into());
    Command::Put(PutRequest { key, value, ..PutRequest::default() })
}

/// Puts and expects success.
pub async fn write(handle: &RaftHandle, key: &str, value: &str) -> Outcome {
    let outcome = handle.propose(put(key, value), SOON).await.expect("it is written");
    assert!(outcome.result.is_ok(), "{outcome:?}");
    outcome
}

/// Puts and reports.
pub async fn try_write(handle: &RaftHandle, key: &str, timeout: Duration) -> Result<Outcome, ProposeError> {
    handle.propose(put(key, "v"), timeout).await
}

/// A linearizable read.
pub async fn read(handle: &RaftHandle, key: &str) -> Option<String> {
    handle.read_index(SOON).await.expect("a read");
    local(handle, key)
}

/// What the replica's own state says.
pub fn local(handle: &RaftHandle, key: &str) -> Option<String> {
    let core = handle.core();
    let reply = core.read().range(&RangeRequest::get(key.to_owned())).unwrap();
    reply.kvs.first().map(|kv| String::from_utf8(kv.value.to_vec()).unwrap())
}

/// How often a key was written.
pub fn version(handle: &RaftHandle, key: &str) -> i64 {
    let core = handle.core();
    let reply = core.read().range(&RangeRequest::get(key.to_owned())).unwrap();
    reply.kvs.first().map_or(0, |kv| kv.version)
}

/// Waits until all that run have the same state.
pub async fn same_state(cluster: &Cluster) {
    let running: Vec<&RaftHandle> = cluster.nodes.iter().filter_map(|node| node.handle.as_ref()).collect();
    let same = async {
        loop {
            let states: Vec<_> = running
                .iter()
                .map(|handle| {
                    let core = handle.core();
                    let core = core.read();
                    (core.applied(), core.revision(), core.state_hash())
                })
                .collect();
            if states.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, same).await.expect("all replicas reach the same state");
}
