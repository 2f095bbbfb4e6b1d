//! What became of attempts that no JobMaster of this process watches: those that an earlier process left, and those of
//! jobs that are kept (`on-lost-store: keep`) whose JobMaster ended together with the lease. Nothing of them runs any
//! more.

use meta_types::Revision;
use records::jobs::{AfterFailure, Ending, MainFailed, ended, main_failed, release};
use records::keys::JobOwnerKey;
use records::record::JobState;
use records::{Failure, JobId, Scope, View, carry_out};
use tokio::time::sleep;

use crate::engines::process::{judge, was_created};
use crate::guard::spec::{AttemptDir, Cause, ExitRecord, Spec};
use crate::host::{Host, blocking, now_ms};
use crate::limits::STORE_RETRY;
use crate::session::Tenure;
use crate::take_over::{Leftover, attempts_of, kill_left};

/// Ends that an earlier process saw but could not report. The epoch decides whether they still count.
pub async fn report(host: &Host, leftovers: Vec<Leftover>) {
    for leftover in leftovers {
        if let Some(exit) = leftover.exit.as_ref().filter(|exit| exit.cause == Cause::Exited) {
            report_end(host, &leftover.job, &leftover.dir, &leftover.spec, exit).await;
        }
    }
}

/// Says what became of an attempt that the records name as kept here, and that nobody here watches: how it ended, or
/// that it is gone, so that the job goes on elsewhere or here.
pub async fn answer_for(host: &Host, tenure: &Tenure, job: &JobId, epoch: Revision) {
    let found = attempts_of(&host.jobs_dir.join(job.as_str()))
        .into_iter()
        .find_map(|(_, dir)| Some((dir.read_spec().ok().filter(|spec| spec.epoch == epoch)?, dir)));
    if let Some((spec, dir)) = found {
        let at = dir.clone();
        if let Err(error) = blocking(move || kill_left(&at)).await {
            tracing::error!(%job, epoch, %error, "a process of a lost attempt lives on; trying again");
            return sleep(STORE_RETRY).await;
        }
        if let Ok(Some(exit)) = dir.read_exit()
            && exit.cause == Cause::Exited
        {
            return report_end(host, job, &dir, &spec, &exit).await;
        }
    }
    let why = format!("node {} is back, and nothing of the job runs there any more", host.options.name);
    let scope = Scope::default().and_job(job);
    match host.insist(tenure, &scope, |view| release(view, job, epoch, &why)).await {
        Ok(()) => tracing::info!(%job, epoch, "of an attempt that was kept nothing is left; given back"),
        Err(refusal) => tracing::info!(%job, epoch, %refusal, "a lost attempt is not ours to give back"),
    }
}

async fn report_end(host: &Host, job: &JobId, dir: &AttemptDir, spec: &Spec, exit: &ExitRecord) {
    let created = was_created(spec, exit);
    let (state, end) = match judge(dir, spec, exit, created) {
        Ok(end) => (JobState::Finished, end),
        Err(end) => (JobState::Failed, end),
    };
    let (created, epoch) = (created || state == JobState::Finished, exit.epoch);
    let scope = Scope::default().and_job(job);
    loop {
        let outcome = async {
            let view = View::load(&*host.kv, scope.clone()).await?;
            let owner = view.get(&JobOwnerKey::new(job))?;
            if owner.is_none_or(|owner| owner.create_revision != epoch) {
                return Ok(());
            }
            let retention = host.kv.lease_grant(0, host.options.job_retention).await?.id;
            let ending = Ending { state, exit: end.clone(), created, retention, now_ms: now_ms() };
            if state == JobState::Failed {
                // How long it ran nobody knows by one clock: not long enough to forget its failures.
                let wish = MainFailed { ending, ran_ms: 0, dice: rand::random() };
                let planner = |view: &View| main_failed(view, job, epoch, &wish);
                let after = carry_out(&*host.kv, &scope, planner).await?.answer;
                if matches!(after, AfterFailure::Restarts { .. }) {
                    // No record hangs on it; if this fails it runs out by itself.
                    let _ = host.kv.lease_revoke(retention).await;
                }
            } else {
                carry_out(&*host.kv, &scope, |view| ended(view, job, epoch, &ending)).await?;
            }
            tracing::info!(%job, epoch, state = state.as_str(), "reported how it ended before the restart");
            Ok::<_, Failure>(())
        };
        match outcome.await {
            Ok(()) => return,
            Err(Failure::Refused(refusal)) => {
                tracing::info!(%job, epoch, %refusal, "its end is not ours to report any more");
                return;
            }
            Err(error) => tracing::warn!(%error, "not reported; trying again"),
        }
        sleep(STORE_RETRY).await;
    }
}
