//! The owner of a job: fetch, use, count the attempt, start main(), watch it, tell the store how it ended. Each step
//! is planned anew after a lost answer, and everything stops when the epoch is over.

use std::time::Duration;

use meta_types::Revision;
use records::jobs::{self, Ending, MainFailed};
use records::keys::JobOwnerKey;
use records::nodes;
use records::packages::{self, BeginUse, CopyReport};
use records::record::{JobState, PackageRef, RestartStrategy};
use records::{JobId, Scope, View};
use tokio::time::Instant;

use super::node::Node;
use super::truth::Main;
use crate::workload::env::Chance;

/// How long main() runs.
const RUNS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(2_500));
/// How often its owner looks whether somebody wants it gone.
const LOOK: Duration = Duration::from_millis(200);
/// How long a node fetches a package.
pub const FETCH: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(150));

/// Why an attempt does not start.
enum Unfit {
    /// The epoch is over, or the job is.
    Over,
    /// It is to end like this.
    End(JobState),
    /// Another node shall try.
    Elsewhere,
}

/// How main() left its node.
enum Left {
    /// The job is over, in this state; whether it was created.
    Over(JobState, bool),
    /// It failed by itself; whether the job was created.
    MainFailed(bool),
    /// The node is drained.
    GivenBack,
}

/// Owns a job under an epoch to its end.
pub async fn own(node: &Node, mut chance: Chance, job: JobId, epoch: Revision) {
    let session = &node.session;
    let scope = Scope::default().and_job(&job);
    match prepare(node, &mut chance, &job, epoch).await {
        Ok(()) => {}
        Err(Unfit::Over) => return,
        Err(Unfit::End(state)) => return end(node, &job, epoch, state, false).await,
        Err(Unfit::Elsewhere) => {
            let release = |view: &View| jobs::release_unstarted(view, &job, epoch, "not here");
            // Refused: the epoch is over anyhow.
            let _ = session.carry("job released unstarted", &scope, release).await;
            return;
        }
    }
    let view = session.see(scope.clone()).await;
    let Ok(Some(found)) = jobs::job(&view, &job) else { return };
    let packages: Vec<PackageRef> = found.job.packages().cloned().collect();
    let start = Scope::start(&job, &packages, &session.me.node);
    let attempt = session.carry("attempt started", &start, |view| jobs::start_attempt(view, &job, epoch, 0));
    let Ok(attempt) = attempt.await else {
        return end(node, &job, epoch, JobState::Failed, false).await;
    };
    session.may_die(&mut chance, 25).await;
    for package in packages.iter().filter(|package| !node.may_run_on(package)) {
        node.truth.found(format!("job {job} starts on {package:?}, which is not on {}", session.me.node));
    }
    let trigger = found.job.trigger.to_string();
    let main = Main::start(&node.env, &session.me, &trigger, &job, attempt, epoch);
    let started_at = Instant::now();
    let left = run(node, &mut chance, &main, &job, epoch).await;
    drop(main);
    // Refused: the epoch is over, somebody else decides.
    let _ = match left {
        Left::Over(state, created) => return end(node, &job, epoch, state, created).await,
        Left::GivenBack => {
            let release = |view: &View| jobs::release(view, &job, epoch, "drained");
            session.carry("job released", &scope, release).await
        }
        Left::MainFailed(created) => {
            let ran_ms = started_at.elapsed().as_millis() as u64;
            let dice = chance.bits() as u32;
            let wish = MainFailed { ending: ending(JobState::Failed, created), ran_ms, dice };
            let failed = |view: &View| jobs::main_failed(view, &job, epoch, &wish);
            session.carry("main failed", &scope, failed).await.map(drop)
        }
    };
}

