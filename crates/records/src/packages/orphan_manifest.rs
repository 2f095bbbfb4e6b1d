//! Manifests that no package refers to. A package and its manifest are written, and deleted, in one transaction, so
//! there are none unless a record was edited or an older writer left it. A create that finds one under its digest holds
//! it in the same way as any other; each of the two transactions is guarded by what the other writes.

use std::collections::HashSet;

use crate::keys::{ManifestKey, UnitKey};
use crate::names::UnitId;
use crate::plan::{Plan, Steps};
use crate::refusal::Refusal;
use crate::view::{Scope, View};

/// Holders that are looked at in one transaction, which may have so many operations only; the others come next.
const HOLDERS_AT_ONCE: usize = 100;

/// Digests of the manifests that none of these packages' digests names. Reads no manifest.
pub fn unreferenced_manifests(view: &View, named: &HashSet<&str>) -> Result<Vec<String>, Refusal> {
    let digests = view.keys::<ManifestKey>()?.into_iter().map(|key| key.digest);
    Ok(digests.filter(|digest| !named.contains(digest.as_str())).collect())
}

/// What [`collect_manifest`] looks at: the manifest and the first packages that it names. Scope: the manifest.
pub fn manifest_scope(view: &View, digest: &str) -> Result<Scope, Refusal> {
    let found = view.get(&ManifestKey { digest: digest.into() })?;
    let holders = found.map(|found| found.value.holders).unwrap_or_default();
    let units = holders.iter().take(HOLDERS_AT_ONCE).filter_map(|holder| holder.parse::<UnitId>().ok());
    Ok(units.fold(Scope::default().and_manifest(digest), |scope, unit| scope.and_key(&UnitKey { unit })))
}

/// Takes those off the manifest that do not have it, and deletes it if nobody is left.
/// Scope: [`manifest_scope`]; if others hold it by now, they are outside of it and the plan is refused.
pub fn collect_manifest(view: &View, digest: &str) -> Result<Plan<()>, Refusal> {
    let key = ManifestKey { digest: digest.into() };
    let Some(found) = view.get(&key)? else { return Ok(Plan::already(())) };
    let mut record = found.value.clone();
    let mut steps = Steps::new().unchanged(&key, &found);
    let mut holders = std::mem::take(&mut record.holders);
    let mut kept = holders.split_off(holders.len().min(HOLDERS_AT_ONCE));
    for holder in holders {
        // What cannot be a package holds nothing.
        let Ok(unit) = holder.parse() else { continue };
        let unit_key = UnitKey { unit };
        let unit = view.get(&unit_key)?;
        steps = steps.as_read(&unit_key, unit.as_ref());
        if unit.is_some_and(|unit| unit.manifest.as_deref() == Some(digest)) {
            kept.push(holder);
        }
    }
    if kept.is_empty() {
        return Ok(steps.delete(&key).answer(()));
    }
    if kept.len() == found.holders.len() {
        return Ok(Plan::already(()));
    }
    record.holders = kept;
    Ok(steps.put(&key, &record).answer(()))
}
