//! N1 to N3: what a node writes about its own copy. A row is written only by the boot of the node it names, and only
//! while the package's operation is the one the node works for.

use meta_client::{Stored, TypedKey};

use super::unit_of_op;
use crate::keys::{CopyKey, NodeKey, PinKey, UnitKey, below, uses_on};
use crate::names::{JobId, UnitId};
use crate::nodes;
use crate::plan::{Plan, Steps};
use crate::record::{Copy, CopyState, NodeRef, Unit, UnitState};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// Who reports about which copy.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// The package.
    pub unit: UnitId,
    /// The operation the copy belongs to.
    pub op: String,
    /// The reporting boot.
    pub me: NodeRef,
    /// The pinned job the copy is fetched for: allows fetching while REMOVING.
    pub for_job: Option<JobId>,
}

/// N1: the node fetches. Allowed to targets while CREATING, to every server node while READY, and for a pinned job
/// while REMOVING. Scope: [`crate::Scope::package`].
pub fn fetching(view: &View, report: &CopyReport, bytes_done: u64) -> Result<Plan<()>, Refusal> {
    write(view, report, Says { bytes_done, ..Says::new(CopyState::Fetching) })
}

/// N1: the copy is verified, published and durable. Scope: [`crate::Scope::package`].
pub fn present(view: &View, report: &CopyReport, bytes: u64) -> Result<Plan<()>, Refusal> {
    write(view, report, Says { bytes_done: bytes, ..Says::new(CopyState::Present) })
}

/// N1: the copy could not be made. Scope: [`crate::Scope::package`].
pub fn failed(view: &View, report: &CopyReport, error: &str) -> Result<Plan<()>, Refusal> {
    write(view, report, Says { error: Some(error), ..Says::new(CopyState::Failed) })
}

/// The same for the one reason that its users tell apart: there is no room for it. Scope: [`crate::Scope::package`].
pub fn disk_full(view: &View, report: &CopyReport, error: &str) -> Result<Plan<()>, Refusal> {
    write(view, report, Says { error: Some(error), disk_full: true, ..Says::new(CopyState::Failed) })
}

/// A published copy was found damaged. Scope: [`crate::Scope::package`].
pub fn corrupt(view: &View, report: &CopyReport, error: &str) -> Result<Plan<()>, Refusal> {
    write(view, report, Says { error: Some(error), ..Says::new(CopyState::Corrupt) })
}

/// What a row says.
pub(super) struct Says<'a> {
    pub(super) state: CopyState,
    pub(super) bytes_done: u64,
    pub(super) digest: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) disk_full: bool,
}

impl Says<'_> {
    pub(super) const fn new(state: CopyState) -> Self {
        Self { state, bytes_done: 0, digest: None, error: None, disk_full: false }
    }
}

pub(super) fn write(view: &View, report: &CopyReport, says: Says<'_>) -> Result<Plan<()>, Refusal> {
    let (steps, row) = begin(view, report)?;
    let (unit_key, unit) = unit_of_op(view, &report.unit, &report.op)?;
    let steps = may_hold(view, steps, report, &unit_key, &unit)?;
    let record = Copy {
        op: report.op.clone(),
        state: says.state,
        incarnation: report.me.incarnation,
        bytes_done: says.bytes_done,
        digest: says.digest.map(Into::into),
        uses: 0,
        error: says.error.map(Into::into),
        disk_full: says.disk_full,
        extra: row.as_ref().map(|row| row.extra.clone()).unwrap_or_default(),
    };
    if row.as_ref().is_some_and(|row| row.value == record) {
        return Ok(Plan::already(()));
    }
    let key = CopyKey::new(&report.unit, &report.me.node);
    Ok(steps.as_read(&key, row.as_ref()).put(&key, &record).answer(()))
}

/// The guard of every report: this boot is alive, and a row of another operation is not touched.
fn begin(view: &View, report: &CopyReport) -> Result<(Steps, Option<Stored<Copy>>), Refusal> {
    if !nodes::is_alive(view, &report.me)? {
        return Err(Refusal::fenced(format!("node {}: this boot's registration is gone", report.me.node)));
    }
    let row = view.get(&CopyKey::new(&report.unit, &report.me.node))?;
    if let Some(row) = &row
        && row.op != report.op
    {
        return Err(Refusal::fenced(format!("{}: the row is of operation {}", report.unit, row.op)));
    }
    Ok((Steps::new().stands(&NodeKey::new(&report.me.node), report.me.incarnation), row))
}

