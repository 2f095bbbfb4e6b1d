//! What one transaction may not do to the state before it.

use meta_client::TypedKey;

use super::{Violation, note};
use crate::keys::{JobKey, JobOwnerKey, RunKey, UnitKey};
use crate::record::{Job, OnLostStore};
use crate::refusal::Refusal;
use crate::view::View;

/// S1: a package's state only moves forward under one operation. S2: a job that is over does not change. S3: a
/// run's result does not change. S4: attempts are never taken back. S5: a job that is kept has no second attempt, and
/// no other owner, before it is known that nothing of the one before runs any more.
pub fn step_violations(before: &View, after: &View) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Err(refusal) = check(before, after, &mut found) {
        note(&mut found, "S0", "", refusal.text);
    }
    found
}

/// True if nobody said that nothing of a kept job's last attempt runs any more; a later owner could not be before that.
fn may_run(job: &Job) -> bool {
    let last = job.attempts.last();
    last.is_some_and(|last| job.released_epoch.is_none_or(|released| released < last.epoch))
}

fn check(before: &View, after: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, was) in before.all::<UnitKey>()? {
        if after.get(&key)?.is_some_and(|is| is.op == was.op && is.state < was.state) {
            note(found, "S1", key.encode(), "went back");
        }
        if after.get(&key)?.is_some_and(|is| is.op != was.op) {
            note(found, "S1", key.encode(), "was replaced without having been removed");
        }
    }
    for (key, was) in before.all::<JobKey>()? {
        let Some(is) = after.get(&key)? else { continue };
        if was.state.is_terminal() && is.value != was.value {
            note(found, "S2", key.encode(), format!("was {}", was.state.as_str()));
        }
        if is.attempt < was.attempt || is.attempt > was.attempt + 1 {
            note(found, "S4", key.encode(), format!("attempt {} after {}", is.attempt, was.attempt));
        }
        let keeps = was.spec.on_lost_store == OnLostStore::Keep && may_run(&was);
        if keeps && is.attempt > was.attempt {
            note(found, "S5", key.encode(), format!("attempt {} while {} may run", is.attempt, was.attempt));
        }
        let owner =
            |view: &View| Ok::<_, Refusal>(view.get(&JobOwnerKey::new(&key.job))?.map(|o| o.create_revision));
        let moved = owner(before)? != owner(after)?;
        if keeps && moved && may_run(&is) && !is.state.is_terminal() {
            note(found, "S5", key.encode(), "lost its owner while an attempt may run");
        }
    }
    for (key, was) in before.all::<RunKey>()? {
        let Some(is) = after.get(&key)? else { continue };
        if was.result.is_some() && is.result != was.result {
            note(found, "S3", key.encode(), "its result changed");
        }
    }
    Ok(())
}
