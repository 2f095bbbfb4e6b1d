//! A dispatcher: answers requests about runs, and reconciles: adopts runs, takes them on, places jobs, cleans up
//! after packages and the dead. What it decides on may be a moment old; the guards of the plans have to hold.

use std::collections::BTreeMap;
use std::time::Duration;

use meta_client::{Commit, KvError, commit};
use meta_types::Revision;
use records::jobs::{self, Drive};
use records::keys::{CopyKey, RunTokenKey, UnitKey};
use records::packages;
use records::record::{
    Backoff, JobSpec, NodeRef, Phase, RestartStrategy, RunResult, StatedRequest, TokenEnd, UnitState,
};
use records::runs::{self, Admit, Advance, Delete};
use records::{Class, Failure, JobId, Refusal, Scope, TriggerId, UnitId, View, carry_out};
use tokio::time::Instant;

use super::process::Session;
use super::truth::Truth;
use crate::history::{Answer, RunOutcome};
use crate::workload::env::{Chance, Env};

/// How often a dispatcher looks.
const RECONCILE: Duration = Duration::from_millis(180);
/// A placement that is not claimed in this time is given up.
const UNCLAIMED: Duration = Duration::from_millis(1_500);
/// How long a lost coordinator is waited for.
const COORDINATOR_GRACE: Duration = Duration::from_millis(1_500);
/// How long a DELETE waits for what runs.
const SETTLES: Duration = Duration::from_secs(2);
/// Pause between two looks of it.
const LOOK: Duration = Duration::from_millis(100);

/// Strategies of the jobs: few restarts and short pauses, so that budgets are used up.
const STRATEGIES: [RestartStrategy; 4] = [
    RestartStrategy::None,
    RestartStrategy::OnContainerLoss,
    RestartStrategy::FixedDelay { attempts: 1, delay_ms: 300 },
    RestartStrategy::ExponentialDelay(Backoff {
        initial_ms: 100,
        max_ms: 800,
        multiplier_permille: 2000,
        reset_ms: 1_500,
        jitter_permille: 100,
        attempts: Some(2),
    }),
];

/// One boot of a dispatcher.
#[derive(Clone)]
pub struct Dispatcher {
    /// Its session.
    pub session: Session,
    /// The world outside of the store.
    pub truth: Truth,
    /// What it shares with everybody.
    pub env: Env,
}

impl Dispatcher {
    /// Does what a dispatcher does, until it is dropped.
    pub async fn work(self) {
        let _open = self.truth.open_dispatcher(self.session.clone());
        let mut chance = self.env.chance(self.session.me.incarnation as u64 ^ 0xd15_9a7c);
        let mut seen: BTreeMap<JobId, (Revision, Instant)> = BTreeMap::new();
        let mut lost: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            tokio::time::sleep(chance.between(RECONCILE / 2, RECONCILE * 3 / 2)).await;
            let view = self.session.see(Scope::everything()).await;
            self.drive_runs(&view, &mut chance).await;
            self.drive_jobs(&view, &mut seen).await;
            self.tend_packages(&view, &mut chance, &mut lost).await;
        }
    }

    async fn drive_runs(&self, view: &View, chance: &mut Chance) {
        let Session { me, lease, .. } = &self.session;
        let orphans = runs::orphans(view).unwrap_or_default();
        if let Some(trigger) = chance.pick(&orphans) {
            self.session.act("run adopted", view, runs::adopt(view, trigger, me, *lease)).await;
        }
        for (trigger, _, epoch) in runs::mine(view, me).unwrap_or_default() {
            let step = Advance { trigger, epoch, run_retention: 0, token_retention: 0, now_ms: 0 };
            self.session.act("run advanced", view, runs::advance(view, &step)).await;
        }
    }

    /// Claims and pauses are counted by this process's own clock, from when it sees a job as it is.
    async fn drive_jobs(&self, view: &View, seen: &mut BTreeMap<JobId, (Revision, Instant)>) {
        let ownerless = jobs::ownerless(view).unwrap_or_default();
        seen.retain(|job, (revision, _)| {
            ownerless.iter().any(|(other, found)| other == job && found.mod_revision == *revision)
        });
        for (job, found) in ownerless {
            let on = found
                .placed
                .as_ref()
                .map(|at| NodeRef { node: at.node.clone(), incarnation: at.incarnation });
            let (_, since) = *seen.entry(job.clone()).or_insert((found.mod_revision, Instant::now()));
            let give_up_on = on.filter(|_| since.elapsed() > UNCLAIMED);
            let waited_ms = since.elapsed().as_millis() as u64;
            let wish = Drive { job, waited_ms, give_up_on, retention: 0, now_ms: 0 };
            self.session.act("job driven", view, jobs::drive(view, &wish)).await;
        }
    }

    async fn tend_packages(&self, view: &View, chance: &mut Chance, lost: &mut BTreeMap<String, Instant>) {
        for (key, found) in view.all::<UnitKey>().unwrap_or_default() {
            let unit = &key.unit;
            for (row, _) in view.under::<CopyKey>(&copies_of(unit)).unwrap_or_default() {
                let plan = packages::dead_copy(view, unit, &row.node);
                self.session.act("dead copy removed", view, plan).await;
            }
            match found.state {
                UnitState::Creating => {
                    let plan = packages::coordinator_lost(view, unit, &found.op);
                    let since = *lost.entry(found.op.clone()).or_insert_with(Instant::now);
                    if plan.is_err() {
                        lost.remove(&found.op);
                    } else if since.elapsed() > COORDINATOR_GRACE || chance.one_in(8) {
                        self.session.act("create without coordinator undone", view, plan).await;
                    }
                }
                UnitState::Removing | UnitState::Purging => {
                    let Some(digest) = found.manifest.clone() else {
                        let plan = packages::finish(view, unit, &found.op);
                        self.session.act("package gone", view, plan).await;
                        continue;
                    };
                    let scope = Scope::package(unit).and_manifest(&digest);
                    let fresh = self.session.see(scope).await;
                    let plan = packages::finish(&fresh, unit, &found.op);
                    self.session.act("package gone", &fresh, plan).await;
                }
                UnitState::Ready => {}
            }
        }
    }
}

