//! One replica of the simulated cluster: its disk, which outlives it, and the process that runs the real replica.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use meta_raft::{CheckpointKind, CheckpointOptions, Net, RaftHandle, RaftOptions, Seams};
use meta_replica::{Ports, Replica, ReplicaOptions, StartError};
use meta_store::{Disk, MemDisk, MemDiskFaults, WalOptions};
use process_kit::Shutdown;
use tokio::sync::mpsc;

use super::chance::Chance;
use super::clock::SimClock;
use super::net::{CLIENT_PORT, PEER_PORT, SimNet};
use super::plan::Setting;
use super::workers::{DiskSpeed, SimWorkers};

/// Where a replica's files are, on its own disk.
const DATA_DIR: &str = "/data";
const CHECKPOINT_DIR: &str = "/data/checkpoints";

/// What became of a replica's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Process {
    /// It starts: waits for peers, reads its disk.
    Starting,
    /// It is a member and runs.
    Running,
    /// It ended by itself, as a process does whose disk failed.
    Ended(String),
    /// It was crashed.
    Down,
}

/// See the module.
pub struct Node {
    /// Its name, and its host's.
    pub name: String,
    setting: Rc<Setting>,
    disk: RefCell<MemDisk>,
    /// How long its disk takes.
    pub speed: DiskSpeed,
    /// Its idea of time.
    pub clock: SimClock,
    chance: Chance,
    process: RefCell<Process>,
    handle: RefCell<Option<RaftHandle>>,
    boots: Cell<u64>,
    trouble: Cell<Trouble>,
    orders: RefCell<Option<mpsc::UnboundedSender<u64>>>,
}

/// What a disk is up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// Syncs fail from the next one on.
    FailingSync,
    /// So many bytes still fit.
    Full {
        /// How many.
        room: u64,
    },
    /// Power goes in this writing operation from now on.
    PowerOff {
        /// Which; 0 is the next.
        after: u64,
    },
}

impl Node {
    /// A replica on an empty disk.
    pub fn new(name: String, setting: Rc<Setting>, chance: &Chance) -> Self {
        let (min, max) = setting.disk;
        Self {
            chance: chance.fork(&name),
            name,
            disk: RefCell::default(),
            speed: DiskSpeed::new(min, max),
            clock: SimClock::new(),
            process: RefCell::new(Process::Down),
            handle: RefCell::default(),
            boots: Cell::new(0),
            trouble: Cell::default(),
            orders: RefCell::default(),
            setting,
        }
    }

