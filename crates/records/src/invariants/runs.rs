//! I7, I8, I9, I13: one trigger, one job; a run, its owner and its token fit together.

use meta_client::TypedKey;

use super::{Violation, note};
use crate::keys::{JobKey, NodeKey, RunKey, RunOwnerKey, RunTokenKey};
use crate::record::{Phase, TokenEnd};
use crate::refusal::Refusal;
use crate::view::View;

/// I7: a trigger id has made the one job that its run names, and no other since.
pub(super) fn one_job(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, job) in view.all::<JobKey>()? {
        let run = view.get(&RunKey::new(&job.trigger))?;
        let other = run.filter(|run| run.job != key.job && job.create_revision >= run.create_revision);
        if let Some(run) = other {
            note(found, "I7", key.encode(), format!("run {} made job {} too", job.trigger, run.job));
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    for (key, run) in view.all::<RunKey>()? {
        if let Some(first) = seen.insert(run.job.clone(), key.trigger.clone()) {
            note(found, "I7", key.encode(), format!("has the job of run {first}"));
        }
    }
    Ok(())
}

/// I8: a run has a result exactly when it is COMPLETED; until then its job's record is there.
pub(super) fn results(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, run) in view.all::<RunKey>()? {
        let completed = run.phase == Phase::Completed;
        if completed != run.result.is_some() || completed != run.completed_at_ms.is_some() {
            note(found, "I8", key.encode(), format!("{:?} with result {:?}", run.phase, run.result));
        }
        let job = view.get(&JobKey::new(&run.job))?;
        if !completed && job.is_none_or(|job| job.trigger != key.trigger) {
            note(found, "I8", key.encode(), format!("in progress, but job {} is not there", run.job));
        }
    }
    Ok(())
}

/// I9: a run's owner lives and drives a run in progress.
pub(super) fn owners(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, owner) in view.all::<RunOwnerKey>()? {
        if view.get(&RunKey::new(&key.trigger))?.is_none_or(|run| run.phase == Phase::Completed) {
            note(found, "I9", key.encode(), "there is no run in progress");
        }
        let node = view.get(&NodeKey::new(&owner.node))?;
        if node.is_none_or(|node| node.create_revision != owner.incarnation || node.lease != owner.lease) {
            note(found, "I9", key.encode(), format!("the boot of {} is gone", owner.node));
        }
    }
    Ok(())
}

/// I13: a deleted run is gone; a completed one is remembered as it ended.
pub(super) fn tokens(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, token) in view.all::<RunTokenKey>()? {
        let Some(run) = view.get(&RunKey::new(&key.trigger))? else { continue };
        let remembered = match &token.end {
            TokenEnd::Deleted => None,
            TokenEnd::Completed(result) => Some(result),
        };
        if remembered.is_none() || run.result.as_ref() != remembered || run.job != token.job {
            note(found, "I13", key.encode(), "does not fit the run that is there");
        }
    }
    for (key, run) in view.all::<RunKey>()? {
        if run.phase == Phase::Completed && view.get(&RunTokenKey::new(&key.trigger))?.is_none() {
            note(found, "I13", key.encode(), "completed, but no token remembers it");
        }
    }
    Ok(())
}
