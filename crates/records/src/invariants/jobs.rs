//! I6, I10, I11, I12, I15, I16, I17, I18: a job, its owner, its attempts and its packages fit together.

use std::collections::BTreeMap;

use meta_client::TypedKey;

use super::{Violation, note};
use crate::jobs::is_kept;
use crate::keys::{JobCancelKey, JobKey, JobOwnerKey, NodeKey, PinKey, UnitKey, UseKey};
use crate::nodes;
use crate::record::{JobState, NodeRef, OnLostStore, PackageRef, RestartStrategy, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// True if the package was removed by force, or is another one by now.
fn forced_away(view: &View, package: &PackageRef) -> Result<bool, Refusal> {
    let unit = view.get(&UnitKey::new(&package.unit))?;
    Ok(unit.is_none_or(|unit| unit.op != package.op || unit.state == UnitState::Purging))
}

/// I6: a job that is not over has pinned each of its packages, those removed by force aside.
pub(super) fn pinned(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, job) in view.all::<JobKey>()? {
        if job.state.is_terminal() {
            continue;
        }
        for package in job.packages() {
            let pin = view.get(&PinKey::new(&package.unit, &key.job))?;
            if pin.is_none_or(|pin| pin.op != package.op) && !forced_away(view, package)? {
                note(found, "I6", key.encode(), format!("has not pinned {}", package.unit));
            }
        }
    }
    Ok(())
}

/// I10: a job's owner owns a job that is not over, and lives; or hangs on no lease and keeps an attempt of its epoch.
pub(super) fn owners(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, owner) in view.all::<JobOwnerKey>()? {
        let job = view.get(&JobKey::new(&key.job))?.filter(|job| !job.state.is_terminal());
        let Some(job) = job else {
            note(found, "I10", key.encode(), "there is no live job");
            continue;
        };
        if is_kept(&owner) {
            let is_of_it = job.attempts.last().is_some_and(|last| last.epoch == owner.create_revision);
            if job.spec.on_lost_store != OnLostStore::Keep || !is_of_it {
                note(found, "I10", key.encode(), "nothing is kept, and it hangs on no lease");
            }
            continue;
        }
        let node = view.get(&NodeKey::new(&owner.node))?;
        if node.is_none_or(|node| node.create_revision != owner.incarnation || node.lease != owner.lease) {
            note(found, "I10", key.encode(), format!("the boot of {} is gone", owner.node));
        }
    }
    Ok(())
}

/// I11: a job that is over has an exit; one that is not has none.
pub(super) fn exits(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, job) in view.all::<JobKey>()? {
        let over = job.state.is_terminal();
        if over != job.exit.is_some() || over != job.ended_at_ms.is_some() {
            note(found, "I11", key.encode(), format!("{} with exit {:?}", job.state.as_str(), job.exit));
        }
    }
    Ok(())
}

/// I12: a wish to cancel is for a job that is not over.
pub(super) fn cancels(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, _) in view.all::<JobCancelKey>()? {
        if view.get(&JobKey::new(&key.job))?.is_none_or(|job| job.state.is_terminal()) {
            note(found, "I12", key.encode(), "there is no live job");
        }
    }
    Ok(())
}

/// I15: a boot owns no more parallelism than it has slots.
pub(super) fn slots(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    let mut owned: BTreeMap<String, u64> = BTreeMap::new();
    for (key, owner) in view.all::<JobOwnerKey>()? {
        let boot = NodeRef { node: owner.node.clone(), incarnation: owner.incarnation };
        // What is kept by a boot that is gone is its successor's only when that goes on with it.
        let counts = !is_kept(&owner) || nodes::is_alive(view, &boot)?;
        if let Some(job) = view.get(&JobKey::new(&key.job))?.filter(|_| counts) {
            *owned.entry(owner.node.clone()).or_default() += u64::from(job.spec.parallelism);
        }
    }
    for (name, parallelism) in owned {
        let key = NodeKey::new(&name);
        let slots = view.get(&key)?.map_or(0, |node| u64::from(node.slots));
        if parallelism > slots {
            note(found, "I15", key.encode(), format!("owns jobs of {parallelism} slots and has {slots}"));
        }
    }
    Ok(())
}

/// I16: a job's attempts are numbered up, one an epoch, each epoch newer; at most one if main() may start once.
pub(super) fn attempts(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, job) in view.all::<JobKey>()? {
        let rising = job
            .attempts
            .windows(2)
            .all(|pair| pair[0].number + 1 == pair[1].number && pair[0].epoch < pair[1].epoch);
        if !rising || job.attempts.last().map_or(0, |last| last.number) != job.attempt {
            note(found, "I16", key.encode(), format!("attempt {} of {:?}", job.attempt, job.attempts));
        }
        let starts = job.main_starts();
        if job.spec.restart == RestartStrategy::None && starts > 1 {
            note(found, "I16", key.encode(), format!("started {starts} times, but may start once"));
        }
        if let (Some(owner), Some(last)) = (view.get(&JobOwnerKey::new(&key.job))?, job.attempts.last())
            && last.epoch > owner.create_revision
        {
            note(found, "I16", key.encode(), "an attempt has a newer epoch than the owner");
        }
    }
    Ok(())
}

/// I17: a started attempt of a live boot holds a use of each package on its node, those removed by force aside.
pub(super) fn uses(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, owner) in view.all::<JobOwnerKey>()? {
        let Some(job) = view.get(&JobKey::new(&key.job))? else { continue };
        let boot = NodeRef { node: owner.node.clone(), incarnation: owner.incarnation };
        let is_started = job.attempts.last().is_some_and(|last| last.epoch == owner.create_revision);
        if !is_started || (is_kept(&owner) && !nodes::is_alive(view, &boot)?) {
            continue;
        }
        for package in job.packages() {
            let held = view.get(&UseKey::new(&package.unit, &owner.node, &key.job.to_string()))?;
            if held.is_none_or(|held| held.op != package.op) && !forced_away(view, package)? {
                note(found, "I17", key.encode(), format!("runs on {} without a use of it", package.unit));
            }
        }
    }
    Ok(())
}

/// I18: main() was restarted as often as its strategy allows at most, and a job that pauses has no owner and no place.
pub(super) fn restarts(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, job) in view.all::<JobKey>()? {
        if job.spec.restart.budget().is_some_and(|budget| job.failures > budget) {
            let strategy = job.spec.restart.as_str();
            note(found, "I18", key.encode(), format!("{} restarts with strategy {strategy}", job.failures));
        }
        let is_owned = view.get(&JobOwnerKey::new(&key.job))?.is_some();
        if job.pause_ms.is_some() && (is_owned || job.placed.is_some() || job.state != JobState::Restarting) {
            note(found, "I18", key.encode(), format!("pauses, but is {}", job.state.as_str()));
        }
    }
    Ok(())
}
