//! Attempts that run on while this node has no lease (`on-lost-store: keep`): its JobMasters end with the lease, and
//! those of the next one go on with what lies here. Until then the attempts are still ended at once if the records say
//! that their epoch is over.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use meta_types::Revision;
use parking_lot::Mutex;
use records::jobs::resume;
use records::keys::JobOwnerKey;
use records::record::{Job, OnLostStore};
use records::{JobId, Scope, View};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::attempt::Attempt;
use crate::gates::Hold;
use crate::guard::control::Order;
use crate::guard::spec::{Cause, Spec};
use crate::halt::Halt;
use crate::job_master::{JobMaster, Trace};
use crate::session::RightToRun;

/// A started attempt and what its JobMaster knows of it.
#[derive(Debug)]
pub struct Running {
    /// The job as it was when the attempt was started.
    pub job: Job,
    /// The owner's epoch.
    pub epoch: Revision,
    /// Guard and pipe.
    pub attempt: Attempt,
    /// What was started.
    pub spec: Spec,
    /// Since when.
    pub started_at: Instant,
    /// Whether main() has made it a job.
    pub is_created: bool,
    /// Whether an earlier JobMaster left it.
    pub is_left: bool,
    /// Its packages stay as long as it runs.
    pub holds: Vec<Hold>,
}

impl Running {
    async fn end(mut self, grace: Duration) {
        if !grace.is_zero() {
            self.attempt.tell(Order::Terminate);
            if timeout(grace, self.attempt.exited()).await.is_ok() {
                return;
            }
        }
        self.attempt.tell(Order::Kill);
        self.attempt.exited().await;
    }
}

/// What runs without a JobMaster, by its job.
#[derive(Debug, Default)]
pub struct Kept {
    running: Mutex<HashMap<JobId, Running>>,
}

impl Kept {
    /// Leaves it to the next JobMaster.
    pub fn leave(&self, job: JobId, running: Running) {
        self.running.lock().insert(job, running);
    }

    /// Takes what is here.
    pub fn take(&self) -> Vec<(JobId, Running)> {
        self.running.lock().drain().collect()
    }

    /// Kills what the records do not name under its epoch any more: it was cancelled by force. Never returns.
    pub async fn mind(&self, mut views: watch::Receiver<View>) -> Infallible {
        loop {
            let view = views.borrow_and_update().clone();
            for (job, running) in self.fenced(&view) {
                tracing::warn!(%job, epoch = running.epoch, "its epoch is over; killing it");
                running.end(Duration::ZERO).await;
            }
            if views.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn fenced(&self, view: &View) -> Vec<(JobId, Running)> {
        let is_over = |job: &JobId, running: &mut Running| {
            let owner = view.get(&JobOwnerKey::new(job));
            // A view from before the claim says nothing about it, nor does a record that cannot be read.
            view.revision() >= running.epoch
                && owner.is_ok_and(|owner| owner.is_none_or(|owner| owner.create_revision != running.epoch))
        };
        self.running.lock().extract_if(is_over).collect()
    }

    /// The process stops: everything here ends, within `grace` by itself. Its node says so when it is back.
    pub async fn end(&self, grace: Duration) {
        join_all(self.take().into_iter().map(|(_, running)| running.end(grace))).await;
    }
}

impl JobMaster {
    /// An attempt that an earlier JobMaster of this process left, if it is still the job's.
    pub(crate) async fn go_on(&self, mut running: Running, trace: &mut Trace) -> Halt {
        running.is_left = true;
        match self.read().await {
            Ok(_) => self.see_to_the_end(running, trace).await,
            Err(halt) => self.leave(running, halt, trace).await.0,
        }
    }

    /// What an earlier JobMaster left is this boot's: its uses and its owner are written anew. Returns only if that is
    /// refused.
    pub(crate) async fn take(&self, job: &Job, attempt: u32, trace: &mut Trace) -> Halt {
        let taken = async {
            self.use_packages(job, attempt, trace).await?;
            let (me, packages) = (&self.tenure.session.me, job.packages().cloned().collect::<Vec<_>>());
            let scope = Scope::start(&self.id, &packages, &me.node).and_nodes();
            let resumed =
                self.host.insist(&self.tenure, &scope, |view| resume(view, &self.id, self.epoch, me));
            match resumed.await {
                Ok(()) => Ok(()),
                Err(refusal) => Err(self.or_cancelled(refusal).await),
            }
        };
        match taken.await {
            Ok(()) => tracing::info!(attempt, "goes on"),
            Err(halt) => return halt,
        }
        std::future::pending().await
    }

    /// Ends a running attempt, or leaves it running if its job is kept and nothing but this node's registration is over.
    pub(crate) async fn leave(
        &self,
        mut running: Running,
        halt: Halt,
        trace: &mut Trace,
    ) -> (Halt, Option<&'static str>) {
        let is_lost = matches!(halt, Halt::Fenced(_)) && self.tenure.lost.is_cancelled();
        if is_lost && right_to_run(&running.job) == RightToRun::Kept {
            tracing::warn!(attempt = running.spec.attempt, "the lease is gone; main() runs on");
            // They went with the lease.
            trace.in_use.clear();
            self.host.kept.leave(self.id.clone(), running);
            return (halt, None);
        }
        match self.stop(&mut running.attempt, &halt).await {
            // It was over before it was told to leave: it does not run again.
            Some(exit) if exit.cause == Cause::Exited && matches!(halt, Halt::Released(_)) => {
                let (halt, end) = self.ended_by_itself(&running, Some(exit));
                (halt, Some(end))
            }
            _ => (halt.with_created(running.is_created), Some("stopped")),
        }
    }
}

/// Until when an attempt of the job may run.
pub fn right_to_run(job: &Job) -> RightToRun {
    match job.spec.on_lost_store {
        OnLostStore::Kill => RightToRun::Leased,
        OnLostStore::Keep => RightToRun::Kept,
    }
}
