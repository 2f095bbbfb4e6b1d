//! CREATING -> READY (T3) or PURGING (T4), and the manifest in between: what the coordinator writes. Each is fenced
//! by operation, epoch and the record read, so a coordinator that was paused and replaced is refused.

use meta_client::{Stored, TypedKey};
use meta_types::controls::{Control, active};

use super::{hold_manifest, unit_of_op};
use crate::keys::{CopyKey, NodeKey, ReqKey, UnitKey, below};
use crate::names::UnitId;
use crate::nodes;
use crate::plan::{Plan, Steps, put_kept};
use crate::record::{Copy, CopyState, Manifest, Policy, ReqOutcome, Unit, UnitOrigin, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// Copies guarded by T3, so that its txn stays within the limit of compares.
const MAX_GUARDED_COPIES: usize = 60;

/// Writes down the content, once the coordinator received and hashed it, or says that what was listed at the
/// reservation is here: from now on targets fetch.
/// Scope: [`crate::Scope::package`] and the manifest.
pub fn announce(
    view: &View,
    unit: &UnitId,
    op: &str,
    epoch: u64,
    digest: &str,
    manifest: &Manifest,
) -> Result<Plan<()>, Refusal> {
    let (key, found) = creating(view, unit, op, epoch)?;
    match &found.manifest {
        Some(known) if known == digest && found.uploading => {
            let mut record = found.value.clone();
            record.uploading = false;
            return Ok(Steps::new().unchanged(&key, &found).put(&key, &record).answer(()));
        }
        Some(known) if known == digest => return Ok(Plan::already(())),
        Some(_) => return Err(Refusal::fenced(format!("{unit} was announced with other content"))),
        None => {}
    }
    let mut record = found.value.clone();
    record.manifest = Some(digest.into());
    record.bytes = manifest.bytes();
    record.files = manifest.files.len() as u64;
    let steps = hold_manifest(view, Steps::new().unchanged(&key, &found), unit, digest, manifest)?;
    Ok(steps.put(&key, &record).answer(()))
}

/// How far a create is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// These live targets are not there yet.
    Waiting {
        /// Their names.
        on: Vec<String>,
    },
    /// The policy is met: [`ready`] will pass.
    Enough,
    /// A live target failed and the policy is not met: [`abort`] with this reason.
    Failed {
        /// Node and reason, in one sentence.
        reason: String,
        /// Its disk is full.
        disk_full: bool,
    },
    /// No target lives.
    NobodyLeft,
}

/// How far the create is. A target that died is dropped; a live one that failed fails the create, unless the policy
/// is met without it. Scope: [`crate::Scope::package`].
pub fn progress(view: &View, unit: &UnitId, op: &str) -> Result<Progress, Refusal> {
    let (_, found) = unit_of_op(view, unit, op)?;
    let tally = tally(view, unit, &found)?;
    if tally.live == 0 {
        return Ok(Progress::NobodyLeft);
    }
    if tally.present.len() >= required(found.policy, tally.live) {
        return Ok(Progress::Enough);
    }
    if let Some((node, reason, disk_full)) = tally.failed.first() {
        let reason = format!("node {node} failed: {reason}");
        return Ok(Progress::Failed { reason, disk_full: *disk_full });
    }
    Ok(Progress::Waiting { on: tally.missing })
}

/// T3: the package is READY. Scope: [`crate::Scope::package`] and the request.
pub fn ready(view: &View, unit: &UnitId, op: &str, epoch: u64) -> Result<Plan<()>, Refusal> {
    let (_, found) = unit_of_op(view, unit, op)?;
    if found.state == UnitState::Ready {
        return Ok(Plan::already(()));
    }
    let (key, found) = creating(view, unit, op, epoch)?;
    if found.manifest.is_none() || found.uploading {
        return Err(Refusal::wrong_state(format!("{unit} has no content yet")));
    }
    let tally = tally(view, unit, &found)?;
    if tally.live == 0 || tally.present.len() < required(found.policy, tally.live) {
        return Err(Refusal::not_yet(format!("{unit} is not yet on enough nodes")));
    }
    let mut record = found.value.clone();
    record.state = UnitState::Ready;
    record.error = None;
    let mut steps = Steps::new();
    // Positive control: READY over whatever became of the package meanwhile.
    if !active(Control::ReadyWithoutGuard) {
        steps = steps.unchanged(&key, &found);
        for (key, copy) in tally.present.iter().take(MAX_GUARDED_COPIES) {
            // A node that died since the view was read counts for nothing.
            let node = NodeKey { node: key.node.clone() };
            steps = steps.unchanged(key, copy).stands(&node, copy.incarnation);
        }
    }
    let steps = settle_request(view, steps, &found, ReqOutcome::Ok)?;
    Ok(steps.put(&key, &record).answer(()))
}