fn copies_of(unit: &UnitId) -> String {
    records::keys::below(<CopyKey as meta_client::TypedKey>::PREFIX, unit)
}

/// A POST as a dispatcher carries it out.
pub struct Post {
    /// The run's id.
    pub trigger: TriggerId,
    /// Stands for what it states.
    pub fingerprint: String,
    /// The package it runs.
    pub program: UnitId,
}

/// Carries a POST out.
pub async fn post(session: &Session, chance: &mut Chance, wish: &Post) -> RunOutcome {
    match try_post(session, chance, wish).await {
        Ok(answer) => RunOutcome::Ok(answer),
        Err(outcome) => outcome,
    }
}

async fn try_post(session: &Session, chance: &mut Chance, wish: &Post) -> Result<Answer, RunOutcome> {
    let stated = StatedRequest {
        jar_digest: Some("d".into()),
        entry_class: Some(wish.fingerprint.clone()),
        ..StatedRequest::default()
    };
    let view = look(session, Scope::run(&wish.trigger)).await?;
    match runs::lookup(&view, &wish.trigger, &stated) {
        Ok(None) => {}
        Ok(Some(_)) => return Ok(Answer::Accepted),
        Err(refusal) => return refused(refusal),
    }
    let view = look(session, Scope::default().and_key(&UnitKey::new(&wish.program))).await?;
    let program = match packages::ready_package(&view, &wish.program) {
        Ok(program) => program,
        Err(refusal) => return refused(refusal),
    };
    let restart = STRATEGIES[chance.below(STRATEGIES.len())];
    let spec = JobSpec {
        name: "app".into(),
        program,
        jar_file: "app.jar".into(),
        class_path: vec![],
        entry_class: None,
        args: vec![],
        parallelism: 1,
        savepoint_path: None,
        restore_mode: None,
        allow_non_restored_state: false,
        configuration: Default::default(),
        restart,
        on_lost_store: Default::default(),
    };
    let admit = Admit {
        trigger: wish.trigger.clone(),
        stated,
        job: JobId::from_random(chance.bits()),
        spec,
        dispatcher: session.me.clone(),
        lease: session.lease,
        hidden: false,
        now_ms: 0,
    };
    let scope = Scope::run(&wish.trigger).and_job(&admit.job).and_nodes();
    let scope = scope.and_key(&UnitKey::new(&wish.program));
    match carry_out(&*session.kv, &scope, |view| runs::admit(view, &admit)).await {
        Ok(done) => {
            session.may_die(chance, 12).await;
            session.env.tally.count(if done.answer.new { "run admitted" } else { "run admitted before" });
            Ok(Answer::Accepted)
        }
        Err(failure) => of_failure(failure),
    }
}

