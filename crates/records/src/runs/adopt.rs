//! Orphans: runs in progress that nobody drives. An orphan is a state, not an event: no owner key in the same
//! snapshot as a run in progress.

use meta_client::Stored;
use meta_types::{LeaseId, Revision};

use crate::keys::{NodeKey, RunKey, RunOwnerKey};
use crate::names::TriggerId;
use crate::plan::{Plan, Steps};
use crate::record::{NodeRef, Phase, Run, RunOwner};
use crate::refusal::Refusal;
use crate::view::View;

/// Runs in progress without an owner. Scope: all runs and run owners.
pub fn orphans(view: &View) -> Result<Vec<TriggerId>, Refusal> {
    let mut found = Vec::new();
    for (key, run) in view.all::<RunKey>()? {
        if run.phase != Phase::Completed && view.get(&RunOwnerKey::new(&key.trigger))?.is_none() {
            found.push(key.trigger);
        }
    }
    Ok(found)
}

/// Runs in progress that this boot drives, with the epoch. Scope: all runs and run owners.
pub fn mine(view: &View, me: &NodeRef) -> Result<Vec<(TriggerId, Stored<Run>, Revision)>, Refusal> {
    let mut found = Vec::new();
    for (key, run) in view.all::<RunKey>()? {
        let owner = view.get(&RunOwnerKey::new(&key.trigger))?;
        if let Some(owner) = owner.filter(|o| o.node == me.node && o.incarnation == me.incarnation) {
            found.push((key.trigger, run, owner.create_revision));
        }
    }
    Ok(found)
}

/// Takes an orphan; answers the epoch. Scope: [`crate::Scope::run`] and the nodes.
pub fn adopt(
    view: &View,
    trigger: &TriggerId,
    me: &NodeRef,
    lease: LeaseId,
) -> Result<Plan<Revision>, Refusal> {
    let (run_key, owner_key) = (RunKey::new(trigger), RunOwnerKey::new(trigger));
    let run = view.get(&run_key)?.ok_or_else(|| Refusal::not_found(format!("there is no run {trigger}")))?;
    if run.phase == Phase::Completed {
        return Err(Refusal::wrong_state(format!("run {trigger} is completed")));
    }
    match view.get(&owner_key)? {
        Some(owner) if owner.node == me.node && owner.incarnation == me.incarnation => {
            Ok(Plan::already(owner.create_revision))
        }
        Some(owner) => Err(Refusal::fenced(format!("run {trigger} is driven by {}", owner.node))),
        None => {
            let record =
                RunOwner { node: me.node.clone(), incarnation: me.incarnation, extra: Default::default() };
            Ok(Steps::new()
                .absent(&owner_key)
                .unchanged(&run_key, &run)
                .stands(&NodeKey::new(&me.node), me.incarnation)
                .put_leased(&owner_key, &record, lease)
                .answer_at(|epoch| epoch))
        }
    }
}