/// Whether the node may hold a copy in the package's state, with the guard that keeps it so.
fn may_hold(
    view: &View,
    steps: Steps,
    report: &CopyReport,
    key: &UnitKey,
    unit: &Stored<Unit>,
) -> Result<Steps, Refusal> {
    let steps = steps.unchanged(key, unit);
    match unit.state {
        UnitState::Creating if unit.uploading => {
            Err(Refusal::not_yet(format!("{} is still being uploaded", report.unit)))
        }
        UnitState::Creating if unit.targets.contains(&report.me.node) => Ok(steps),
        UnitState::Creating => Err(not_ready(&report.unit, "is being created on other nodes")),
        UnitState::Ready => Ok(steps),
        UnitState::Removing => {
            let pin = report.for_job.as_ref().map(|job| PinKey::new(&report.unit, job));
            let held = match &pin {
                Some(pin) => view.get(pin)?.filter(|held| held.op == report.op),
                None => None,
            };
            match (&pin, &held) {
                (Some(pin), Some(held)) => Ok(steps.unchanged(pin, held)),
                _ => Err(not_ready(&report.unit, "is being removed")),
            }
        }
        UnitState::Purging => Err(not_ready(&report.unit, "is being deleted")),
    }
}

/// N2: no new use starts on this node but those of pinned jobs; `uses` still run. Only what can be started from
/// drains: a copy that is being fetched (for a pinned job), failed, or is damaged stays what it is.
/// Scope: [`crate::Scope::package`].
pub fn draining(view: &View, report: &CopyReport, uses: u64) -> Result<Plan<()>, Refusal> {
    let (steps, row) = begin(view, report)?;
    let (unit_key, unit) = unit_of_op(view, &report.unit, &report.op)?;
    if unit.state < UnitState::Removing {
        return Err(Refusal::wrong_state(format!("{} is not being removed", report.unit)));
    }
    let Some(row) = row.filter(|row| drains(row.state)) else { return Ok(Plan::already(())) };
    let mut record = row.value.clone();
    record.state = CopyState::Draining;
    record.incarnation = report.me.incarnation;
    record.uses = uses;
    if record == row.value {
        return Ok(Plan::already(()));
    }
    let key = CopyKey::new(&report.unit, &report.me.node);
    Ok(steps.unchanged(&unit_key, &unit).unchanged(&key, &row).put(&key, &record).answer(()))
}

/// Whether jobs may be starting from a copy in this state.
pub const fn drains(state: CopyState) -> bool {
    match state {
        CopyState::Present | CopyState::Draining => true,
        CopyState::Fetching | CopyState::Failed | CopyState::Corrupt => false,
    }
}

/// N3: the node's copy goes. In REMOVING only while no job pins the package and nothing runs on the copy, whether the
/// copy has a row (the row of a node that was away is deleted, its files are not); in PURGING at once.
/// Scope: [`crate::Scope::package`].
pub fn dropped(view: &View, report: &CopyReport) -> Result<Plan<()>, Refusal> {
    let (steps, row) = begin(view, report)?;
    let (unit_key, unit) = match (unit_of_op(view, &report.unit, &report.op), &row) {
        (Ok(found), _) => found,
        // Long over.
        (Err(_), None) => return Ok(Plan::already(())),
        (Err(refusal), Some(_)) => return Err(refusal),
    };
    let key = CopyKey::new(&report.unit, &report.me.node);
    let steps = steps.unchanged(&unit_key, &unit);
    let gone = |steps: Steps| match &row {
        Some(row) => Ok(steps.unchanged(&key, row).delete(&key).answer(())),
        None => Ok(Plan::already(())),
    };
    match unit.state {
        UnitState::Purging => gone(steps),
        UnitState::Removing => {
            let (pins, uses) = (below(PinKey::PREFIX, &report.unit), uses_on(&report.unit, &report.me.node));
            if view.count(&pins)? + view.count(&uses)? > 0 {
                return Err(Refusal::not_yet(format!("{} is still in use", report.unit)));
            }
            gone(steps.empty(&pins).empty(&uses))
        }
        UnitState::Creating | UnitState::Ready => {
            Err(Refusal::wrong_state(format!("{} is not being removed", report.unit)))
        }
    }
}

fn not_ready(unit: &UnitId, why: &str) -> Refusal {
    Refusal::new(Class::UnitNotReady, format!("package {unit} is not READY: it {why}"))
}