    /// The process, from its start to its end by itself.
    pub async fn run(self: Rc<Self>) {
        self.boots.set(self.boots.get() + 1);
        self.process.replace(Process::Starting);
        let end = match self.start().await {
            Ok(replica) => {
                let (orders, mut to) = mpsc::unbounded_channel();
                self.orders.replace(Some(orders));
                self.process.replace(Process::Running);
                loop {
                    tokio::select! {
                        why = replica.failed() => break why,
                        Some(to) = to.recv() => replica.raft().transfer_leader(to).await,
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        self.process.replace(Process::Ended(end));
    }

    async fn start(&self) -> Result<Replica, StartError> {
        let bind = |port: u16| async move {
            SimNet.bind(&format!("0.0.0.0:{port}")).await.map_err(StartError::Address)
        };
        let ports = Ports { client: bind(CLIENT_PORT).await?, peer: bind(PEER_PORT).await? };
        let options = self.options();
        let address = |port: &dyn meta_raft::Listener| port.local_addr().map_err(StartError::Address);
        let mut raft = options.raft(address(&*ports.client)?, address(&*ports.peer)?)?;
        self.tune(&mut raft);
        let seams = Seams {
            clock: Arc::new(self.clock.clone()),
            rng: Arc::new(self.chance.clone()),
            disk: Arc::new(self.disk.borrow().clone()),
            net: Arc::new(SimNet),
            workers: Arc::new(SimWorkers { speed: self.speed.clone(), chance: self.chance.clone() }),
        };
        let joined = |raft: &RaftHandle| drop(self.handle.replace(Some(raft.clone())));
        Replica::start_with(options, raft, seams, ports, &Shutdown::new(), joined).await
    }

    fn options(&self) -> ReplicaOptions {
        ReplicaOptions {
            advertise_client: format!("{}:{CLIENT_PORT}", self.name),
            advertise_peer: format!("{}:{PEER_PORT}", self.name),
            data_dir: DATA_DIR.into(),
            node_name: self.name.clone(),
            initial: self.setting.names.iter().map(|name| format!("{name}={name}:{PEER_PORT}")).collect(),
            heartbeat: self.setting.heartbeat,
            election_min: self.setting.election.0,
            election_max: self.setting.election.1,
            ..ReplicaOptions::default()
        }
    }

    /// Files as small as the runs are short.
    fn tune(&self, raft: &mut RaftOptions) {
        raft.checkpoints =
            CheckpointOptions { min_log_bytes: self.setting.checkpoint_bytes, kind: CheckpointKind::Disk };
        raft.wal = WalOptions {
            segment_bytes: self.setting.segment_bytes,
            prewrite_bytes: 0,
            cache_bytes: 64 * 1024,
            ..WalOptions::default()
        };
    }

    /// The running replica's consensus, for a look.
    pub fn handle(&self) -> Option<RaftHandle> {
        self.handle.borrow().clone()
    }

    /// What its process does.
    pub fn process(&self) -> Process {
        self.process.borrow().clone()
    }

    /// How often it was started.
    pub fn boots(&self) -> u64 {
        self.boots.get()
    }

    /// Tells a leader to hand over.
    pub fn move_leader(&self, to: u64) {
        if let Some(orders) = &*self.orders.borrow() {
            // A process that just ended moves nothing.
            let _ = orders.send(to);
        }
    }

    /// The process is gone. What was written stays on the disk, synced or not; with a `power_cut`, only what was
    /// synced and, by its number, some of the rest.
    pub fn went_down(&self, power_cut: Option<u64>) {
        self.handle.take();
        self.orders.take();
        self.process.replace(Process::Down);
        if let Some(seed) = power_cut {
            let was_off = self.disk.borrow().is_off();
            let after = self.disk.borrow().crash(seed);
            self.disk.replace(after);
            if was_off {
                self.trouble.set(Trouble::None);
            }
            self.arm();
        }
    }

    /// Its disk behaves from now on as told.
    pub fn set_trouble(&self, trouble: Trouble) {
        self.trouble.set(trouble);
        self.arm();
    }

    fn arm(&self) {
        let disk = self.disk.borrow();
        let faults = MemDiskFaults::default();
        disk.set_faults(match self.trouble.get() {
            Trouble::None => faults,
            Trouble::FailingSync => {
                MemDiskFaults { fail_sync_at: Some(disk.syncs()), fail_syncs_after: true, ..faults }
            }
            Trouble::Full { room } => {
                MemDiskFaults { capacity_bytes: Some(disk.used_bytes() + room), ..faults }
            }
            Trouble::PowerOff { after } => {
                MemDiskFaults { power_off_at: Some(disk.operations() + after), ..faults }
            }
        });
    }

    /// The disk, to look at it or to damage its files.
    pub fn disk(&self) -> MemDisk {
        self.disk.borrow().clone()
    }

    /// Damages a checkpoint, the newest or the one before, or loses it. False if there is none.
    pub fn damage_checkpoint(&self, newest: bool, lost: bool) -> bool {
        let disk = self.disk();
        let mut files = disk.list(Path::new(CHECKPOINT_DIR)).unwrap_or_default();
        files.retain(|name| name.starts_with("generation-"));
        let at = files.len().saturating_sub(if newest { 1 } else { 2 });
        let Some(name) = files.get(at) else { return false };
        let path = Path::new(CHECKPOINT_DIR).join(name);
        if lost {
            disk.lose(&path);
            return true;
        }
        let mut bytes = disk.contents(&path).unwrap_or_default();
        let at = self.chance.below(bytes.len().max(1) as u64) as usize;
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.chance.below(8);
        }
        disk.put(&path, bytes);
        true
    }

    /// True if it has a checkpoint.
    pub fn has_checkpoint(&self) -> bool {
        let files = self.disk().list(Path::new(CHECKPOINT_DIR)).unwrap_or_default();
        files.iter().any(|name| name.starts_with("generation-"))
    }
}
