//! Packages: the planners of their life, one step a file.
//!
//! ```text
//! cluster   absent -T1 reserve-> CREATING -T3 ready-> READY -T5 remove-> REMOVING -T7 finish-> absent
//!                                   | T4 abort, T2 coordinator lost, T6 force     ^
//!                                   +-------------> PURGING ----------------------+   (T6 from READY, REMOVING too)
//! node      absent -N1-> FETCHING -N1-> PRESENT -N2-> DRAINING -N3-> absent
//!                    FAILED <-> FETCHING     PRESENT -> CORRUPT -> FETCHING      N4: rows of a dead incarnation
//! ```
//! A register takes the same way: its targets' rows are FETCHING with the digest of what they found, then PRESENT.
//! A state only moves forward for one `op`. Every write guards the record it read, so a stale coordinator, a slow
//! node or a second reconciler is refused by the store. READY is never stored together with health: DEGRADED and
//! LOST are derived from the live nodes.

mod copies;
mod finish;
mod jars;
mod lost;
mod on_node;
mod orphan_jar;
mod orphan_manifest;
mod publish;
mod refs;
mod register;
mod remove;
mod replicate;
mod reserve;
mod resolve;
mod standing;
mod status;
mod uses;

pub use copies::{CopyReport, corrupt, disk_full, draining, drains, dropped, failed, fetching, present};
pub use finish::finish;
pub use jars::{AddJar, add_jar, delete_jar, jars};
pub use lost::{coordinator_lost, dead_copy, is_stranded, stranded, sweep_private, take_over};
pub use on_node::{Found, NodePackage, OnDisk, Published, node_packages};
pub use orphan_jar::{JAR_UNIT_PREFIX, sweep_orphan_jar};
pub use orphan_manifest::{collect_manifest, manifest_scope, unreferenced_manifests};
pub use publish::{Progress, abort, announce, progress, ready};
pub use refs::{JobHold, NodeHold, Refs, UseHold, refs};
pub use register::{Inspections, adopted, inspected, inspections, was_ready};
pub use remove::{Preview, Removal, Remove, force_remove, preview, remove};
pub use replicate::substitutes;
pub(crate) use reserve::no_server_node;
pub use reserve::{Reserve, Reserved, Targets, reserve};
pub(crate) use resolve::guard_ready;
pub use resolve::{ready_package, resolve};
pub use standing::{Standing, Wanted, standing, unknown_nodes};
pub use status::{CopyStatus, PackageStatus, package_status, packages, versions_status};
pub use uses::{BeginUse, begin_use, end_use};

use meta_client::Stored;

use crate::keys::{ManifestKey, UnitKey};
use crate::names::UnitId;
use crate::plan::Steps;
use crate::record::{Manifest, Unit};
use crate::refusal::Refusal;
use crate::view::View;

/// Reads the package and insists on the operation.
fn unit_of_op(view: &View, unit: &UnitId, op: &str) -> Result<(UnitKey, Stored<Unit>), Refusal> {
    let key = UnitKey::new(unit);
    match view.get(&key)? {
        Some(found) if found.op == op => Ok((key, found)),
        Some(found) => {
            Err(Refusal::fenced(format!("{unit} is now operation {}, not {op}: this one is over", found.op)))
        }
        None => Err(Refusal::fenced(format!("{unit} is gone: operation {op} is over"))),
    }
}

/// Adds the package to its manifest's holders.
fn hold_manifest(
    view: &View,
    steps: Steps,
    unit: &UnitId,
    digest: &str,
    manifest: &Manifest,
) -> Result<Steps, Refusal> {
    let key = ManifestKey { digest: digest.into() };
    let found = view.get(&key)?;
    let mut record = found.as_ref().map_or_else(|| manifest.clone(), |found| found.value.clone());
    let holder = unit.to_string();
    let steps = steps.as_read(&key, found.as_ref());
    if record.holders.contains(&holder) {
        // Left behind by an earlier package of this name: as long as nobody collects it, it is ours.
        return Ok(steps);
    }
    record.holders.push(holder);
    Ok(steps.put(&key, &record))
}

/// Takes the package off its manifest's holders; the last one takes the manifest along.
fn release_manifest(view: &View, steps: Steps, unit: &UnitId, digest: &str) -> Result<Steps, Refusal> {
    let key = ManifestKey { digest: digest.into() };
    let Some(found) = view.get(&key)? else { return Ok(steps) };
    let mut record = found.value.clone();
    record.holders.retain(|holder| *holder != unit.to_string());
    let steps = steps.unchanged(&key, &found);
    Ok(if record.holders.is_empty() { steps.delete(&key) } else { steps.put(&key, &record) })
}
