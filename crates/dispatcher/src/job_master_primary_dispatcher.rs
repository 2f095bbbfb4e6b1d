//! JobMasterPrimaryDispatcher: places jobs on JobMaster processes and runs none itself. It is the ResourceManager
//! too: a node's free slots are what it offers minus what live jobs take.
//!
//! Every dispatcher places; the store's guards let one placement stand, and the claim of the node decides. So that
//! dispatchers do not get in each other's way, the one that drives a run places its job, and the others step in a
//! moment later. A job is placed again when its node is gone, takes no more jobs, or did not claim it within
//! [`CLAIM_WITHIN`], counted by this process's clock, as the pause after a failure of main() is.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use meta_client::{Commit, Stored, commit};
use meta_types::Revision;
use process_kit::Did;
use records::jobs::{Drive, Driven, NodeSlots, count_slots, drive_among};
use records::keys::{JobCancelKey, JobKey, JobOwnerKey, RunOwnerKey};
use records::record::{Job, NodeRef};
use records::{Changes, JobId, Parsed, View, mod_revision};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::front::{Front, now_ms};
use crate::limits::{CLAIM_WITHIN, RECONCILE_EVERY, STEP_IN_AFTER};

use crate::reconcile::Reconciler;

type Slots = BTreeMap<NodeRef, NodeSlots>;

/// The reconciler.
pub struct JobMasterPrimaryDispatcher {
    front: Front,
    jobs: Parsed<JobKey>,
    owners: Changes<JobOwnerKey>,
    cancels: Changes<JobCancelKey>,
    run_owners: Parsed<RunOwnerKey>,
    /// Jobs that take slots: not over, and owned or placed.
    taking: HashSet<JobId>,
    /// Since when this process sees a job, without an owner, as it is now.
    seen: HashMap<JobId, Seen>,
    /// Of those the ones to look at, oldest first.
    open: BTreeSet<(Revision, JobId)>,
    /// And those with which there is nothing to do until they or the free slots change, however many they are.
    settled: BTreeSet<(Revision, JobId)>,
    /// The free slots that the last look was made with.
    last_slots: Slots,
    /// When the next pause is over.
    next_due: Duration,
    /// A job ended: slots may have been free and taken in between, so that they look the same as before.
    some_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    mod_revision: Revision,
    create_revision: Revision,
    since: Instant,
}

impl JobMasterPrimaryDispatcher {
    /// A dispatcher that has seen nothing yet.
    pub fn new(front: Front) -> Self {
        Self {
            front,
            jobs: Parsed::default(),
            owners: Changes::default(),
            cancels: Changes::default(),
            run_owners: Parsed::default(),
            taking: HashSet::new(),
            seen: HashMap::new(),
            open: BTreeSet::new(),
            settled: BTreeSet::new(),
            last_slots: Slots::new(),
            next_due: RECONCILE_EVERY,
            some_ended: false,
        }
    }

    /// Takes over what changed since the last view.
    fn note(&mut self, view: &View) {
        self.run_owners.update(view);
        let jobs = self.jobs.update(view).into_iter().map(|key| key.job);
        let owners = self.owners.keys_since(view).into_iter().map(|(key, _)| key.job);
        let cancels = self.cancels.keys_since(view).into_iter().map(|(key, _)| key.job);
        let changed: BTreeSet<JobId> = jobs.chain(owners).chain(cancels).collect();
        for id in changed {
            self.note_job(view, id);
        }
    }

    fn note_job(&mut self, view: &View, id: JobId) {
        let before = self.seen.remove(&id);
        if let Some(before) = before {
            let at = (before.create_revision, id.clone());
            self.open.remove(&at);
            self.settled.remove(&at);
        }
        self.taking.remove(&id);
        let job = self.jobs.get(&JobKey::new(&id)).filter(|job| !job.state.is_terminal());
        let Some(job) = job else {
            self.some_ended = true;
            return;
        };
        let is_owned = mod_revision(view, &JobOwnerKey::new(&id)) != 0;
        if is_owned || job.placed.is_some() {
            self.taking.insert(id.clone());
        }
        if is_owned {
            return;
        }
        let (mod_revision, create_revision) = (job.mod_revision, job.create_revision);
        let known = before.filter(|seen| seen.mod_revision == mod_revision);
        let since = known.map_or_else(Instant::now, |seen| seen.since);
        self.open.insert((create_revision, id.clone()));
        self.seen.insert(id, Seen { mod_revision, create_revision, since });
    }

    /// The free slots changed: of the jobs that wait, as many of the oldest as could be placed are looked at, or all
    /// if it is a change that each of them tells about.
    fn wake(&mut self, slots: &Slots) {
        let offers = |slots: &Slots| -> Vec<(NodeRef, u32, bool)> {
            slots.iter().map(|(node, slots)| (node.clone(), slots.slots, slots.draining)).collect()
        };
        if offers(slots) != offers(&self.last_slots) {
            self.open.append(&mut self.settled);
            return;
        }
        let free = || slots.values().filter(|slots| !slots.draining).map(|slots| slots.free.max(0));
        let (total, largest) = (free().sum::<i64>(), free().max().unwrap_or(0));
        let jobs = &self.jobs;
        let fits = |id: &JobId| {
            jobs.get(&JobKey::new(id)).is_some_and(|job| i64::from(job.spec.parallelism) <= largest)
        };
        let count = usize::try_from(total).unwrap_or(usize::MAX);
        let woken: Vec<_> = match largest {
            0 => Vec::new(),
            _ => self.settled.iter().filter(|(_, id)| fits(id)).take(count).cloned().collect(),
        };
        for at in woken {
            self.settled.remove(&at);
            self.open.insert(at);
        }
    }

