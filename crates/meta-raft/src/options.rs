//! What a replica's Raft part is told at start, with the defaults and why.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use meta_types::seams::{Clock, Rng};

use crate::net::Net;
use crate::workers::Workers;

/// One entry of `cluster.initial`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialMember {
    /// The replica's name.
    pub name: String,
    /// Where its peers reach it, `host:port`.
    pub peer_addr: String,
}

/// Everything that is set by configuration.
#[derive(Debug, Clone)]
pub struct RaftOptions {
    /// The cluster's name: replicas of different clusters refuse each other.
    pub cluster_name: String,
    /// This replica's name, one of `initial` on the first start of a new cluster.
    pub node_name: String,
    /// Where log, checkpoints and identity live. Created if absent; one process at a time.
    pub data_dir: PathBuf,
    /// The address peers are told, `host:port`.
    pub peer_addr: String,
    /// The address clients are told, `host:port`.
    pub client_addr: String,
    /// Who forms the cluster. Read only while the data directory is empty.
    pub initial: Vec<InitialMember>,
    /// Heartbeats, elections, deadlines.
    pub timing: Timing,
    /// When checkpoints are taken.
    pub checkpoints: CheckpointOptions,
    /// Bounds of the proposer.
    pub proposer: ProposerOptions,
    /// How the log's files are laid out.
    pub wal: meta_store::WalOptions,
}

/// Times of the consensus protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// Shortest wait of a follower, after the leader's lease (= `election_max`), before it campaigns.
    pub election_min: Duration,
    /// Longest such wait, and the leader's lease.
    pub election_max: Duration,
    /// Floor of an append's deadline: openraft hands over the heartbeat interval, in which a big append to a slow
    /// disk never ends.
    pub append_floor: Duration,
    /// How long a checkpoint may take to reach and be installed on a peer.
    pub install: Duration,
    /// How long a connection attempt may take.
    pub connect: Duration,
}

impl Default for Timing {
    /// A campaign starts `election_max + random(election_min..election_max)` after the last heartbeat. The defaults
    /// are meant for processes that share few cores: a heartbeat that waits for a core is not an election.
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(500),
            election_max: Duration::from_millis(800),
            append_floor: Duration::from_secs(1),
            install: Duration::from_secs(30),
            connect: Duration::from_secs(1),
        }
    }
}

/// Which files checkpoints are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointKind {
    /// sled, write-once.
    #[default]
    Sled,
    /// Plain sorted files on the `Disk` seam, for the simulator.
    Disk,
}

/// When checkpoints are taken: once the log since the last one reaches `max(min_log_bytes, size of the last)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// The floor.
    pub min_log_bytes: u64,
    /// What they are made of.
    pub kind: CheckpointKind,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { min_log_bytes: 64 * 1024 * 1024, kind: CheckpointKind::Sled }
    }
}

/// Bounds of the proposer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposerOptions {
    /// Commands in flight; beyond it a proposal is refused as overloaded. Below the dedup window of the state.
    pub max_commands: usize,
    /// Bytes of commands in flight.
    pub max_bytes: usize,
    /// Batches in flight; while so many are, further commands gather in the next batch.
    pub max_batches: usize,
}

impl Default for ProposerOptions {
    fn default() -> Self {
        Self { max_commands: 16_384, max_bytes: 64 * 1024 * 1024, max_batches: 4 }
    }
}

/// The seams to the world.
#[derive(Clone)]
pub struct Seams {
    /// Monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub rng: Arc<dyn Rng>,
    /// The disk under the data directory.
    pub disk: Arc<dyn meta_store::Disk>,
    /// The network between replicas.
    pub net: Arc<dyn Net>,
    /// Threads, for what blocks.
    pub workers: Arc<dyn Workers>,
}
