//! What dispatchers do for a job nobody owns: end it if it was cancelled or may not start again, else place it. The
//! placement is a hint, the claim decides, so two dispatchers that place at once do no harm.

use std::collections::BTreeMap;

use meta_client::Stored;
use meta_types::LeaseId;

use super::claim::is_placed_on;
use super::{End, NodeSlots, free_slots, terminate};
use crate::keys::{JobCancelKey, JobKey, JobOwnerKey, NodeKey};
use crate::names::JobId;
use crate::packages::no_server_node;
use crate::plan::{Plan, Steps};
use crate::record::{Exit, Job, JobState, NodeRef, Placed};
use crate::refusal::Refusal;
use crate::view::View;

/// A step for an ownerless job.
#[derive(Debug, Clone)]
pub struct Drive {
    /// The job.
    pub job: JobId,
    /// How long the caller has seen the job, without an owner, as it is now: what a pause is counted against.
    pub waited_ms: u64,
    /// A boot that did not claim it in time: placed elsewhere if there is another.
    pub give_up_on: Option<NodeRef>,
    /// The lease the record lives on if this ends the job; 0 = for ever.
    pub retention: LeaseId,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driven {
    /// It has an owner, or is over: nothing to do.
    Settled,
    /// It was ended here, in this state.
    Ended(JobState),
    /// It is placed there: that node may claim it.
    Placed(NodeRef),
    /// main() failed, and its next start is not due yet.
    Pausing,
    /// No node can take it now, and why.
    Waiting(String),
}

/// Jobs that are not over and have no owner, oldest first. Scope: [`crate::Scope::jobs`].
pub fn ownerless(view: &View) -> Result<Vec<(JobId, Stored<Job>)>, Refusal> {
    let mut found = Vec::new();
    for (key, job) in view.all::<JobKey>()? {
        if !job.state.is_terminal() && view.get(&JobOwnerKey::new(&key.job))?.is_none() {
            found.push((key.job, job));
        }
    }
    found.sort_by_key(|(_, job)| job.create_revision);
    Ok(found)
}

/// Takes the step. Scope: [`crate::Scope::jobs`].
pub fn drive(view: &View, wish: &Drive) -> Result<Plan<Driven>, Refusal> {
    drive_among(view, &free_slots(view, None)?, wish)
}

/// Takes the step among these free slots (this job's own placement counted), which a caller that drives many jobs
/// counts once and keeps up to date as it places. Scope: [`crate::Scope::jobs`].
pub fn drive_among(
    view: &View,
    slots: &BTreeMap<NodeRef, NodeSlots>,
    wish: &Drive,
) -> Result<Plan<Driven>, Refusal> {
    let key = JobKey::new(&wish.job);
    let owner = JobOwnerKey::new(&wish.job);
    let Some(found) = view.get(&key)? else { return Ok(Plan::already(Driven::Settled)) };
    if found.state.is_terminal() || view.get(&owner)?.is_some() {
        return Ok(Plan::already(Driven::Settled));
    }
    let steps = Steps::new().absent(&owner);
    let cancel_key = JobCancelKey::new(&wish.job);
    if let Some(intent) = view.get(&cancel_key)? {
        let end = End::canceled(&intent.reason, wish.retention, wish.now_ms);
        return Ok(terminate(steps, &wish.job, &found, end).answer(Driven::Ended(JobState::Canceled)));
    }
    if !found.may_start() {
        let end = owner_lost(&found, wish);
        return Ok(terminate(steps, &wish.job, &found, end).answer(Driven::Ended(JobState::Failed)));
    }
    if found.pause_ms.is_some_and(|pause_ms| wish.waited_ms < pause_ms) {
        return Ok(Plan::already(Driven::Pausing));
    }
    place(slots, wish, steps.absent(&cancel_key), &key, &found)
}

/// main() was started once and its owner is gone; it may not be started again.
fn owner_lost(found: &Job, wish: &Drive) -> End {
    let on = found.attempts.last().map_or_else(String::new, |attempt| format!(" {}", attempt.owner.node));
    let text = match found.waiting.as_ref().filter(|_| found.ended_cleanly()) {
        Some(why) => format!("main() was stopped: {why}; restart-strategy none starts main() at most once"),
        None => format!(
            "the node{on} that ran main() was lost; restart-strategy none starts main() at most once, so whether it \
             had an effect is not known"
        ),
    };
    let exit = Exit { class: Some("OWNER_LOST".into()), text, code: None, signal: None };
    End { state: JobState::Failed, exit, created: false, retention: wish.retention, now_ms: wish.now_ms }
}

fn place(
    slots: &BTreeMap<NodeRef, NodeSlots>,
    wish: &Drive,
    steps: Steps,
    key: &JobKey,
    found: &Stored<Job>,
) -> Result<Plan<Driven>, Refusal> {
    if let Some(placed) = &found.placed {
        let node = NodeRef { node: placed.node.clone(), incarnation: placed.incarnation };
        let given_up = wish.give_up_on.as_ref() == Some(&node);
        let takes_it = slots.get(&node).is_some_and(|slots| !slots.draining);
        if !given_up && takes_it {
            return Ok(Plan::already(Driven::Placed(node)));
        }
    }
    let mut record = Job { pause_ms: None, ..found.value.clone() };
    if found.attempt > 0 && found.is_created() {
        record.state = JobState::Restarting;
    }
    let steps = steps.unchanged(key, found);
    match choose(slots, wish, found) {
        // None is better than where it is: what is written anew would only meet the claim that is on its way.
        Ok(node) if is_placed_on(found, &node) => Ok(Plan::already(Driven::Placed(node))),
        Ok(node) => {
            // No other is left: each gets another chance, in turn.
            if record.unfit.contains(&node) {
                record.unfit.clear();
            }
            record.placed =
                Some(Placed { node: node.node.clone(), incarnation: node.incarnation, at_ms: wish.now_ms });
            record.waiting = None;
            let steps = steps.stands(&NodeKey::new(&node.node), node.incarnation);
            Ok(steps.put(key, &record).answer(Driven::Placed(node)))
        }
        Err(why) => {
            record.placed = None;
            record.waiting = Some(why.clone());
            if record == found.value {
                return Ok(Plan::already(Driven::Waiting(why)));
            }
            Ok(steps.put(key, &record).answer(Driven::Waiting(why)))
        }
    }
}

/// The node with most free slots; among equals one that depends on the job, so that jobs spread.
fn choose(slots: &BTreeMap<NodeRef, NodeSlots>, wish: &Drive, found: &Job) -> Result<NodeRef, String> {
    let needed = i64::from(found.spec.parallelism);
    // Where the job is placed, its own slots are free to it.
    let free =
        |node: &NodeRef, slots: &NodeSlots| slots.free + if is_placed_on(found, node) { needed } else { 0 };
    let open = || slots.iter().filter(|(_, slots)| !slots.draining);
    // One that did not claim in time, or could not start it.
    let is_poor = |node: &NodeRef| wish.give_up_on.as_ref() == Some(node) || found.unfit.contains(node);
    let fits = |poor_too: bool| {
        open()
            .filter(|(node, slots)| free(node, slots) >= needed && (poor_too || !is_poor(node)))
            .max_by_key(|(node, slots)| (free(node, slots), mix(&wish.job, &node.node)))
            .map(|(node, _)| node.clone())
    };
    // Such a one is taken only if there is no other.
    if let Some(node) = fits(false).or_else(|| fits(true)) {
        return Ok(node);
    }
    let largest = open().map(|(_, slots)| i64::from(slots.slots)).max();
    let freest = open().map(|(node, slots)| free(node, slots)).max().unwrap_or(0).max(0);
    Err(match largest {
        None if slots.is_empty() => no_server_node().text,
        None => "every server node is being drained or is stopping".into(),
        Some(largest) if largest < needed => format!("needs {needed} slots, largest node has {largest}"),
        Some(_) => format!("needs {needed} free slots, the freest node has {freest}"),
    })
}

/// A cheap mixing of job and node, the same everywhere.
fn mix(job: &JobId, node: &str) -> u64 {
    let bytes = job.as_str().bytes().chain(node.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    })
}
