//! What the parts of a server node share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use icp_store::{Fetcher, PackageStore};
use meta_client::Kv;
use process_kit::{Rounds, Shutdown};
use records::{Failure, Plan, Refusal, Scope, View, carry_out};
use tokio::sync::{Notify, watch};

use crate::blob_api::Given;
use crate::deploy_coordinator::Uploads;
use crate::gates::{Gates, Turns};
use crate::kept::Kept;
use crate::limits::STORE_RETRY;
use crate::metrics::NodeMetrics;
use crate::options::NodeOptions;
use crate::register_target::Inspections;
use crate::session::{GuardPipes, Session, Tenure};

/// One server node.
pub struct Host {
    /// Its options.
    pub options: NodeOptions,
    /// The metastore.
    pub kv: Arc<dyn Kv>,
    /// Its packages.
    pub store: PackageStore,
    /// Fetches packages.
    pub fetcher: Fetcher,
    /// What runs on which package.
    pub gates: Gates,
    /// Creates that are being carried.
    pub creates: Gates,
    /// Their uploads.
    pub uploads: Uploads,
    /// Whom files were given to.
    pub given: Given,
    /// What was found for registers that go on.
    pub inspections: Inspections,
    /// Who changes which copy.
    pub turns: Turns,
    /// Who verifies which copy.
    pub verifications: Turns,
    /// The pipes to its guards.
    pub pipes: GuardPipes,
    /// The records, a moment behind.
    pub views: watch::Receiver<View>,
    /// Who it is now; none while it is not registered.
    pub session: watch::Receiver<Option<Session>>,
    /// Its attempts.
    pub jobs_dir: PathBuf,
    /// What its work directory is called.
    pub work_dir_id: String,
    /// Attempts that run on while it is not registered.
    pub kept: Kept,
    /// Figures.
    pub metrics: NodeMetrics,
    /// What its reconcilers did last.
    pub rounds: Rounds,
    /// Wakes the package agent though no record changed.
    pub disk_changed: Notify,
    /// Wakes the collection of what nobody needs any more on disk.
    pub leftovers: Notify,
    /// The end of the process.
    pub shutdown: Shutdown,
}

/// Wall clock, for people.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

impl Host {
    /// Carries a plan out, however long the store stays away, as long as this boot has the right to write. The
    /// refusal is the planner's, or says that the right is gone.
    pub async fn insist<T: Send>(
        &self,
        tenure: &Tenure,
        scope: &Scope,
        planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
    ) -> Result<T, Refusal> {
        loop {
            match carry_out(&*self.kv, scope, &planner).await {
                Ok(done) => return Ok(done.answer),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(error) => tracing::warn!(%error, "not written; trying again"),
            }
            tokio::select! {
                () = tenure.lost.cancelled() => {
                    return Err(Refusal::fenced("the registration of this node is gone"));
                }
                () = tokio::time::sleep(STORE_RETRY) => {}
            }
        }
    }

    /// Runs something that reads or writes the disk, off the async threads.
    pub async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PackageStore) -> T + Send + 'static,
    ) -> T {
        let store = self.store.clone();
        blocking(move || work(&store)).await
    }
}

/// Runs something that blocks, off the async threads.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Never begun: the runtime is going down, and whoever waits here with it.
        Err(_) => std::future::pending().await,
    }
}