/// Everything before main().
async fn prepare(node: &Node, chance: &mut Chance, job: &JobId, epoch: Revision) -> Result<(), Unfit> {
    let session = &node.session;
    let view = session.see(Scope::default().and_job(job)).await;
    let Ok(Some(found)) = jobs::job(&view, job) else { return Err(Unfit::Over) };
    if found.epoch != Some(epoch) || found.job.state.is_terminal() {
        return Err(Unfit::Over);
    }
    if found.cancel_wished {
        return Err(Unfit::End(JobState::Canceled));
    }
    if chance.one_in(15) {
        return Err(Unfit::Elsewhere);
    }
    for package in found.job.packages().cloned().collect::<Vec<_>>() {
        fetch(node, chance, job, &package).await?;
        let wish = BeginUse {
            unit: package.unit.clone(),
            op: package.op.clone(),
            me: session.me.clone(),
            lease: session.lease,
            holder: job.to_string(),
            job: Some(job.clone()),
            epoch: Some(epoch),
            attempt: 1,
            now_ms: 0,
        };
        let scope = Scope::package(&package.unit).and_key(&JobOwnerKey::new(job));
        let begun = session.carry("use begun", &scope, |view| packages::begin_use(view, &wish)).await;
        begun.map_err(|_| Unfit::Elsewhere)?;
    }
    Ok(())
}

async fn fetch(node: &Node, chance: &mut Chance, job: &JobId, package: &PackageRef) -> Result<(), Unfit> {
    let session = &node.session;
    let report = CopyReport {
        unit: package.unit.clone(),
        op: package.op.clone(),
        me: session.me.clone(),
        for_job: Some(job.clone()),
    };
    let scope = Scope::package(&package.unit);
    if node.truth.on_disk(&session.me.node, package).is_none() {
        let fetching = session.carry("copy fetching", &scope, |view| packages::fetching(view, &report, 0));
        fetching.await.map_err(|_| Unfit::End(JobState::Failed))?;
        tokio::time::sleep(chance.between(FETCH.0, FETCH.1)).await;
        let holders = node.truth.holders(&package.unit, &package.op);
        let Some((_, digest)) = chance.pick(&holders) else { return Err(Unfit::Elsewhere) };
        node.truth.publish(&session.me.node, package, digest);
    }
    let present = session.carry("copy present", &scope, |view| packages::present(view, &report, 3)).await;
    // A row that is being drained stays as it is; whether it may be used is decided there.
    let _ = present;
    Ok(())
}

/// Runs main() to its end.
async fn run(node: &Node, chance: &mut Chance, main: &Main, job: &JobId, epoch: Revision) -> Left {
    let session = &node.session;
    let scope = Scope::default().and_job(job).and_nodes();
    let mut left = chance.between(RUNS.0, RUNS.1);
    if chance.one_in(6) {
        tokio::time::sleep(left / 4).await;
        return Left::MainFailed(false);
    }
    main.created();
    let made = session.carry("job created", &scope, |view| jobs::created(view, job, epoch, 0)).await.is_ok();
    while !left.is_zero() && !node.is_killed(job) {
        let step = left.min(LOOK);
        tokio::time::sleep(step).await;
        left -= step;
        let view = session.see(scope.clone()).await;
        let Ok(Some(found)) = jobs::job(&view, job) else { return Left::Over(JobState::Failed, made) };
        if found.epoch != Some(epoch) {
            return Left::Over(JobState::Failed, made);
        }
        if found.cancel_wished {
            let plan = jobs::cancelling(&view, job, epoch);
            session.act("job cancelling", &view, plan).await;
            return Left::Over(JobState::Canceled, made);
        }
        let is_drained = nodes::is_draining(&view, &session.me.node).unwrap_or(false);
        if is_drained && found.job.spec.restart != RestartStrategy::None {
            return Left::GivenBack;
        }
    }
    if node.is_killed(job) || !made {
        return Left::Over(JobState::Failed, made);
    }
    if chance.one_in(4) { Left::MainFailed(made) } else { Left::Over(JobState::Finished, made) }
}

async fn end(node: &Node, job: &JobId, epoch: Revision, state: JobState, created: bool) {
    let ending = ending(state, created);
    let scope = Scope::default().and_job(job);
    // Refused: the epoch is over, somebody else decides.
    let _ = node.session.carry("job ended", &scope, |view| jobs::ended(view, job, epoch, &ending)).await;
}

fn ending(state: JobState, created: bool) -> Ending {
    Ending { state, exit: Default::default(), created, retention: 0, now_ms: 0 }
}
