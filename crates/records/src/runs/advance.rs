//! The run follows its job: phases while it is in progress, then its result. Written by the run's owner only.

use meta_client::Stored;
use meta_types::{LeaseId, Revision};

use crate::keys::{JobKey, JobOwnerKey, RunKey, RunOwnerKey, RunTokenKey};
use crate::names::TriggerId;
use crate::plan::{Plan, Steps};
use crate::record::{FailureCause, Job, JobState, Phase, Run, RunResult, RunToken, TokenEnd};
use crate::refusal::Refusal;
use crate::view::View;

/// A step of a run's owner.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The run.
    pub trigger: TriggerId,
    /// The owner's epoch.
    pub epoch: Revision,
    /// The lease a completed run lives on; 0 = for ever.
    pub run_retention: LeaseId,
    /// The lease its token lives on; 0 = for ever.
    pub token_retention: LeaseId,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advanced {
    /// Nothing changed, or the phase did.
    InProgress(Phase),
    /// It has its result.
    Completed(RunResult),
}

/// True if the step would complete the run: only then retention leases are needed.
/// Scope: [`crate::Scope::run`] and its job.
pub fn would_complete(view: &View, run: &Run) -> Result<bool, Refusal> {
    Ok(result(view.get(&JobKey::new(&run.job))?.as_ref(), run).is_some())
}

/// Takes the step. Scope: [`crate::Scope::run`] and its job.
pub fn advance(view: &View, wish: &Advance) -> Result<Plan<Advanced>, Refusal> {
    let (run_key, owner_key) = (RunKey::new(&wish.trigger), RunOwnerKey::new(&wish.trigger));
    let run = view.get(&run_key)?;
    let run = run.ok_or_else(|| Refusal::fenced(format!("run {} is gone", wish.trigger)))?;
    if let (Phase::Completed, Some(result)) = (run.phase, &run.result) {
        return Ok(Plan::already(Advanced::Completed(result.clone())));
    }
    if view.get(&owner_key)?.is_none_or(|owner| owner.create_revision != wish.epoch) {
        return Err(Refusal::fenced(format!("run {}: epoch {} is over", wish.trigger, wish.epoch)));
    }
    let job = view.get(&JobKey::new(&run.job))?;
    let steps = Steps::new().stands(&owner_key, wish.epoch).unchanged(&run_key, &run);
    if let Some(result) = result(job.as_ref(), &run) {
        return complete(view, wish, steps, &run, job.as_ref(), result);
    }
    let Some(job) = job else { return Err(Refusal::not_yet("its job is not in the view")) };
    let mut record = run.value.clone();
    record.phase = run.phase.max(phase(view, &run, &job)?);
    record.attempts = job.attempt;
    record.waiting = job.waiting.clone();
    let answer = Advanced::InProgress(record.phase);
    if record == run.value {
        return Ok(Plan::already(answer));
    }
    Ok(steps.put(&run_key, &record).answer(answer))
}

/// The phase to show. The record follows its job in transactions of its own: that the job is created is seen before
/// the run is completed with it.
pub fn shown_phase(run: &Run, job: Option<&Job>) -> Phase {
    let submitted = job.is_some_and(Job::is_created);
    if submitted { run.phase.max(Phase::Submitted) } else { run.phase }
}

fn phase(view: &View, run: &Run, job: &Job) -> Result<Phase, Refusal> {
    let owner = view.get(&JobOwnerKey::new(&run.job))?;
    let launching = owner.as_ref().is_some_and(|owner| {
        job.attempts.last().is_some_and(|attempt| attempt.epoch == owner.create_revision)
    });
    Ok(if launching {
        Phase::Launching
    } else if owner.is_some() || job.placed.is_some() {
        Phase::Staging
    } else {
        Phase::Accepted
    })
}

/// The run's result, once the job has decided it: created, or over without having been created.
fn result(job: Option<&Stored<Job>>, run: &Run) -> Option<RunResult> {
    let Some(job) = job else {
        return Some(RunResult::FailureCause(FailureCause {
            class: "JOB_RECORD_LOST".into(),
            stack_trace: format!("the record of job {} is gone", run.job),
        }));
    };
    if job.is_created() {
        return Some(RunResult::Jobid(run.job.clone()));
    }
    job.state.is_terminal().then(|| RunResult::FailureCause(cause(job)))
}

fn cause(job: &Job) -> FailureCause {
    let exit = job.exit.as_ref();
    let class = exit.and_then(|exit| exit.class.clone()).unwrap_or_else(|| {
        if job.state == JobState::Canceled { "CANCELED".into() } else { "MAIN_FAILED".into() }
    });
    let mut lines = Vec::new();
    if let Some(code) = exit.and_then(|exit| exit.code) {
        lines.push(format!("exit code {code}"));
    }
    if let Some(signal) = exit.and_then(|exit| exit.signal) {
        lines.push(format!("killed by signal {signal}"));
    }
    lines.extend(exit.map(|exit| exit.text.clone()).filter(|text| !text.is_empty()));
    FailureCause { class, stack_trace: lines.join("\n") }
}

fn complete(
    view: &View,
    wish: &Advance,
    steps: Steps,
    run: &Stored<Run>,
    job: Option<&Stored<Job>>,
    result: RunResult,
) -> Result<Plan<Advanced>, Refusal> {
    let token_key = RunTokenKey::new(&wish.trigger);
    let token = view.get(&token_key)?;
    let job_key = JobKey::new(&run.job);
    let mut record = run.value.clone();
    record.phase = Phase::Completed;
    record.result = Some(result.clone());
    record.completed_at_ms = Some(wish.now_ms);
    record.waiting = None;
    record.attempts = job.map_or(run.attempts, |job| job.attempt);
    let remembered = RunToken {
        stated: run.stated.clone(),
        job: run.job.clone(),
        end: TokenEnd::Completed(result.clone()),
        ended_at_ms: wish.now_ms,
        accepted_at_ms: run.accepted_at_ms,
        accepted_by: run.accepted_by.clone(),
        extra: Default::default(),
    };
    // Whether the job was created never changes back, so its record may move on meanwhile; that it is gone may not
    // be true any more.
    let steps = if job.is_none() { steps.absent(&job_key) } else { steps };
    Ok(steps
        .as_read(&token_key, token.as_ref())
        .put_leased(&RunKey::new(&wish.trigger), &record, wish.run_retention)
        .put_leased(&token_key, &remembered, wish.token_retention)
        .delete(&RunOwnerKey::new(&wish.trigger))
        .answer(Advanced::Completed(result)))
}
