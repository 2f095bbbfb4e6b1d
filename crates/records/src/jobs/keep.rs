//! Jobs that are kept while their node cannot reach the store (`on-lost-store: keep`).
//!
//! Their owner key hangs on no lease from the start of main() on, so it names the host, under the same epoch, however
//! long that is away: nobody places or claims the job meanwhile. Only a boot of the same node on the same work directory
//! says what became of the attempt: it lives on ([`resume`]), ended ([`super::ended`], [`super::main_failed`]), or is
//! gone ([`super::release`]). Or an operator ends the job without asking ([`cancel_by_force`]).

use std::collections::BTreeMap;

use meta_client::Stored;

use super::owner::owned;
use super::{Cancel, CancelAnswer, End, JobView, request_cancel, terminate};
use crate::keys::NodeKey;
use crate::names::JobId;
use crate::nodes;
use crate::plan::{Plan, Steps};
use crate::record::{JobOwner, NodeRef, OnLostStore};
use crate::refusal::Refusal;
use crate::view::View;

/// The key of a run's configuration and of the dispatchers' own.
pub const ON_LOST_STORE: &str = "on-lost-store";

/// What a job's own configuration asks for, `default` where it leaves that open. A value that cannot be is refused with
/// its key and what would fit.
pub fn on_lost_store(
    configuration: &BTreeMap<String, String>,
    default: &str,
) -> Result<OnLostStore, Refusal> {
    match configuration.get(ON_LOST_STORE).map_or(default, String::as_str).trim() {
        "kill" => Ok(OnLostStore::Kill),
        "keep" => Ok(OnLostStore::Keep),
        other => Err(Refusal::bad_request(format!("{ON_LOST_STORE} = \"{other}\": wants kill or keep"))),
    }
}

/// True for the owner of a started attempt that is kept: it hangs on no lease.
pub fn is_kept(owner: &Stored<JobOwner>) -> bool {
    owner.lease == 0
}

/// The next boot of a node goes on with an attempt that an earlier one kept, and that lives. The epoch stays, for main()
/// was not started again. Each package must be in use by the job under this boot. Scope: [`crate::Scope::start`] and
/// the nodes.
pub fn resume(view: &View, job: &JobId, epoch: i64, me: &NodeRef) -> Result<Plan<()>, Refusal> {
    let mut owned = owned(view, job, epoch)?;
    let is_mine = owned.owner.node == me.node && is_kept(&owned.owner);
    let Some(node) = view.get(&NodeKey::new(&me.node))?.filter(|node| node.create_revision == me.incarnation)
    else {
        return Err(Refusal::fenced(format!("node {}: this boot's registration is gone", me.node)));
    };
    if !is_mine || node.work_dir != owned.owner.work_dir {
        return Err(Refusal::fenced(format!("job {job} is kept on node {}, not here", owned.owner.node)));
    }
    if owned.owner.incarnation == me.incarnation {
        return Ok(Plan::already(()));
    }
    owned.started()?;
    let read = owned.owner.clone();
    owned.owner.value.incarnation = me.incarnation;
    let steps = owned.packages_in_use(view, job)?.unchanged(&owned.owner_key, &read);
    let steps = steps.stands(&NodeKey::new(&me.node), me.incarnation);
    Ok(steps.put(&owned.owner_key, &owned.owner.value).answer(()))
}

/// What a job waits for whose node went away with an attempt that is kept, in words; none if it does not.
/// Scope: the nodes.
pub fn lost_host(view: &View, job: &JobView) -> Result<Option<String>, Refusal> {
    let Some(owner) = job.owner.as_ref().filter(|_| job.is_kept) else { return Ok(None) };
    if nodes::is_alive(view, owner)? {
        return Ok(None);
    }
    let node = &owner.node;
    Ok(Some(format!(
        "waits for node {node}, which is away and may still run it ({ON_LOST_STORE}: keep): it goes on when that node \
         is back with its work directory, or ends by metactl job cancel --force"
    )))
}

/// Cancels a job without waiting for its host: one that is kept by a boot that is gone is CANCELED at once, and its epoch
/// is over, so the host kills what runs there when it is back. Any other job is cancelled as by [`request_cancel`].
/// Scope: the job ([`crate::Scope::and_job`]) and the nodes.
pub fn cancel_by_force(view: &View, wish: &Cancel) -> Result<Plan<CancelAnswer>, Refusal> {
    let waits = match super::job(view, &wish.job)? {
        Some(job) => lost_host(view, &job)?.and(job.epoch),
        None => None,
    };
    let Some(epoch) = waits else { return request_cancel(view, wish) };
    let owned = owned(view, &wish.job, epoch)?;
    let node = &owned.owner.node;
    let why = format!(
        "{}, by force: node {node} was away, and what it runs of the job is killed only when it is back",
        wish.reason
    );
    let end = End::canceled(&why, wish.retention, wish.now_ms);
    // A boot that goes on with it in this moment writes the owner anew.
    let steps = terminate(Steps::new(), &wish.job, &owned.found, end);
    let steps = owned.end_uses(steps.unchanged(&owned.owner_key, &owned.owner), &wish.job);
    Ok(steps.delete(&owned.owner_key).answer(CancelAnswer::Canceled))
}
