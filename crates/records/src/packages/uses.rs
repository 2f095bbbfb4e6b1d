//! Running uses: a key on the node's lease while something runs on the node's copy. Starting is one transaction with
//! the package's state and the copy's row, so "checked READY, then started on deleted files" cannot happen.

use meta_types::{LeaseId, Revision};

use super::unit_of_op;
use crate::keys::{CopyKey, JobOwnerKey, NodeKey, PinKey, UseKey};
use crate::names::{JobId, UnitId};
use crate::nodes;
use crate::plan::{Plan, Steps};
use crate::record::{CopyState, NodeRef, UnitState, Use};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// A start on a node's copy.
#[derive(Debug, Clone)]
pub struct BeginUse {
    /// The package.
    pub unit: UnitId,
    /// Its operation, as the job was admitted with.
    pub op: String,
    /// The boot that starts.
    pub me: NodeRef,
    /// Its lease.
    pub lease: LeaseId,
    /// Who holds: the job's id, or a name of its own.
    pub holder: String,
    /// The job, if it has a pin: lets it start while REMOVING.
    pub job: Option<JobId>,
    /// The epoch of the job's owner, if it is owned: what is written late, after the job was given back, would stay
    /// in use as long as the node lives.
    pub epoch: Option<Revision>,
    /// The job's attempt.
    pub attempt: u32,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

/// Begins a use. Scope: [`crate::Scope::package`] and the job's owner ([`crate::Scope::and_key`]).
pub fn begin_use(view: &View, wish: &BeginUse) -> Result<Plan<()>, Refusal> {
    if !nodes::is_alive(view, &wish.me)? {
        return Err(Refusal::fenced(format!("node {}: this boot's registration is gone", wish.me.node)));
    }
    let owner = wish.job.as_ref().zip(wish.epoch).map(|(job, epoch)| (JobOwnerKey::new(job), epoch));
    if let Some((key, epoch)) = &owner
        && view.get(key)?.is_none_or(|owner| owner.create_revision != *epoch)
    {
        return Err(Refusal::fenced(format!("job {}: epoch {epoch} is over", key.job)));
    }
    let refuse = |why: &str| {
        Err(Refusal::new(Class::UnitNotReady, format!("package {} is not READY: it {why}", wish.unit)))
    };
    let Ok((unit_key, unit)) = unit_of_op(view, &wish.unit, &wish.op) else { return refuse("is gone") };
    let copy_key = CopyKey::new(&wish.unit, &wish.me.node);
    let copy = view.get(&copy_key)?.filter(|copy| copy.op == wish.op);
    let pin_key = wish.job.as_ref().map(|job| PinKey::new(&wish.unit, job));
    let pin = match &pin_key {
        Some(key) => view.get(key)?.filter(|pin| pin.op == wish.op),
        None => None,
    };
    let pinned = pin.is_some();
    match unit.state {
        UnitState::Ready => {}
        UnitState::Removing if pinned => {}
        UnitState::Removing => return refuse("is being removed"),
        UnitState::Creating => return refuse("is being created"),
        UnitState::Purging => return refuse("is being deleted"),
    }
    let copy = match copy {
        Some(copy) if copy.state == CopyState::Present => copy,
        Some(copy) if copy.state == CopyState::Draining && pinned => copy,
        // The package is fine; this copy of it is being fetched, or was found damaged a moment ago. The job is not to
        // fail for that: it goes on elsewhere, or here a little later.
        _ => {
            return Err(Refusal::not_yet(format!(
                "package {} is not on node {} now",
                wish.unit, wish.me.node
            )));
        }
    };
    let key = UseKey::new(&wish.unit, &wish.me.node, &wish.holder);
    let found = view.get(&key)?;
    let record = Use {
        op: wish.op.clone(),
        incarnation: wish.me.incarnation,
        attempt: wish.attempt,
        since_ms: wish.now_ms,
        extra: Default::default(),
    };
    if found.as_ref().is_some_and(|found| found.value == record) {
        return Ok(Plan::already(()));
    }
    let steps = Steps::new()
        .stands(&NodeKey::new(&wish.me.node), wish.me.incarnation)
        .unchanged(&unit_key, &unit)
        .unchanged(&copy_key, &copy)
        .as_read(&key, found.as_ref());
    let steps = match (&pin_key, &pin) {
        (Some(key), Some(pin)) => steps.unchanged(key, pin),
        _ => steps,
    };
    let steps = match &owner {
        Some((key, epoch)) => steps.stands(key, *epoch),
        None => steps,
    };
    Ok(steps.put_leased(&key, &record, wish.lease).answer(()))
}

/// Ends a use of this boot, once nothing of it runs any more. A job's uses end with [`crate::jobs::ended`] or
/// [`crate::jobs::release`]; this is for other holders. Scope: [`crate::Scope::package`].
pub fn end_use(view: &View, unit: &UnitId, me: &NodeRef, holder: &str) -> Result<Plan<()>, Refusal> {
    let key = UseKey::new(unit, &me.node, &holder.to_owned());
    match view.get(&key)? {
        Some(found) if found.incarnation == me.incarnation => {
            Ok(Steps::new().unchanged(&key, &found).delete(&key).answer(()))
        }
        _ => Ok(Plan::already(())),
    }
}
