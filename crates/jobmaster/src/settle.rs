//! What a JobMaster writes last: how its job ended, or that it goes on elsewhere. Nothing of the job runs any more.

use std::time::Duration;

use meta_types::LeaseId;
use records::jobs::{AfterFailure, Ending, MainFailed, ended, main_failed, release, release_unstarted};
use records::packages::end_use;
use records::record::{Exit, JobState, PackageRef};
use records::{Refusal, Scope};
use tokio::time::{sleep, timeout};

use crate::engines::failure;
use crate::halt::Halt;
use crate::host::now_ms;
use crate::job_master::{JobMaster, Trace};
use crate::limits::{LAST_WRITES, STORE_RETRY};

impl JobMaster {
    /// Ends the uses and writes the end. A stopping process does not wait for ever for the store: the next owner finds
    /// out. True if it was written, so that this epoch is over for certain.
    pub(crate) async fn settle(&self, halt: Halt, trace: Trace) -> bool {
        let writes = async {
            for package in &trace.in_use {
                self.end_use(package).await;
            }
            let is_ours = !matches!(halt, Halt::Fenced(_));
            match self.write_end(halt, trace.main_started).await {
                Ok(()) => is_ours,
                Err(refusal) => {
                    tracing::info!(%refusal, "the end was not ours to write");
                    false
                }
            }
        };
        let end = self.host.shutdown.token();
        let too_late = async {
            end.cancelled().await;
            sleep(LAST_WRITES).await;
        };
        tokio::select! {
            is_written = writes => is_written,
            () = too_late => {
                tracing::warn!("the end was not written in time; the next owner finds out");
                false
            }
        }
    }

    async fn write_end(&self, halt: Halt, main_started: bool) -> Result<(), Refusal> {
        let (id, epoch, scope) = (&self.id, self.epoch, self.scope());
        match halt {
            Halt::Fenced(why) => {
                tracing::warn!(why, "no longer the owner: nothing to write");
                Ok(())
            }
            Halt::Released(why) if main_started => {
                self.host.insist(&self.tenure, &scope, |view| release(view, id, epoch, &why)).await
            }
            Halt::Released(why) => {
                let planner = |view: &_| release_unstarted(view, id, epoch, &why);
                self.host.insist(&self.tenure, &scope, planner).await
            }
            Halt::Cancelled(why) => self.end(JobState::Canceled, failure("CANCELED", why), false).await,
            Halt::Over { state, exit, created } => self.end(state, exit, created).await,
            Halt::MainFailed { exit, created, ran } => self.main_failed(exit, created, ran).await,
        }
    }

    async fn end(&self, state: JobState, exit: Exit, created: bool) -> Result<(), Refusal> {
        let retention = self.retention().await;
        let ending = Ending { state, exit, created, retention, now_ms: now_ms() };
        let written = self
            .host
            .insist(&self.tenure, &self.scope(), |view| ended(view, &self.id, self.epoch, &ending))
            .await;
        if written.is_err() {
            self.give_up_retention(retention).await;
        }
        let state = written?;
        tracing::info!(state = state.as_str(), "the job is over");
        Ok(())
    }

    /// The job starts again or is over, as its strategy says.
    async fn main_failed(&self, exit: Exit, created: bool, ran: Duration) -> Result<(), Refusal> {
        let retention = self.retention().await;
        let ending = Ending { state: JobState::Failed, exit, created, retention, now_ms: now_ms() };
        let ran_ms = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        let wish = MainFailed { ending, ran_ms, dice: rand::random() };
        let written = self
            .host
            .insist(&self.tenure, &self.scope(), |view| main_failed(view, &self.id, self.epoch, &wish))
            .await;
        match &written {
            Ok(AfterFailure::Over(state)) => tracing::info!(state = state.as_str(), "the job is over"),
            Ok(AfterFailure::Restarts { pause_ms }) => {
                tracing::info!(pause_ms, "main() failed; it starts again after a pause");
                self.give_up_retention(retention).await;
            }
            Err(_) => self.give_up_retention(retention).await,
        }
        written.map(drop)
    }

    async fn retention(&self) -> LeaseId {
        loop {
            match self.host.kv.lease_grant(0, self.host.options.job_retention).await {
                Ok(granted) => return granted.id,
                Err(error) => tracing::warn!(%error, "no lease for the record; trying again"),
            }
            if self.tenure.lost.is_cancelled() {
                return 0;
            }
            sleep(STORE_RETRY).await;
        }
    }

    /// No record hangs on it.
    async fn give_up_retention(&self, lease: LeaseId) {
        if lease != 0 {
            // If this fails it runs out by itself.
            let _ = self.host.kv.lease_revoke(lease).await;
        }
    }

    /// If it cannot be written the key ends with the lease.
    async fn end_use(&self, package: &PackageRef) {
        let (scope, me) = (Scope::package(&package.unit), &self.tenure.session.me);
        let holder = self.id.as_str();
        let ended = self.host.insist(&self.tenure, &scope, |view| end_use(view, &package.unit, me, holder));
        if let Err(refusal) = ended.await {
            tracing::debug!(package = %package.unit, %refusal, "the use is over anyhow");
        }
    }

    /// CANCELLING is for people to see: the kill does not wait long for it.
    pub(crate) async fn say_cancelling(&self) {
        let scope = self.scope();
        let write = self
            .host
            .insist(&self.tenure, &scope, |view| records::jobs::cancelling(view, &self.id, self.epoch));
        let _ = timeout(STORE_RETRY, write).await;
    }
}
