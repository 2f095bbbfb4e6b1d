//! JobMasterPrimaryDispatcher: places jobs on JobMaster processes and runs none itself. It is the ResourceManager
//! too: a node's free slots are what it offers minus what live jobs take.
//!
//! Every dispatcher places; the store's guards let one placement stand, and the claim of the node decides. So that
//! dispatchers do not get in each other's way, the one that drives a run places its job, and the others step in a
//! moment later. A job is placed again when its node is gone or did not claim it within [`CLAIM_WITHIN`], counted by
//! this process's clock.

use std::collections::{BTreeMap, HashMap};

use meta_client::{Commit, Stored, commit};
use meta_types::Revision;
use records::jobs::{Drive, Driven, NodeSlots, count_slots, drive_among};
use records::keys::{JobCancelKey, JobKey, JobOwnerKey, RunOwnerKey};
use records::record::{Job, NodeRef};
use records::{JobId, Parsed, View, mod_revision};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::front::{Front, now_ms};
use crate::limits::{CLAIM_WITHIN, STEP_IN_AFTER};

use crate::reconcile::Reconciler;

type Slots = BTreeMap<NodeRef, NodeSlots>;

/// The reconciler.
pub struct JobMasterPrimaryDispatcher {
    front: Front,
    jobs: Parsed<JobKey>,
    run_owners: Parsed<RunOwnerKey>,
    /// Since when this process sees a job, without an owner, as it is now.
    seen: HashMap<JobId, Seen>,
    /// The free slots that the last look at each waiting job was made with.
    last_slots: Slots,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    mod_revision: Revision,
    since: Instant,
    /// There was nothing to do with it, and there is not until the job or the free slots change.
    settled: bool,
}

impl JobMasterPrimaryDispatcher {
    /// A dispatcher that has seen nothing yet.
    pub fn new(front: Front) -> Self {
        Self {
            front,
            jobs: Parsed::default(),
            run_owners: Parsed::default(),
            seen: HashMap::new(),
            last_slots: Slots::new(),
        }
    }

    /// Notes which jobs are not over and have no owner, and picks those to look at now, oldest first.
    fn due(&mut self, view: &View, slots: &Slots) -> Vec<(JobId, Stored<Job>)> {
        let slots_changed = self.last_slots != *slots;
        let mut before = std::mem::take(&mut self.seen);
        let mut due = Vec::new();
        for (JobKey { job: id }, job) in self.jobs.iter().filter(|(_, job)| !job.state.is_terminal()) {
            if mod_revision(view, &JobOwnerKey::new(id)) != 0 {
                continue;
            }
            let known = before.remove(id).filter(|seen| seen.mod_revision == job.mod_revision);
            let fresh = || Seen { mod_revision: job.mod_revision, since: Instant::now(), settled: false };
            let seen = known.unwrap_or_else(fresh);
            self.seen.insert(id.clone(), seen);
            if self.is_due(view, slots, slots_changed, id, job, &seen) {
                due.push((id.clone(), job.clone()));
            }
        }
        due.sort_by_key(|(_, job)| job.create_revision);
        due
    }

    fn is_due(
        &self,
        view: &View,
        slots: &Slots,
        slots_changed: bool,
        id: &JobId,
        job: &Job,
        seen: &Seen,
    ) -> bool {
        if is_cancelled(view, id) {
            return true;
        }
        let age = seen.since.elapsed();
        if job.placed.is_some() {
            return age >= CLAIM_WITHIN || !is_alive(slots, job);
        }
        if seen.settled && !slots_changed {
            return false;
        }
        let driver = self.run_owners.get(&RunOwnerKey::new(&job.trigger));
        driver.is_none_or(|owner| owner.node == self.front.options.node_name) || age >= STEP_IN_AFTER
    }

    /// The boot to give up on, if the job has waited for its claim long enough.
    fn give_up_on(&self, id: &JobId, job: &Job) -> Option<NodeRef> {
        let waited = self.seen.get(id)?.since.elapsed();
        placed_on(job).filter(|_| waited >= CLAIM_WITHIN)
    }

    async fn drive_one(
        &mut self,
        view: &View,
        slots: &mut Slots,
        id: &JobId,
        job: &Stored<Job>,
    ) -> Result<usize, ApiError> {
        let wish = Drive {
            job: id.clone(),
            give_up_on: self.give_up_on(id, job),
            // Only an end needs it, and a job ends here only if it was cancelled or its owner was lost.
            retention: self.front.retentions.job.lease(&*self.front.kv).await?,
            now_ms: now_ms(),
        };
        let plan = match drive_among(view, slots, &wish) {
            Ok(plan) => plan,
            Err(refusal) => {
                tracing::debug!(job = %id, %refusal, "not placed");
                return Ok(0);
            }
        };
        if plan.is_empty() {
            if let Some(seen) = self.seen.get_mut(id) {
                seen.settled = true;
            }
            return Ok(0);
        }
        let Commit::Done(revision) = commit(&*self.front.kv, plan.txn(), view.revision()).await? else {
            return Ok(0);
        };
        let (trigger, me) = (&job.trigger, &self.front.options.node_name);
        match plan.answer(revision) {
            Driven::Placed(node) => {
                tracing::info!(%trigger, job = %id, node = node.node, attempt = job.attempt + 1, "job placed");
                take(slots, job, &node);
            }
            Driven::Waiting(why) => tracing::info!(%trigger, job = %id, node = me, why, "job waits"),
            Driven::Ended(state) => {
                tracing::info!(%trigger, job = %id, node = me, state = state.as_str(), "job ended");
            }
            Driven::Settled => {}
        }
        Ok(1)
    }
}

fn placed_on(job: &Job) -> Option<NodeRef> {
    let placed = job.placed.as_ref()?;
    Some(NodeRef { node: placed.node.clone(), incarnation: placed.incarnation })
}

/// True if the boot that the job is placed on still lives.
fn is_alive(slots: &Slots, job: &Job) -> bool {
    placed_on(job).is_some_and(|node| slots.contains_key(&node))
}

fn is_cancelled(view: &View, id: &JobId) -> bool {
    mod_revision(view, &JobCancelKey::new(id)) != 0
}

/// Moves a job's slots to where it was placed, so that the next job of this round sees it.
fn take(slots: &mut Slots, job: &Job, node: &NodeRef) {
    let needed = i64::from(job.spec.parallelism);
    if let Some(slots) = placed_on(job).and_then(|before| slots.get_mut(&before)) {
        slots.free += needed;
    }
    if let Some(slots) = slots.get_mut(node) {
        slots.free -= needed;
    }
}

impl Reconciler for JobMasterPrimaryDispatcher {
    const NAME: &'static str = "placement";

    async fn round(&mut self, view: &View) -> Result<usize, ApiError> {
        self.jobs.update(view);
        self.run_owners.update(view);
        let counted = self.jobs.iter().map(|(key, job)| (&key.job, &job.value));
        let mut slots = count_slots(view, counted)?;
        let seen_slots = slots.clone();
        let mut done = 0;
        for (id, job) in &self.due(view, &seen_slots) {
            done += self.drive_one(view, &mut slots, id, job).await?;
        }
        self.last_slots = seen_slots;
        Ok(done)
    }
}