async fn look(session: &Session, scope: Scope) -> Result<View, RunOutcome> {
    // A read that is not answered has done nothing.
    View::load(&*session.kv, scope).await.map_err(|error| RunOutcome::Failed(error.to_string()))
}

fn refused(refusal: Refusal) -> Result<Answer, RunOutcome> {
    match refusal.class {
        Class::Different => Ok(Answer::OtherRequest),
        Class::Deleted => Ok(Answer::WasDeleted),
        Class::NotFound | Class::UnitNotReady | Class::BadRequest | Class::JobIdInUse => {
            Ok(Answer::Refused(refusal.text))
        }
        _ => Err(RunOutcome::Failed(refusal.text)),
    }
}

fn of_failure(failure: Failure) -> Result<Answer, RunOutcome> {
    match failure {
        Failure::Refused(refusal) => refused(refusal),
        Failure::Store(KvError::Unknown(_)) | Failure::Contended => Err(RunOutcome::Unknown),
        Failure::Store(error) => Err(RunOutcome::Failed(error.to_string())),
    }
}

/// Carries a GET out.
pub async fn get(session: &Session, trigger: &TriggerId) -> RunOutcome {
    let view = match look(session, Scope::run(trigger)).await {
        Ok(view) => view,
        Err(outcome) => return outcome,
    };
    let result = match runs::run(&view, trigger) {
        Ok(Some(found)) if found.run.phase != Phase::Completed => {
            return RunOutcome::Ok(Answer::InProgress);
        }
        Ok(Some(found)) => found.run.result.clone(),
        Ok(None) | Err(_) => match view.get(&RunTokenKey::new(trigger)) {
            Ok(Some(token)) => match &token.end {
                TokenEnd::Completed(result) => Some(result.clone()),
                TokenEnd::Deleted => None,
            },
            Ok(None) | Err(_) => None,
        },
    };
    RunOutcome::Ok(match result {
        Some(RunResult::Jobid(job)) => Answer::Completed { job: job.to_string() },
        Some(RunResult::FailureCause(cause)) => Answer::RunFailed { class: cause.class },
        None => Answer::NotFound,
    })
}

/// Carries a DELETE out, and waits a while for what runs.
pub async fn delete(session: &Session, trigger: &TriggerId) -> RunOutcome {
    match try_delete(session, trigger).await {
        Ok(answer) => RunOutcome::Ok(answer),
        Err(outcome) => outcome,
    }
}

async fn try_delete(session: &Session, trigger: &TriggerId) -> Result<Answer, RunOutcome> {
    let view = look(session, Scope::run(trigger)).await?;
    let found = runs::run(&view, trigger).ok().flatten().map(|found| found.run.job.clone());
    let token = view.get(&RunTokenKey::new(trigger)).ok().flatten().map(|token| token.job.clone());
    let Some(job) = found.or(token) else { return Ok(Answer::NotFound) };
    let wish = Delete { trigger: trigger.clone(), token_retention: 0, job_retention: 0, now_ms: 0 };
    let scope = Scope::run(trigger).and_job(&job);
    let deleted = match carry_out(&*session.kv, &scope, |view| runs::delete(view, &wish)).await {
        Ok(done) => done.answer,
        Err(Failure::Refused(refusal)) if refusal.class == Class::NotFound => return Ok(Answer::NotFound),
        Err(failure) => return of_failure(failure),
    };
    session.env.tally.count("run deleted");
    let end = Instant::now() + SETTLES;
    let mut settled = deleted.settled;
    while !settled && Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        let view = look(session, Scope::default().and_job(&deleted.job)).await;
        settled = view.is_ok_and(|view| runs::is_settled(&view, &deleted.job).unwrap_or(false));
    }
    Ok(if settled { Answer::Deleted } else { Answer::Cancelling })
}

/// Asks for a cancellation; whether it was carried out shows in the records.
pub async fn cancel(session: &Session, job: &JobId) {
    let wish = jobs::Cancel { job: job.clone(), reason: "cancel".into(), retention: 0, now_ms: 0 };
    let Ok(view) = View::load(&*session.kv, Scope::default().and_job(job)).await else { return };
    let Ok(plan) = jobs::request_cancel(&view, &wish) else { return };
    if let Ok(Commit::Done(_)) = commit(&*session.kv, plan.txn(), view.revision()).await {
        session.env.tally.count("job cancel asked");
    }
}
