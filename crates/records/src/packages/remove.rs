//! T5, READY -> REMOVING (safe: waits for whoever runs on it), and T6, any state -> PURGING (forced).

use meta_client::{Stored, TypedKey};
use serde::Serialize;

use super::publish::settle_request;
use super::refs::{Refs, refs};
use crate::keys::{PinKey, UnitKey, below};
use crate::names::UnitId;
use crate::plan::{Plan, Steps};
use crate::record::{ReqOutcome, Unit, UnitState};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// A wish to remove a package.
#[derive(Debug, Clone)]
pub struct Remove {
    /// The package.
    pub unit: UnitId,
    /// Only if it is still this operation; none = whatever is there.
    pub op: Option<String>,
    /// Why, for the record: `removed`, `forced by an operator`.
    pub reason: String,
}

/// A removal that is going on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// The package's operation: with it a caller waits for the end of exactly this package.
    pub op: String,
    /// The state it is in now.
    pub state: UnitState,
    /// Who holds it. A forced removal does not wait for them.
    pub refs: Refs,
}

/// What a removal would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its operation.
    pub op: String,
    /// The state it is in.
    pub from: UnitState,
    /// The state it would go to.
    pub to: UnitState,
    /// Jobs and running uses that a safe removal would wait for.
    pub waits_for: Vec<String>,
    /// Running uses that a forced removal would end.
    pub ends: Vec<String>,
    /// Nodes that would delete their copies; one that is away does it when it comes back.
    pub deletes: Vec<String>,
    /// Who holds it.
    pub refs: Refs,
}

/// T5. Repeating it is fine; CREATING is 409 IN_PROGRESS. Scope: [`crate::Scope::package`].
pub fn remove(view: &View, wish: &Remove) -> Result<Plan<Removal>, Refusal> {
    let (key, found) = find(view, wish)?;
    let removal = |state| {
        let refs = Refs { status: state, ..refs(view, &wish.unit)? };
        Ok::<_, Refusal>(Removal { op: found.op.clone(), state, refs })
    };
    match found.state {
        UnitState::Removing | UnitState::Purging => Ok(Plan::already(removal(found.state)?)),
        UnitState::Creating => Err(Refusal::new(
            Class::InProgress,
            format!(
                "{} is being created by node {}: wait, or force the removal",
                wish.unit, found.coordinator.node
            ),
        )),
        UnitState::Ready => {
            let mut record = found.value.clone();
            record.state = UnitState::Removing;
            record.error = Some(wish.reason.clone());
            let steps = Steps::new().unchanged(&key, &found).put(&key, &record);
            Ok(steps.answer(removal(UnitState::Removing)?))
        }
    }
}

/// T6: nodes delete their copies at once, whoever runs on them. A coordinator that still creates it is fenced.
/// Scope: [`crate::Scope::package`] and the request.
pub fn force_remove(view: &View, wish: &Remove) -> Result<Plan<Removal>, Refusal> {
    let (key, found) = find(view, wish)?;
    let state = UnitState::Purging;
    let held = Refs { status: state, ..refs(view, &wish.unit)? };
    let answer = Removal { op: found.op.clone(), state, refs: held };
    if found.state == UnitState::Purging {
        return Ok(Plan::already(answer));
    }
    let mut record = found.value.clone();
    record.aborted = found.state == UnitState::Creating;
    record.state = UnitState::Purging;
    record.error = Some(wish.reason.clone());
    let mut steps = Steps::new().unchanged(&key, &found);
    if found.state == UnitState::Creating {
        steps = settle_request(view, steps, &found, ReqOutcome::Failed(wish.reason.clone()))?;
    }
    Ok(steps.put(&key, &record).delete_prefix(&below(PinKey::PREFIX, &wish.unit)).answer(answer))
}

/// What [`remove`] or [`force_remove`] would do, or the refusal it would meet. Writes nothing.
/// Scope: [`crate::Scope::package`].
pub fn preview(view: &View, wish: &Remove, forced: bool) -> Result<Preview, Refusal> {
    let plan = if forced { force_remove(view, wish)? } else { remove(view, wish)? };
    let Removal { op, state, .. } = plan.answer(view.revision());
    let refs = refs(view, &wish.unit)?;
    let running = refs.uses.iter().map(|hold| format!("{} on {}", hold.holder, hold.node)).collect();
    let waits = state == UnitState::Removing;
    Ok(Preview {
        name: wish.unit.name.clone(),
        version: wish.unit.version.clone(),
        op,
        from: refs.status,
        to: state,
        waits_for: if waits { refs.holders() } else { Vec::new() },
        ends: if waits { Vec::new() } else { running },
        deletes: refs.nodes.iter().map(|hold| hold.node.clone()).collect(),
        refs,
    })
}

fn find(view: &View, wish: &Remove) -> Result<(UnitKey, Stored<Unit>), Refusal> {
    let key = UnitKey::new(&wish.unit);
    match view.get(&key)? {
        Some(found) if wish.op.as_ref().is_none_or(|op| *op == found.op) => Ok((key, found)),
        Some(_) => {
            Err(Refusal::not_found(format!("that package {} is gone: another has its name", wish.unit)))
        }
        None => Err(Refusal::not_found(format!("there is no package {}", wish.unit))),
    }
}