    /// Those to look at now, oldest first.
    fn due(&mut self, view: &View, slots: &Slots) -> Vec<(JobId, Stored<Job>)> {
        if self.last_slots != *slots || std::mem::take(&mut self.some_ended) {
            self.wake(slots);
        }
        let open = self.open.iter().filter_map(|(_, id)| {
            let job = self.jobs.get(&JobKey::new(id))?;
            let seen = self.seen.get(id)?;
            self.is_due(view, slots, id, job, seen).then(|| (id.clone(), job.clone()))
        });
        open.collect()
    }

    fn is_due(&self, view: &View, slots: &Slots, id: &JobId, job: &Job, seen: &Seen) -> bool {
        if is_cancelled(view, id) {
            return true;
        }
        let age = seen.since.elapsed();
        if job.placed.is_some() {
            return age >= CLAIM_WITHIN || !is_takable(slots, job);
        }
        // A job that may not start again is ended, not placed: nothing to wait for.
        let Some(age) = age.checked_sub(pause_of(job)) else { return false };
        let driver = self.run_owners.get(&RunOwnerKey::new(&job.trigger));
        driver.is_none_or(|owner| owner.node == self.front.options.node_name) || age >= STEP_IN_AFTER
    }

    /// How long until the first pause of an open job is over.
    fn first_pause(&self) -> Duration {
        let left = self.open.iter().filter_map(|(_, id)| {
            let pause = pause_of(self.jobs.get(&JobKey::new(id))?);
            let left = pause.saturating_sub(self.seen.get(id)?.since.elapsed());
            (!left.is_zero()).then_some(left)
        });
        left.min().unwrap_or(RECONCILE_EVERY)
    }

    /// The boot to give up on, if the job has waited for its claim long enough.
    fn give_up_on(&self, id: &JobId, job: &Job) -> Option<NodeRef> {
        let waited = self.seen.get(id)?.since.elapsed();
        placed_on(job).filter(|_| waited >= CLAIM_WITHIN)
    }

    fn waited_ms(&self, id: &JobId) -> u64 {
        let waited = self.seen.get(id).map_or(Duration::ZERO, |seen| seen.since.elapsed());
        u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)
    }

    async fn drive_one(
        &mut self,
        view: &View,
        slots: &mut Slots,
        id: &JobId,
        job: &Stored<Job>,
        did: &mut Did,
    ) -> Result<(), ApiError> {
        let wish = Drive {
            job: id.clone(),
            waited_ms: self.waited_ms(id),
            give_up_on: self.give_up_on(id, job),
            // Only an end needs it, and a job ends here only if it was cancelled or its owner was lost.
            retention: self.front.retentions.job.lease(&*self.front.kv).await?,
            now_ms: now_ms(),
        };
        let plan = match drive_among(view, slots, &wish) {
            Ok(plan) => plan,
            Err(refusal) => {
                tracing::debug!(job = %id, %refusal, "not placed");
                return Ok(());
            }
        };
        if plan.is_empty() {
            // One that is placed is watched until it is claimed, one that pauses until the pause is over.
            let at = (job.create_revision, id.clone());
            if job.placed.is_none() && job.pause_ms.is_none() && self.open.remove(&at) {
                self.settled.insert(at);
            }
            return Ok(());
        }
        let Commit::Done(revision) = commit(&*self.front.kv, plan.txn(), view.revision()).await? else {
            return Ok(());
        };
        let (trigger, me) = (&job.trigger, &self.front.options.node_name);
        let kind = match plan.answer(revision) {
            Driven::Placed(node) => {
                tracing::info!(%trigger, job = %id, node = node.node, attempt = job.attempt + 1, "job placed");
                take(slots, job, &node);
                "placed"
            }
            Driven::Waiting(why) => {
                tracing::info!(%trigger, job = %id, node = me, why, "job waits");
                "told-to-wait"
            }
            Driven::Ended(state) => {
                tracing::info!(%trigger, job = %id, node = me, state = state.as_str(), "job ended");
                "ended"
            }
            Driven::Settled | Driven::Pausing => "settled",
        };
        did.add(kind, 1);
        Ok(())
    }
}

fn placed_on(job: &Job) -> Option<NodeRef> {
    let placed = job.placed.as_ref()?;
    Some(NodeRef { node: placed.node.clone(), incarnation: placed.incarnation })
}

/// True if the boot that the job is placed on still lives and takes jobs.
fn is_takable(slots: &Slots, job: &Job) -> bool {
    placed_on(job).and_then(|node| slots.get(&node)).is_some_and(|slots| !slots.draining)
}

fn pause_of(job: &Job) -> Duration {
    Duration::from_millis(job.pause_ms.unwrap_or(0))
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

    fn next_due(&self) -> Duration {
        self.next_due
    }

    async fn round(&mut self, view: &View, did: &mut Did) -> Result<(), ApiError> {
        self.note(view);
        let taking = self.taking.iter();
        let counted = taking.filter_map(|id| Some((id, &self.jobs.get(&JobKey::new(id))?.value)));
        let mut slots = count_slots(view, counted)?;
        let seen_slots = slots.clone();
        for (id, job) in &self.due(view, &seen_slots) {
            self.drive_one(view, &mut slots, id, job, did).await?;
        }
        self.last_slots = seen_slots;
        self.next_due = self.first_pause();
        Ok(())
    }
}
