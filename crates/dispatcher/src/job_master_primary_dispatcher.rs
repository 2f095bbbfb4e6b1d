//! JobMasterPrimaryDispatcher: places jobs on JobMaster processes and runs none itself. It is the ResourceManager
//! too: a node's free slots are what it offers minus what live jobs take.
//!
//! Every dispatcher places; the store's guards let one placement stand, and the claim of the node decides. A job is
//! placed again when its node is gone or did not claim it within [`CLAIM_WITHIN`], counted by this process's clock.

use std::collections::HashMap;

use meta_client::{Commit, Stored, commit};
use records::jobs::{Drive, Driven, NodeSlots, drive_among, free_slots, ownerless};
use records::record::{Job, NodeRef};
use records::{JobId, View};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::front::{Front, now_ms};
use crate::limits::CLAIM_WITHIN;
use crate::reconcile::Reconciler;

type Slots = std::collections::BTreeMap<NodeRef, NodeSlots>;

/// The reconciler.
pub struct JobMasterPrimaryDispatcher {
    front: Front,
    /// Since when this process sees a job placed on a boot that has not claimed it.
    unclaimed: HashMap<(JobId, NodeRef), Instant>,
}

impl JobMasterPrimaryDispatcher {
    /// A dispatcher that has seen nothing yet.
    pub fn new(front: Front) -> Self {
        Self { front, unclaimed: HashMap::new() }
    }

    /// The boot to give up on, if the job has waited for its claim long enough.
    fn give_up_on(&mut self, id: &JobId, job: &Job) -> Option<NodeRef> {
        let placed = job.placed.as_ref()?;
        let node = NodeRef { node: placed.node.clone(), incarnation: placed.incarnation };
        let now = Instant::now();
        let since = *self.unclaimed.entry((id.clone(), node.clone())).or_insert(now);
        (now.duration_since(since) >= CLAIM_WITHIN).then_some(node)
    }

    /// Forgets placements that are claimed, changed or over.
    fn forget(&mut self, jobs: &[(JobId, Stored<Job>)]) {
        let placements: std::collections::HashSet<(&str, &str, i64)> = jobs
            .iter()
            .filter_map(|(id, job)| {
                let placed = job.placed.as_ref()?;
                Some((id.as_str(), placed.node.as_str(), placed.incarnation))
            })
            .collect();
        self.unclaimed.retain(|(id, node), _| {
            placements.contains(&(id.as_str(), node.node.as_str(), node.incarnation))
        });
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
            return Ok(0);
        }
        let Commit::Done(revision) = commit(&*self.front.kv, plan.txn(), view.revision()).await? else {
            return Ok(0);
        };
        match plan.answer(revision) {
            Driven::Placed(node) => {
                tracing::info!(job = %id, node = node.node, attempt = job.attempt + 1, "job placed");
                take(slots, job, &node);
            }
            Driven::Waiting(why) => tracing::info!(job = %id, why, "job waits"),
            Driven::Ended(state) => tracing::info!(job = %id, state = state.as_str(), "job ended"),
            Driven::Settled => {}
        }
        Ok(1)
    }
}

/// Moves a job's slots to where it was placed, so that the next job of this round sees it.
fn take(slots: &mut Slots, job: &Job, node: &NodeRef) {
    let needed = i64::from(job.spec.parallelism);
    if let Some(placed) = &job.placed {
        let before = NodeRef { node: placed.node.clone(), incarnation: placed.incarnation };
        if let Some(slots) = slots.get_mut(&before) {
            slots.free += needed;
        }
    }
    if let Some(slots) = slots.get_mut(node) {
        slots.free -= needed;
    }
}

impl Reconciler for JobMasterPrimaryDispatcher {
    const NAME: &'static str = "placement";

    async fn round(&mut self, view: &View) -> Result<usize, ApiError> {
        let jobs = ownerless(view)?;
        self.forget(&jobs);
        let mut slots = free_slots(view, None)?;
        let mut done = 0;
        for (id, job) in &jobs {
            done += self.drive_one(view, &mut slots, id, job).await?;
        }
        Ok(done)
    }
}
