//! Deleting a run: one transaction turns it into a tombstone, so that a late retry cannot revive it. A completed
//! run's job stays; a run in progress also leaves a wish to cancel, or ends a job nobody owns at once.

use meta_client::Stored;
use meta_types::LeaseId;

use crate::jobs::{Cancel, CancelAnswer, cancel_live};
use crate::keys::{JobCancelKey, JobKey, JobOwnerKey, RunKey, RunOwnerKey, RunTokenKey};
use crate::names::{JobId, TriggerId};
use crate::plan::{Plan, Steps};
use crate::record::{Phase, Run, RunToken, TokenEnd};
use crate::refusal::Refusal;
use crate::view::View;

/// A wish to delete a run.
#[derive(Debug, Clone)]
pub struct Delete {
    /// The run.
    pub trigger: TriggerId,
    /// The lease the tombstone lives on; 0 = for ever.
    pub token_retention: LeaseId,
    /// The lease the job's record lives on if this ends it; 0 = for ever.
    pub job_retention: LeaseId,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// The run's job.
    pub job: JobId,
    /// True if nothing is left to wait for; else wait until [`is_settled`].
    pub settled: bool,
}

/// Deletes. Repeating it is fine while the tombstone lives; then, and for an unknown run, 404.
/// Scope: [`crate::Scope::run`] and the run's job (load the run first).
pub fn delete(view: &View, wish: &Delete) -> Result<Plan<Deleted>, Refusal> {
    let (run_key, token_key) = (RunKey::new(&wish.trigger), RunTokenKey::new(&wish.trigger));
    let token = view.get(&token_key)?;
    let Some(run) = view.get(&run_key)? else { return delete_token(view, wish, &token_key, token) };
    let tombstone = RunToken {
        stated: run.stated.clone(),
        job: run.job.clone(),
        end: TokenEnd::Deleted,
        ended_at_ms: wish.now_ms,
        accepted_at_ms: run.accepted_at_ms,
        accepted_by: run.accepted_by.clone(),
        extra: token.as_ref().map(|token| token.extra.clone()).unwrap_or_default(),
    };
    let steps = Steps::new()
        .unchanged(&run_key, &run)
        .as_read(&token_key, token.as_ref())
        .put_leased(&token_key, &tombstone, wish.token_retention)
        .delete(&run_key)
        .delete(&RunOwnerKey::new(&wish.trigger));
    let (steps, settled) = stop_job(view, wish, steps, &run)?;
    Ok(steps.answer(Deleted { job: run.job.clone(), settled }))
}

/// Only the token is left: the run itself ended and was forgotten, or was deleted before.
fn delete_token(
    view: &View,
    wish: &Delete,
    key: &RunTokenKey,
    token: Option<Stored<RunToken>>,
) -> Result<Plan<Deleted>, Refusal> {
    let Some(token) = token else {
        return Err(Refusal::not_found(format!("there is no run {}", wish.trigger)));
    };
    let job = token.job.clone();
    if token.end == TokenEnd::Deleted {
        let settled = is_settled(view, &job)?;
        return Ok(Plan::already(Deleted { job, settled }));
    }
    let mut record = token.value.clone();
    record.end = TokenEnd::Deleted;
    record.ended_at_ms = wish.now_ms;
    let steps = Steps::new().unchanged(key, &token).absent(&RunKey::new(&wish.trigger));
    Ok(steps.put_leased(key, &record, wish.token_retention).answer(Deleted { job, settled: true }))
}

fn stop_job(view: &View, wish: &Delete, steps: Steps, run: &Stored<Run>) -> Result<(Steps, bool), Refusal> {
    let job = view.get(&JobKey::new(&run.job))?.filter(|job| !job.state.is_terminal());
    let Some(job) = job.filter(|_| run.phase != Phase::Completed) else { return Ok((steps, true)) };
    let cancel = Cancel {
        job: run.job.clone(),
        reason: "its run was deleted".into(),
        retention: wish.job_retention,
        now_ms: wish.now_ms,
    };
    let (steps, answer) = cancel_live(view, steps, &job, &cancel)?;
    Ok((steps, answer == CancelAnswer::Canceled))
}

/// True if there is nothing to wait for after a delete: the job is over, or nobody wants it gone (its run had been
/// completed, the job stays), or its owner's lease ran out (then no dispatcher lets it start again, because the wish
/// to cancel stands). Scope: the job ([`crate::Scope::and_job`]).
pub fn is_settled(view: &View, job: &JobId) -> Result<bool, Refusal> {
    let over = view.get(&JobKey::new(job))?.is_none_or(|job| job.state.is_terminal());
    let wished = view.get(&JobCancelKey::new(job))?.is_some();
    Ok(over || !wished || view.get(&JobOwnerKey::new(job))?.is_none())
}
