//! What reconcilers do for the dead: coordinators (T2, T2'), rows (N4), private packages nobody came for. The grace
//! they wait before is the caller's; the guards make a too early or repeated call harmless.

use meta_client::TypedKey;

use super::publish::purge;
use super::unit_of_op;
use crate::keys::{CopyKey, NodeKey, PinKey, UnitKey, below};
use crate::names::UnitId;
use crate::nodes;
use crate::plan::{Plan, Steps};
use crate::record::{CopyState, NodeRef, Unit, UnitOrigin, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// T2: the coordinator of a create is lost, the create is undone. Scope: [`crate::Scope::package`].
pub fn coordinator_lost(view: &View, unit: &UnitId, op: &str) -> Result<Plan<()>, Refusal> {
    let (key, found) = unit_of_op(view, unit, op)?;
    match found.state {
        UnitState::Purging => return Ok(Plan::already(())),
        UnitState::Creating => {}
        UnitState::Ready | UnitState::Removing => {
            return Err(Refusal::wrong_state(format!("{unit} is not being created")));
        }
    }
    if nodes::is_alive(view, &found.coordinator)? {
        return Err(Refusal::wrong_state(format!("{unit}: coordinator {} lives", found.coordinator.node)));
    }
    let coordinator = NodeKey::new(&found.coordinator.node);
    let steps = Steps::new().gone(&coordinator, found.coordinator.incarnation);
    purge(view, &key, &found, steps, &format!("coordinator {} was lost", found.coordinator.node))
}

/// Creates that this boot is the coordinator of and does not carry (any more): the answer of the reservation was
/// lost, or the store stayed away while the create was given up. Nobody else may end them while this node lives, so
/// each coordinator looks for these from time to time and [`super::abort`]s them. Answers package, operation, epoch.
/// Scope: [`crate::Scope::packages`].
pub fn stranded(
    view: &View,
    me: &NodeRef,
    carried: impl Fn(&str) -> bool,
) -> Result<Vec<(UnitId, String, u64)>, Refusal> {
    let mut units = view.all::<UnitKey>()?;
    units.retain(|(_, unit)| is_stranded(unit, me, &carried));
    Ok(units.into_iter().map(|(key, unit)| (key.unit, unit.op.clone(), unit.epoch)).collect())
}

/// The same of one package, for who has the records parsed.
pub fn is_stranded(unit: &Unit, me: &NodeRef, carried: impl Fn(&str) -> bool) -> bool {
    unit.state == UnitState::Creating && unit.coordinator == *me && !carried(&unit.op)
}

/// T2': a live node carries a create on whose coordinator is lost, if some live node holds a verified copy. Answers
/// the new epoch. Scope: [`crate::Scope::package`].
pub fn take_over(view: &View, unit: &UnitId, op: &str, me: &NodeRef) -> Result<Plan<u64>, Refusal> {
    let (key, found) = unit_of_op(view, unit, op)?;
    if found.state != UnitState::Creating {
        return Err(Refusal::wrong_state(format!("{unit} is not being created")));
    }
    if found.coordinator == *me {
        return Ok(Plan::already(found.epoch));
    }
    if nodes::is_alive(view, &found.coordinator)? {
        return Err(Refusal::wrong_state(format!("{unit}: coordinator {} lives", found.coordinator.node)));
    }
    let rows = view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))?;
    let mut held = false;
    for (row, copy) in &rows {
        let writer = NodeRef { node: row.node.clone(), incarnation: copy.incarnation };
        held |= copy.op == op && copy.state == CopyState::Present && nodes::is_alive(view, &writer)?;
    }
    if found.manifest.is_none() || found.uploading || !held {
        return Err(Refusal::wrong_state(format!("{unit}: no live node holds it, it must be created anew")));
    }
    let mut record = found.value.clone();
    record.epoch += 1;
    record.coordinator = me.clone();
    let epoch = record.epoch;
    Ok(Steps::new()
        .unchanged(&key, &found)
        .gone(&NodeKey::new(&found.coordinator.node), found.coordinator.incarnation)
        .stands(&NodeKey::new(&me.node), me.incarnation)
        .put(&key, &record)
        .answer(epoch))
}

/// N4: deletes the row of a boot that is gone. A node that is back reports about its row itself.
/// Scope: [`crate::Scope::package`].
pub fn dead_copy(view: &View, unit: &UnitId, node: &str) -> Result<Plan<()>, Refusal> {
    let key = CopyKey::new(unit, &node.to_owned());
    let Some(row) = view.get(&key)? else { return Ok(Plan::already(())) };
    if nodes::current(view, node)?.is_some() {
        return Err(Refusal::not_yet(format!("node {node} lives: it reports about its copy itself")));
    }
    Ok(Steps::new().absent(&NodeKey::new(&node.to_owned())).unchanged(&key, &row).delete(&key).answer(()))
}

/// A READY private package that no job pins goes to REMOVING: its run lost the race, or its job ended.
/// Scope: [`crate::Scope::package`].
pub fn sweep_private(view: &View, unit: &UnitId) -> Result<Plan<()>, Refusal> {
    let key = UnitKey::new(unit);
    let Some(found) = view.get(&key)? else { return Ok(Plan::already(())) };
    if found.state >= UnitState::Removing {
        return Ok(Plan::already(()));
    }
    if found.origin != UnitOrigin::Private || found.state != UnitState::Ready {
        return Err(Refusal::wrong_state(format!("{unit} is not a private package that is READY")));
    }
    let pins = below(PinKey::PREFIX, unit);
    if view.count(&pins)? > 0 {
        return Err(Refusal::not_yet(format!("a job still needs {unit}")));
    }
    let mut record = found.value.clone();
    record.state = UnitState::Removing;
    record.error = Some("its job is over".into());
    Ok(Steps::new().unchanged(&key, &found).empty(&pins).put(&key, &record).answer(()))
}
