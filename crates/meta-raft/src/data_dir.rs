//! The data directory of a replica: lock, identity, log, checkpoints; and the state to start from.
//!
//! ```text
//!  lock  identity  log/  checkpoints/
//! ```
//!
//! The log directory is made before the identity names a cluster. So an identity with a cluster and no log means
//! that a log was lost, and with it what this replica promised: it must not vote again.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use meta_store::{
    DirectoryLock, DiskGenerations, Generations, Identity, IdentityError, SledGenerations, Wal,
};

use crate::errors::StartError;
use crate::fetch;
use crate::net::peers::Peers;
use crate::options::{CheckpointKind, RaftOptions, Seams};
use crate::recover::{self, OnDisk, Start};
use crate::workers::{self, Workers};

const LOG_DIR: &str = "log";
const CHECKPOINT_DIR: &str = "checkpoints";

/// The directory, opened.
pub(crate) struct DataDir {
    pub(crate) lock: Arc<DirectoryLock>,
    pub(crate) identity: Identity,
    pub(crate) wal: Arc<Wal>,
    pub(crate) generations: Arc<dyn Generations>,
    dir: String,
}

impl DataDir {
    /// Opens it, creating what is not there.
    pub(crate) async fn open(options: &RaftOptions, seams: &Seams) -> Result<Self, StartError> {
        let (options, seams) = (options.clone(), seams.clone());
        blocking(&*seams.workers.clone(), move || open(&options, &seams)).await
    }

    /// True if openraft never wrote anything.
    pub(crate) fn log_is_empty(&self) -> bool {
        self.wal.last().is_none() && self.wal.vote().is_none()
    }

    /// Notes, durably, which cluster this replica belongs to.
    pub(crate) async fn set_cluster(&mut self, seams: &Seams, cluster_id: u64) -> Result<(), StartError> {
        self.identity.cluster_id = cluster_id;
        let (disk, dir, identity) = (seams.disk.clone(), self.dir.clone(), self.identity.clone());
        let store = move || identity.store(&*disk, Path::new(&dir)).map_err(from_identity);
        blocking(&*seams.workers, store).await
    }

    /// Loads the newest usable checkpoint, or fetches one from a peer if the log alone is not enough.
    pub(crate) async fn state_to_start_from(
        &self,
        options: &RaftOptions,
        workers: &Arc<dyn Workers>,
        peers: &Arc<Peers>,
    ) -> Result<Start, StartError> {
        let (wal, generations, dir) = (self.wal.clone(), self.generations.clone(), self.dir.clone());
        let look = move || recover::from_disk(&wal, &generations).map_err(disk_error(&dir));
        let found = blocking(&**workers, look).await?;
        let start = match found {
            OnDisk::Start(start) => *start,
            OnDisk::NeedsCheckpoint(purged) => {
                let addrs = fetch::addresses(options, &self.wal);
                fetch::checkpoint(peers, workers, &addrs, purged, &self.generations).await?
            }
        };
        if let Some((generation, _)) = &start.newest {
            let (wal, position, dir) = (self.wal.clone(), generation.position, self.dir.clone());
            let fit = move || recover::fit_log(&wal, position).map_err(disk_error(&dir));
            blocking(&**workers, fit).await?;
        }
        Ok(start)
    }
}

fn open(options: &RaftOptions, seams: &Seams) -> Result<DataDir, StartError> {
    let (disk, dir) = (&*seams.disk, options.data_dir.as_path());
    let name = dir.display().to_string();
    let failed = |why: &dyn Display| disk_error(&name)(why);
    let lock = Arc::new(DirectoryLock::acquire(disk, dir).map_err(from_identity)?);
    let known = Identity::load(disk, dir).map_err(from_identity)?;
    if let Some(identity) = &known {
        identity.check(dir, &options.cluster_name, &options.node_name).map_err(from_identity)?;
    }
    let log_dir = dir.join(LOG_DIR);
    let (wal, recovered) =
        Wal::open(seams.disk.clone(), &log_dir, options.wal.clone()).map_err(|e| failed(&e))?;
    if recovered.created && known.as_ref().is_some_and(|identity| identity.cluster_id != 0) {
        return Err(StartError::Identity(format!(
            "data directory {name} belongs to a member, but its log is gone, and with it what the member promised: \
             remove {} from the cluster and re-add it with an empty directory",
            options.node_name
        )));
    }
    if let Some((file, offset, bytes)) = &recovered.torn_tail {
        tracing::info!(file = %file.display(), offset, bytes, "cut the torn tail of the log");
    }
    let identity = match known {
        Some(identity) => identity,
        None => mint(options, seams)?,
    };
    let checkpoint_dir = dir.join(CHECKPOINT_DIR);
    let generations: Arc<dyn Generations> = match options.checkpoints.kind {
        CheckpointKind::Sled => Arc::new(SledGenerations::open_dir(&checkpoint_dir).map_err(|e| failed(&e))?),
        CheckpointKind::Disk => {
            Arc::new(DiskGenerations::open_dir(seams.disk.clone(), &checkpoint_dir).map_err(|e| failed(&e))?)
        }
    };
    Ok(DataDir { lock, identity, wal: Arc::new(wal), generations, dir: name })
}

/// A member id for an empty directory, durable before anybody hears of it. 63 bits: other systems' ids are signed.
fn mint(options: &RaftOptions, seams: &Seams) -> Result<Identity, StartError> {
    let identity = Identity {
        cluster_id: 0,
        member_id: (seams.rng.next_u64() >> 1).max(1),
        cluster_name: options.cluster_name.clone(),
        node_name: options.node_name.clone(),
    };
    identity.store(&*seams.disk, &options.data_dir).map_err(from_identity)?;
    Ok(identity)
}

fn from_identity(error: IdentityError) -> StartError {
    StartError::Identity(error.to_string())
}

fn disk_error<E: Display>(dir: &str) -> impl Fn(E) -> StartError + use<E> {
    let dir = dir.to_owned();
    move |why| StartError::Disk { dir: dir.clone(), why: why.to_string() }
}

/// Runs disk work off the runtime's threads.
async fn blocking<T, F>(workers: &dyn Workers, work: F) -> Result<T, StartError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, StartError> + Send + 'static,
{
    workers::blocking(workers, work).await.map_err(|e| StartError::Raft(e.to_string()))?
}
