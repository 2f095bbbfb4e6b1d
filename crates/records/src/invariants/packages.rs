//! I2, I3, I4, I5, I14: packages, their copies, uses, pins and manifests fit together.

use meta_client::TypedKey;

use super::{Violation, note};
use crate::keys::{CopyKey, JobKey, ManifestKey, NameKey, NodeKey, PinKey, UnitKey, UseKey};
use crate::record::UnitState;
use crate::refusal::Refusal;
use crate::view::View;

/// I2: a package's lower-case name is held by its exact name, and a held name has a package.
pub(super) fn names(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    let units = view.all::<UnitKey>()?;
    for (key, _) in &units {
        match view.get(&NameKey::of(&key.unit.name))? {
            Some(held) if held.name == key.unit.name => {}
            Some(held) => note(found, "I2", key.encode(), format!("its name is held by {}", held.name)),
            None => note(found, "I2", key.encode(), "nobody holds its name"),
        }
    }
    for (key, held) in view.all::<NameKey>()? {
        if NameKey::of(&held.name) != key || !units.iter().any(|(unit, _)| unit.unit.name == held.name) {
            note(found, "I2", key.encode(), format!("held by {}, which has no version", held.name));
        }
    }
    Ok(())
}

/// I3: a node's copy belongs to a package of the same operation.
pub(super) fn copies(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, copy) in view.all::<CopyKey>()? {
        match view.get(&UnitKey::new(&key.unit))? {
            Some(unit) if unit.op == copy.op => {}
            Some(unit) => {
                note(found, "I3", key.encode(), format!("of op {}, the package of {}", copy.op, unit.op))
            }
            None => note(found, "I3", key.encode(), "of a package that is gone"),
        }
    }
    Ok(())
}

/// I4: a running use is of a package of the same operation, on the lease of a node that lives.
pub(super) fn uses(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, held) in view.all::<UseKey>()? {
        if view.get(&UnitKey::new(&key.unit))?.is_none_or(|unit| unit.op != held.op) {
            note(found, "I4", key.encode(), "of a package that is gone or another one by now");
        }
        let node = view.get(&NodeKey::new(&key.node))?;
        if node.is_none_or(|node| node.create_revision != held.incarnation || node.lease != held.lease) {
            note(found, "I4", key.encode(), "its node's boot is gone");
        }
    }
    Ok(())
}

/// I5: a pin is of a job that is not over, on a package of the same operation that is READY or REMOVING.
pub(super) fn pins(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, pin) in view.all::<PinKey>()? {
        let job = view.get(&JobKey::new(&key.job))?.filter(|job| !job.state.is_terminal());
        let lists = |package: &crate::record::PackageRef| package.unit == key.unit && package.op == pin.op;
        if !job.is_some_and(|job| job.packages().any(lists)) {
            note(found, "I5", key.encode(), "no live job needs it");
        }
        let holds = |state| matches!(state, UnitState::Ready | UnitState::Removing);
        if !view.get(&UnitKey::new(&key.unit))?.is_some_and(|unit| unit.op == pin.op && holds(unit.state)) {
            note(found, "I5", key.encode(), "the package is neither READY nor REMOVING under that operation");
        }
    }
    Ok(())
}

/// I14: a READY package has content, and a manifest and its packages name each other.
pub(super) fn manifests(view: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, unit) in view.all::<UnitKey>()? {
        let Some(digest) = &unit.manifest else {
            if matches!(unit.state, UnitState::Ready | UnitState::Removing) {
                note(found, "I14", key.encode(), "it was READY without content");
            }
            continue;
        };
        let manifest = view.get(&ManifestKey { digest: digest.clone() })?;
        if !manifest.is_some_and(|manifest| manifest.holders.contains(&key.unit.to_string())) {
            note(found, "I14", key.encode(), format!("manifest {digest} is missing or does not name it"));
        }
    }
    for (key, manifest) in view.all::<ManifestKey>()? {
        for holder in &manifest.holders {
            let Ok(unit) = holder.parse() else {
                note(found, "I14", key.encode(), format!("names {holder}, which cannot be a package"));
                continue;
            };
            let unit = view.get(&UnitKey { unit })?;
            if unit.is_none_or(|unit| unit.manifest.as_ref() != Some(&key.digest)) {
                note(found, "I14", key.encode(), format!("names {holder}, which does not have it"));
            }
        }
    }
    Ok(())
}
