//! main() failed: the job starts again after a pause, as often as its strategy allows, or is over.
//!
//! The owner gives the job back together with the pause, so that the next attempt runs under an epoch of its own,
//! wherever there are slots. The pause is a length, not a time: whoever places the job counts it by its own clock
//! from the moment it sees the job without an owner. A dispatcher that starts in between counts anew, so a pause is
//! never shortened.

use meta_types::Revision;

use super::owner::{Ending, ended, owned};
use crate::keys::{JobCancelKey, JobKey};
use crate::names::JobId;
use crate::plan::Plan;
use crate::record::{Exit, Job, JobState, RestartStrategy};
use crate::refusal::Refusal;
use crate::view::View;

/// How the owner saw main() fail.
#[derive(Debug, Clone)]
pub struct MainFailed {
    /// The end of the job, if this is it: FAILED.
    pub ending: Ending,
    /// How long the attempt ran, by the owner's clock.
    pub ran_ms: u64,
    /// Drawn evenly from all numbers, for the jitter.
    pub dice: u32,
}

/// What became of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// It starts again after a pause.
    Restarts {
        /// The pause.
        pause_ms: u64,
    },
    /// It is over.
    Over(JobState),
}

/// Writes that main() failed and that nothing of it runs any more. Before main() made it a job, or while somebody wants
/// it gone, it is over; afterwards its strategy decides. Scope: the job ([`crate::Scope::and_job`]).
pub fn main_failed(
    view: &View,
    job: &JobId,
    epoch: Revision,
    wish: &MainFailed,
) -> Result<Plan<AfterFailure>, Refusal> {
    if let Some(found) = view.get(&JobKey::new(job))?
        && found.released_epoch == Some(epoch)
    {
        return Ok(Plan::already(AfterFailure::Restarts { pause_ms: found.pause_ms.unwrap_or(0) }));
    }
    let cancel = JobCancelKey::new(job);
    let is_wanted = view.get(&cancel)?.is_none();
    let restart = match view.get(&JobKey::new(job))? {
        Some(found) if is_wanted && (found.is_created() || wish.ending.created) => {
            found.spec.restart.after_failure(found.failures, wish.ran_ms, wish.dice)
        }
        _ => None,
    };
    let Some(restart) = restart else {
        return Ok(ended(view, job, epoch, &wish.ending)?.map(AfterFailure::Over));
    };
    let owned = owned(view, job, epoch)?;
    owned.started()?;
    let mut record = owned.given_back(epoch);
    record.state = JobState::Restarting;
    record.created_at_ms = record.created_at_ms.or(Some(wish.ending.now_ms));
    record.failures = restart.failures;
    record.pause_ms = Some(restart.pause_ms);
    record.waiting = Some(waiting(&record, &wish.ending.exit, restart.pause_ms));
    record.last_failure = Some(wish.ending.exit.clone());
    let steps = owned.give_back(job, &record).absent(&cancel);
    Ok(steps.answer(AfterFailure::Restarts { pause_ms: restart.pause_ms }))
}

fn waiting(job: &Job, exit: &Exit, pause_ms: u64) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("main() ended with exit code {code}"),
        (None, Some(signal)) => format!("main() was killed by signal {signal}"),
        (None, None) => "main() failed".to_owned(),
    };
    let budget = job.spec.restart.budget().map_or_else(String::new, |budget| format!(" of {budget}"));
    let in_a_row = match job.spec.restart {
        RestartStrategy::ExponentialDelay(_) => " in a row",
        _ => "",
    };
    format!("{how}: restart {}{budget}{in_a_row}, after a pause of {pause_ms} ms", job.failures)
}
