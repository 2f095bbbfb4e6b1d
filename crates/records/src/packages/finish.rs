//! T7, REMOVING or PURGING -> absent: the last one cleans up, guarded by empty ranges. Any reconciler may do it.

use meta_client::TypedKey;

use super::{release_manifest, unit_of_op};
use crate::keys::{CopyKey, NameKey, PinKey, UseKey, below, versions};
use crate::names::UnitId;
use crate::plan::{Plan, Steps};
use crate::record::UnitState;
use crate::refusal::Refusal;
use crate::view::View;

/// Deletes the package's record, its name if it was the last version, and its hold on the manifest. Refused with
/// [`crate::Class::NotYet`] while a node has a copy, a job a pin, or a use runs.
/// Scope: [`crate::Scope::package`] and the manifest.
pub fn finish(view: &View, unit: &UnitId, op: &str) -> Result<Plan<()>, Refusal> {
    let (key, found) = unit_of_op(view, unit, op)?;
    if found.state < UnitState::Removing {
        return Err(Refusal::wrong_state(format!("{unit} is not being removed")));
    }
    let mut steps = Steps::new().unchanged(&key, &found);
    for (prefix, what) in [(CopyKey::PREFIX, "copies"), (PinKey::PREFIX, "pins"), (UseKey::PREFIX, "uses")] {
        let prefix = below(prefix, unit);
        let left = view.count(&prefix)?;
        if left > 0 {
            return Err(Refusal::not_yet(format!("{unit} still has {left} {what}")));
        }
        steps = steps.empty(&prefix);
    }
    let steps = steps.delete(&key);
    let steps = release_name(view, steps, unit, &key.encode())?;
    let steps = match &found.manifest {
        Some(digest) => release_manifest(view, steps, unit, digest)?,
        None => steps,
    };
    Ok(steps.answer(()))
}

/// Frees the name with its last version. Both ways are guarded: freeing it by "no other version", keeping it by the
/// version that was seen, so that a name never stays behind.
fn release_name(view: &View, steps: Steps, unit: &UnitId, this: &str) -> Result<Steps, Refusal> {
    let prefix = versions(&unit.name);
    let name = NameKey::of(&unit.name);
    let others: Vec<_> = view.under::<crate::keys::UnitKey>(&prefix)?;
    match others.iter().find(|(key, _)| key.encode() != this) {
        Some((other, found)) => Ok(steps.stands(other, found.create_revision)),
        None => Ok(steps.empty_except(&prefix, this).delete(&name)),
    }
}
