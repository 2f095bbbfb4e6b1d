//! Claiming: the placed boot puts `/job-owner/<job>` on its lease. The create revision of that key is the epoch that
//! fences all that was or will be owner before and after.

use meta_client::Stored;
use meta_types::{LeaseId, Revision};

use super::free_slots;
use crate::keys::{JobCancelKey, JobKey, JobOwnerKey, NodeKey};
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

/// Claims a job; answers the epoch. A node claims one job at a time, so that its own slots are not promised twice.
/// Scope: [`crate::Scope::jobs`].
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
    let cancel = JobCancelKey::new(job);
    if view.get(&cancel)?.is_some() {
        return Err(Refusal::wrong_state(format!("job {job} is being cancelled")));
    }
    let free = free_slots(view, Some(job))?.get(me).map_or(0, |slots| slots.free);
    if free < i64::from(found.spec.parallelism) {
        return Err(Refusal::new(
            Class::NotYet,
            format!("job {job} needs {} slots, {} are free here", found.spec.parallelism, free.max(0)),
        ));
    }
    let record = JobOwner { node: me.node.clone(), incarnation: me.incarnation, extra: Default::default() };
    Ok(Steps::new()
        .absent(&owner_key)
        .absent(&cancel)
        .unchanged(&key, &found)
        .stands(&NodeKey::new(&me.node), me.incarnation)
        .put_leased(&owner_key, &record, lease)
        .answer_at(|epoch| epoch))
}

fn is_placed_on(job: &Job, me: &NodeRef) -> bool {
    job.placed.as_ref().is_some_and(|placed| placed.node == me.node && placed.incarnation == me.incarnation)
}
