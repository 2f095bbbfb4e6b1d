//! A wish to cancel. Without an owner the job ends here; with one the wish waits under a key of its own until the
//! owner confirms the kill, or is lost and a dispatcher ends the job.

use meta_client::Stored;
use meta_types::LeaseId;

use super::{End, terminate};
use crate::keys::{JobCancelKey, JobKey, JobOwnerKey};
use crate::names::JobId;
use crate::plan::{Plan, Steps};
use crate::record::{CancelIntent, Job, JobState};
use crate::refusal::Refusal;
use crate::view::View;

/// A wish to cancel a job.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// The job.
    pub job: JobId,
    /// Why.
    pub reason: String,
    /// The lease the record lives on if this ends the job; 0 = for ever.
    pub retention: LeaseId,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

/// What became of the wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The owner was told.
    Asked,
    /// Nothing of it runs: it is CANCELED.
    Canceled,
}

/// Cancels. 404 for an unknown job, 409 for one that FINISHED or FAILED.
/// Scope: the job ([`crate::Scope::and_job`]).
pub fn request_cancel(view: &View, wish: &Cancel) -> Result<Plan<CancelAnswer>, Refusal> {
    let found = view.get(&JobKey::new(&wish.job))?;
    let found = found.ok_or_else(|| Refusal::not_found(format!("Job {} not found", wish.job)))?;
    match found.state {
        JobState::Canceled => Ok(Plan::already(CancelAnswer::Canceled)),
        state if state.is_terminal() => {
            Err(Refusal::wrong_state(format!("Job {} is already {}", wish.job, state.as_str())))
        }
        _ => {
            let (steps, answer) = cancel_live(view, Steps::new(), &found, wish)?;
            if answer == CancelAnswer::Asked && view.get(&JobCancelKey::new(&wish.job))?.is_some() {
                return Ok(Plan::already(answer));
            }
            Ok(steps.answer(answer))
        }
    }
}

/// Adds the cancelling of a job that is not over to the steps.
pub(crate) fn cancel_live(
    view: &View,
    steps: Steps,
    found: &Stored<Job>,
    wish: &Cancel,
) -> Result<(Steps, CancelAnswer), Refusal> {
    let owner_key = JobOwnerKey::new(&wish.job);
    let Some(owner) = view.get(&owner_key)? else {
        let end = End::canceled(&wish.reason, wish.retention, wish.now_ms);
        return Ok((terminate(steps.absent(&owner_key), &wish.job, found, end), CancelAnswer::Canceled));
    };
    let key = JobCancelKey::new(&wish.job);
    if view.get(&key)?.is_some() {
        return Ok((steps, CancelAnswer::Asked));
    }
    let intent = CancelIntent { reason: wish.reason.clone(), at_ms: wish.now_ms, extra: Default::default() };
    let steps = steps
        .stands(&owner_key, owner.create_revision)
        .unchanged(&JobKey::new(&wish.job), found)
        .absent(&key)
        .put(&key, &intent);
    Ok((steps, CancelAnswer::Asked))
}
