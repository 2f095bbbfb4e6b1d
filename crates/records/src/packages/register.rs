//! A register: the files are on the nodes already. What each target says of its own directory, and what all of them
//! say together.
//!
//! ```text
//! T1 reserve(origin register) -> targets hash their directories: N1 FETCHING with the digest, or FAILED
//!   -> all live targets found the same: announce -> targets take the files over: N1 PRESENT with the digest -> T3
//!   -> they differ, or one has none: T4; targets give back what they took over
//! ```
//! A target that dies is dropped, as from a create. READY needs every live target: the largest group is not enough.

use super::copies::{Says, write};
use super::{CopyReport, unit_of_op};
use crate::keys::CopyKey;
use crate::names::UnitId;
use crate::nodes;
use crate::plan::Plan;
use crate::record::{CopyState, Unit, UnitOrigin, UnitState};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// N1: what this node found in its directory. Scope: [`crate::Scope::package`].
pub fn inspected(view: &View, report: &CopyReport, digest: &str, bytes: u64) -> Result<Plan<()>, Refusal> {
    registering(view, report)?;
    let says = Says { bytes_done: bytes, digest: Some(digest), ..Says::new(CopyState::Fetching) };
    write(view, report, says)
}

/// N1: the files with this digest are this node's copy now. Scope: [`crate::Scope::package`].
pub fn adopted(view: &View, report: &CopyReport, digest: &str, bytes: u64) -> Result<Plan<()>, Refusal> {
    let unit = registering(view, report)?;
    if unit.manifest.as_deref() != Some(digest) {
        return Err(Refusal::wrong_state(format!("{} was not announced with this content", report.unit)));
    }
    let says = Says { bytes_done: bytes, digest: Some(digest), ..Says::new(CopyState::Present) };
    write(view, report, says)
}

fn registering(view: &View, report: &CopyReport) -> Result<Unit, Refusal> {
    let (_, unit) = unit_of_op(view, &report.unit, &report.op)?;
    if unit.origin == UnitOrigin::Register && unit.state == UnitState::Creating {
        return Ok(unit.value);
    }
    let text = format!("package {} is not READY: it is not being registered", report.unit);
    Err(Refusal::new(Class::UnitNotReady, text))
}

/// What the live targets of a register say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inspections {
    /// Nothing yet.
    pub waiting: Vec<String>,
    /// The digest of what they found.
    pub found: Vec<(String, String)>,
    /// Why there is nothing to register.
    pub failed: Vec<(String, String)>,
}

/// What the live targets of a register say; a row of an earlier incarnation says nothing.
/// Scope: [`crate::Scope::package`].
pub fn inspections(view: &View, unit: &UnitId, op: &str) -> Result<Inspections, Refusal> {
    let (_, found) = unit_of_op(view, unit, op)?;
    if found.state != UnitState::Creating {
        let why = found.error.clone().unwrap_or_else(|| "it is being removed".into());
        return Err(Refusal::fenced(format!("{unit} is no longer being registered: {why}")));
    }
    let mut said = Inspections::default();
    for target in &found.targets {
        let Some(now) = nodes::current(view, target)? else { continue };
        let row = view.get(&CopyKey::new(unit, target))?;
        let row = row.filter(|row| row.op == op && row.incarnation == now.incarnation);
        match row.map(|row| row.value) {
            Some(row) if row.state == CopyState::Failed => {
                said.failed.push((target.clone(), row.error.unwrap_or_default()));
            }
            Some(row) if row.digest.is_some() => {
                said.found.push((target.clone(), row.digest.unwrap_or_default()));
            }
            _ => said.waiting.push(target.clone()),
        }
    }
    Ok(said)
}

/// Whether the package is or was READY under its operation: only then may a node delete files that a user had put
/// there before.
pub const fn was_ready(unit: &Unit) -> bool {
    match unit.state {
        UnitState::Creating => false,
        UnitState::Ready | UnitState::Removing => true,
        UnitState::Purging => !unit.aborted,
    }
}