/// T4: the coordinator gives the create up; nodes delete what they have. Scope: [`crate::Scope::package`] and the
/// request.
pub fn abort(view: &View, unit: &UnitId, op: &str, epoch: u64, reason: &str) -> Result<Plan<()>, Refusal> {
    let key = UnitKey::new(unit);
    match view.get(&key)? {
        // Undone by now, or being undone: nothing is left to do.
        None => return Ok(Plan::already(())),
        Some(found) if found.op == op && found.state == UnitState::Purging => return Ok(Plan::already(())),
        Some(_) => {}
    }
    let (key, found) = creating(view, unit, op, epoch)?;
    purge(view, &key, &found, Steps::new(), reason)
}

/// CREATING -> PURGING with a reason, and the request's outcome.
pub(super) fn purge(
    view: &View,
    key: &UnitKey,
    found: &Stored<Unit>,
    steps: Steps,
    reason: &str,
) -> Result<Plan<()>, Refusal> {
    let mut record = found.value.clone();
    record.state = UnitState::Purging;
    record.aborted = true;
    record.error = Some(reason.into());
    let steps = settle_request(view, steps.unchanged(key, found), found, ReqOutcome::Failed(reason.into()))?;
    Ok(steps.put(key, &record).answer(()))
}

/// Keeps the outcome for a retry of the client's request, if there was one and it is in the view.
pub(super) fn settle_request(
    view: &View,
    steps: Steps,
    found: &Unit,
    outcome: ReqOutcome,
) -> Result<Steps, Refusal> {
    let Some(id) = &found.request else { return Ok(steps) };
    let key = ReqKey { request: id.clone() };
    // A reconciler that does not load requests leaves it to the client to find the package gone.
    let Ok(Some(req)) = view.get(&key) else { return Ok(steps) };
    let mut record = req.value.clone();
    record.outcome = outcome;
    Ok(put_kept(steps.unchanged(&key, &req), &key, &req, &record))
}

fn creating(view: &View, unit: &UnitId, op: &str, epoch: u64) -> Result<(UnitKey, Stored<Unit>), Refusal> {
    let (key, found) = unit_of_op(view, unit, op)?;
    if found.epoch != epoch {
        return Err(Refusal::fenced(format!("{unit}: node {} took the create over", found.coordinator.node)));
    }
    if found.state != UnitState::Creating {
        let why = found.error.clone().unwrap_or_else(|| "it is being removed".into());
        return Err(Refusal::fenced(format!("{unit} is no longer being created: {why}")));
    }
    Ok((key, found))
}

struct Tally {
    live: usize,
    present: Vec<(CopyKey, Stored<Copy>)>,
    missing: Vec<String>,
    failed: Vec<(String, String, bool)>,
}

/// Sorts the targets that live by what their rows say; a row of an earlier incarnation says nothing.
fn tally(view: &View, unit: &UnitId, found: &Unit) -> Result<Tally, Refusal> {
    let mut tally = Tally { live: 0, present: vec![], missing: vec![], failed: vec![] };
    let rows = view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))?;
    for target in &found.targets {
        let Some(now) = nodes::current(view, target)? else { continue };
        tally.live += 1;
        let row = rows.iter().find(|(key, copy)| {
            key.node == *target && copy.op == found.op && copy.incarnation == now.incarnation
        });
        match row {
            // Of a register each node says itself what it took over.
            Some((_, copy)) if is_other_content(found, copy) => {
                tally.failed.push((target.clone(), "it holds other files".into(), false));
            }
            Some((key, copy)) if copy.state == CopyState::Present => {
                tally.present.push((key.clone(), copy.clone()));
            }
            Some((_, copy)) if copy.state == CopyState::Failed => {
                tally.failed.push((target.clone(), copy.error.clone().unwrap_or_default(), copy.disk_full));
            }
            _ => tally.missing.push(target.clone()),
        }
    }
    Ok(tally)
}

fn is_other_content(found: &Unit, copy: &Copy) -> bool {
    found.origin == UnitOrigin::Register && copy.state == CopyState::Present && copy.digest != found.manifest
}

/// Copies that meet the policy, of so many live targets.
pub(super) fn required(policy: Policy, targets: usize) -> usize {
    let needed = match policy {
        Policy::All => targets,
        Policy::Majority => targets / 2 + 1,
        Policy::Copies(copies) => targets.min(copies as usize),
    };
    needed.max(1)
}
