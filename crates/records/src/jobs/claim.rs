//! Claiming: the placed boot puts `/job-owner/<job>` on its lease. The create revision of that key is the epoch that
//! fences all that was or will be owner before and after.

use meta_client::Stored;
use meta_types::{LeaseId, Revision};

use super::keep::is_kept;
use crate::keys::{JobCancelKey, JobKey, JobOwnerKey, NodeDrainKey, NodeKey};
use crate::names::JobId;
use crate::nodes;
use crate::plan::{Plan, Steps};
use crate::record::{Job, JobOwner, NodeRef};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// Jobs placed on this boot that nobody owns, oldest first. Scope: [`crate::Scope::jobs`].
pub fn claimable(view: &View, me: &NodeRef) -> Result<Vec<(JobId, Stored<Job>)>, Refusal> {
    let mut jobs = super::ownerless(view)?;
    jobs.retain(|(_, job)| is_placed_on(job, me));
    Ok(jobs)
}

/// True if this boot may try to claim the job: it is placed here and not over.
pub fn is_claimable(job: &Job, me: &NodeRef) -> bool {
    !job.state.is_terminal() && is_placed_on(job, me)
}

/// Claims a job; answers the epoch. A node claims one job at a time, so that its own slots are not promised twice;
/// what is placed on it and not claimed takes none of them, so two jobs that were placed on the same slot do not
/// wait for each other. A node that is being drained or is stopping claims nothing.
/// Scope: [`crate::Scope::claim`].
pub fn claim(view: &View, job: &JobId, me: &NodeRef, lease: LeaseId) -> Result<Plan<Revision>, Refusal> {
    let key = JobKey::new(job);
    let owner_key = JobOwnerKey::new(job);
    if let Some(owner) = view.get(&owner_key)? {
        if owner.node == me.node && owner.incarnation == me.incarnation {
            return Ok(Plan::already(owner.create_revision));
        }
        return Err(Refusal::fenced(format!("job {job} is owned by node {}", owner.node)));
    }
    let found = view.get(&key)?.ok_or_else(|| Refusal::not_found(format!("there is no job {job}")))?;
    if found.state.is_terminal() {
        return Err(Refusal::wrong_state(format!("job {job} is {}", found.state.as_str())));
    }
    if !nodes::is_alive(view, me)? {
        return Err(Refusal::fenced(format!("node {}: this boot's registration is gone", me.node)));
    }
    if !is_placed_on(&found, me) {
        return Err(Refusal::fenced(format!("job {job} is not placed on node {}", me.node)));
    }
    let drain = NodeDrainKey::new(&me.node);
    if nodes::is_leaving(view, me)? || view.get(&drain)?.is_some() {
        return Err(Refusal::new(Class::NotYet, format!("node {} takes no new jobs", me.node)));
    }
    let cancel = JobCancelKey::new(job);
    if view.get(&cancel)?.is_some() {
        return Err(Refusal::wrong_state(format!("job {job} is being cancelled")));
    }
    let free = own_free_slots(view, me)?;
    if free < i64::from(found.spec.parallelism) {
        return Err(Refusal::new(
            Class::NotYet,
            format!("job {job} needs {} slots, {} are free here", found.spec.parallelism, free.max(0)),
        ));
    }
    let record = JobOwner {
        node: me.node.clone(),
        incarnation: me.incarnation,
        slots: found.spec.parallelism,
        work_dir: view.get(&NodeKey::new(&me.node))?.and_then(|node| node.value.work_dir),
        extra: Default::default(),
    };
    Ok(Steps::new()
        .absent(&owner_key)
        .absent(&cancel)
        .absent(&drain)
        .unchanged(&key, &found)
        .stands(&NodeKey::new(&me.node), me.incarnation)
        .put_leased(&owner_key, &record, lease)
        .answer_at(|epoch| epoch))
}

/// What a boot offers minus what its jobs take, also those that an earlier boot kept.
fn own_free_slots(view: &View, me: &NodeRef) -> Result<i64, Refusal> {
    let node = view.get(&NodeKey::new(&me.node))?.filter(|node| node.create_revision == me.incarnation);
    let offered = node.map_or(0, |node| i64::from(node.slots));
    let owners = view.all::<JobOwnerKey>()?.into_iter().map(|(_, owner)| owner);
    let own = owners
        .filter(|owner| owner.node == me.node && (owner.incarnation == me.incarnation || is_kept(owner)));
    Ok(offered - own.map(|owner| i64::from(owner.slots)).sum::<i64>())
}

/// True if the job is placed on this boot.
pub(super) fn is_placed_on(job: &Job, me: &NodeRef) -> bool {
    job.placed.as_ref().is_some_and(|placed| placed.node == me.node && placed.incarnation == me.incarnation)
}
