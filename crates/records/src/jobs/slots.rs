//! Free slots: what a node offers minus the parallelism of the live jobs that are on it or placed there.

use std::collections::BTreeMap;

use super::keep::is_kept;
use crate::keys::{JobKey, JobOwnerKey};
use crate::names::JobId;
use crate::nodes;
use crate::record::{Job, NodeRef};
use crate::refusal::Refusal;
use crate::view::View;

/// A live server node's slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSlots {
    /// What it offers.
    pub slots: u32,
    /// What is left; below 0 if its slots were lowered under running jobs.
    pub free: i64,
    /// True if no new jobs go there: an operator drains it, or it is stopping.
    pub draining: bool,
}

/// The slots of every live server node, not counting `except`. Scope: [`crate::Scope::jobs`].
pub fn free_slots(view: &View, except: Option<&JobId>) -> Result<BTreeMap<NodeRef, NodeSlots>, Refusal> {
    let jobs = view.all::<JobKey>()?;
    let counted = jobs.iter().filter(|(key, _)| Some(&key.job) != except);
    count_slots(view, counted.map(|(key, job)| (&key.job, &job.value)))
}

/// The same for a caller that has the view's jobs parsed. Scope: nodes, drains and job owners.
pub fn count_slots<'a>(
    view: &View,
    jobs: impl Iterator<Item = (&'a JobId, &'a Job)>,
) -> Result<BTreeMap<NodeRef, NodeSlots>, Refusal> {
    let mut slots = BTreeMap::new();
    for (node, record) in nodes::live_servers(view)? {
        let draining = record.stopping || nodes::is_draining(view, &node.node)?;
        slots.insert(node, NodeSlots { slots: record.slots, free: i64::from(record.slots), draining });
    }
    let mut owners: BTreeMap<JobId, NodeRef> = BTreeMap::new();
    for (key, owner) in view.all::<JobOwnerKey>()? {
        let of = NodeRef { node: owner.node.clone(), incarnation: owner.incarnation };
        // What an earlier boot kept takes slots of the boot that goes on with it.
        let now = if is_kept(&owner) { nodes::current(view, &owner.node)? } else { None };
        owners.insert(key.job, now.unwrap_or(of));
    }
    for (id, job) in jobs.filter(|(_, job)| !job.state.is_terminal()) {
        let placed = job
            .placed
            .as_ref()
            .map(|placed| NodeRef { node: placed.node.clone(), incarnation: placed.incarnation });
        let Some(node) = owners.get(id).cloned().or(placed) else { continue };
        if let Some(slots) = slots.get_mut(&node) {
            slots.free -= i64::from(job.spec.parallelism);
        }
    }
    Ok(slots)
}
