//! Claims jobs that are placed on this node and starts their JobMasters.

use std::collections::HashMap;
use std::sync::Arc;

use records::jobs::{claim, claimable};
use records::keys::{JobKey, JobOwnerKey};
use records::{Failure, JobId, Scope, View, carry_out};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::host::{Host, blocking};
use crate::job_master::JobMaster;
use crate::limits::{RESCAN_EVERY, STORE_RETRY};
use crate::session::Tenure;

/// Claims jobs that are placed here and starts their JobMasters.
pub struct Claims<'a> {
    host: &'a Arc<Host>,
    tenure: &'a Tenure,
    /// Tasks by their id.
    running: HashMap<tokio::task::Id, JobId>,
    masters: JoinSet<()>,
}

impl<'a> Claims<'a> {
    /// Nothing is claimed yet.
    pub fn new(host: &'a Arc<Host>, tenure: &'a Tenure) -> Self {
        Self { host, tenure, running: HashMap::new(), masters: JoinSet::new() }
    }

    /// Returns when the last JobMaster let go of its job, after the tenure was lost or the process stops.
    pub async fn run(mut self) {
        self.claim_until_the_end().await;
        tracing::info!(jobs = self.running.len(), "letting go of jobs");
        while self.masters.join_next().await.is_some() {}
    }

    async fn claim_until_the_end(&mut self) {
        let mut views = self.host.views.clone();
        let end = self.host.shutdown.token();
        let mut again = false;
        let mut pruned_at = Instant::now();
        loop {
            let view = views.borrow_and_update().clone();
            if view.revision() >= self.tenure.session.me.incarnation {
                again = self.look(&view).await;
                if pruned_at.elapsed() > RESCAN_EVERY {
                    pruned_at = Instant::now();
                    self.prune(&view).await;
                }
            }
            let pause = if again { STORE_RETRY } else { RESCAN_EVERY };
            tokio::select! {
                () = self.tenure.lost.cancelled() => return,
                () = end.cancelled() => return,
                changed = views.changed() => if changed.is_err() { return },
                Some(done) = self.masters.join_next_with_id() => {
                    let id = match done {
                        Ok((id, ())) => id,
                        Err(error) => {
                            tracing::error!(%error, "a JobMaster panicked");
                            error.id()
                        }
                    };
                    self.running.remove(&id);
                }
                () = sleep(pause) => {}
            }
        }
    }

    fn is_running(&self, job: &JobId) -> bool {
        self.running.values().any(|running| running == job)
    }

    /// True if something is to be tried again soon.
    async fn look(&mut self, view: &View) -> bool {
        let me = &self.tenure.session.me;
        // A claim whose answer was lost: the epoch is known from the record.
        for (key, owner) in view.all::<JobOwnerKey>().unwrap_or_default() {
            let ours = owner.node == me.node && owner.incarnation == me.incarnation;
            if ours && !self.is_running(&key.job) {
                self.start(key.job, owner.create_revision);
            }
        }
        let mut again = false;
        for (job, _) in claimable(view, me).unwrap_or_default() {
            if self.is_running(&job) {
                continue;
            }
            let lease = self.tenure.session.lease;
            let claimed =
                carry_out(&*self.host.kv, &Scope::jobs(), |view| claim(view, &job, me, lease)).await;
            match claimed {
                Ok(done) => self.start(job, done.answer),
                Err(Failure::Refused(refusal)) => tracing::debug!(%job, %refusal, "not claimed"),
                Err(error) => {
                    tracing::warn!(%job, %error, "not claimed; trying again");
                    again = true;
                }
            }
        }
        again
    }

    fn start(&mut self, id: JobId, epoch: i64) {
        let master =
            JobMaster { host: self.host.clone(), tenure: self.tenure.clone(), id: id.clone(), epoch };
        let task = self.masters.spawn(master.run());
        self.running.insert(task.id(), id);
    }

    /// Output of jobs whose records are gone goes too.
    async fn prune(&self, view: &View) {
        let jobs = self.host.jobs_dir.clone();
        let known: Vec<JobId> =
            view.all::<JobKey>().unwrap_or_default().into_iter().map(|(key, _)| key.job).collect();
        let running: Vec<JobId> = self.running.values().cloned().collect();
        blocking(move || {
            for entry in std::fs::read_dir(jobs).into_iter().flatten().flatten() {
                let Some(job) = entry.file_name().to_str().and_then(|n| n.parse::<JobId>().ok()) else {
                    continue;
                };
                if known.contains(&job) || running.contains(&job) {
                    continue;
                }
                if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                    tracing::warn!(%job, %error, "output of a forgotten job cannot be deleted");
                }
            }
        })
        .await;
    }
}
