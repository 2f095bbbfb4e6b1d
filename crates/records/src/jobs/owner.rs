//! What the owner of a job writes, each under the guard of its epoch: a deposed owner is refused by the store.

use std::collections::{BTreeMap, BTreeSet};

use meta_client::Stored;
use meta_types::{LeaseId, Revision};

use super::{End, terminate};
use crate::keys::{JobCancelKey, JobKey, JobOwnerKey, UseKey};
use crate::names::JobId;
use crate::plan::{Plan, Steps};
use crate::record::{Attempt, Exit, Job, JobOwner, JobState, NodeRef, OnLostStore};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// How the owner saw the job end.
#[derive(Debug, Clone)]
pub struct Ending {
    /// FINISHED, FAILED or CANCELED.
    pub state: JobState,
    /// The exit.
    pub exit: Exit,
    /// True if main() made it a job before it ended; otherwise its run fails with the exit as cause.
    pub created: bool,
    /// The lease the record lives on from now on; 0 = for ever.
    pub retention: LeaseId,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

/// Before main() is started: counts the attempt and answers its number. One attempt an epoch. While this is not
/// written nothing may be started. Each package must be in use ([`crate::packages::begin_use`] with the job's id as
/// holder) on the owner's node: the guard on those keys ties the start to packages that are READY or pinned.
/// Scope: [`crate::Scope::start`].
pub fn start_attempt(view: &View, job: &JobId, epoch: Revision, now_ms: u64) -> Result<Plan<u32>, Refusal> {
    let owned = owned(view, job, epoch)?;
    if let Some(last) = owned.found.attempts.last()
        && last.epoch == epoch
    {
        return Ok(Plan::already(last.number));
    }
    let cancel = JobCancelKey::new(job);
    if view.get(&cancel)?.is_some() {
        return Err(being_cancelled(job));
    }
    if !owned.found.may_start() {
        return Err(Refusal::wrong_state(format!("job {job} may be started once only")));
    }
    let steps = owned.packages_in_use(view, job)?;
    let mut record = owned.found.value.clone();
    record.attempt += 1;
    record.waiting = None;
    record.unfit.clear();
    let owner = NodeRef { node: owned.owner.node.clone(), incarnation: owned.owner.incarnation };
    let attempt = Attempt { number: record.attempt, owner, epoch, started_at_ms: now_ms, not_started: false };
    record.attempts.push(attempt);
    let surplus = record.attempts.len().saturating_sub(Job::MAX_ATTEMPTS_KEPT);
    record.attempts.drain(..surplus);
    let number = record.attempt;
    // From now on only who knows what became of it takes the owner away. A node whose work directory has no name could
    // not show that it is back.
    let is_kept = record.spec.on_lost_store == OnLostStore::Keep && owned.owner.work_dir.is_some();
    let steps = steps.when(is_kept, |steps| steps.put(&owned.owner_key, &owned.owner.value));
    Ok(steps.absent(&cancel).put(&owned.key, &record).answer(number))
}

/// main() made it a job: RUNNING, and its run is a success. Refused while somebody wants it gone, so that a run is
/// either deleted without a job or completed with one. Scope: the job ([`crate::Scope::and_job`]).
pub fn created(view: &View, job: &JobId, epoch: Revision, now_ms: u64) -> Result<Plan<()>, Refusal> {
    let owned = owned(view, job, epoch)?;
    if owned.found.is_created() && owned.found.state == JobState::Running {
        return Ok(Plan::already(()));
    }
    let cancel = JobCancelKey::new(job);
    if view.get(&cancel)?.is_some() {
        return Err(being_cancelled(job));
    }
    owned.started()?;
    let mut record = owned.found.value.clone();
    record.state = JobState::Running;
    record.created_at_ms = record.created_at_ms.or(Some(now_ms));
    Ok(owned.steps().absent(&cancel).put(&owned.key, &record).answer(()))
}

/// The owner kills it because somebody wants it gone. Scope: the job ([`crate::Scope::and_job`]).
pub fn cancelling(view: &View, job: &JobId, epoch: Revision) -> Result<Plan<()>, Refusal> {
    let owned = owned(view, job, epoch)?;
    if owned.found.state == JobState::Cancelling {
        return Ok(Plan::already(()));
    }
    let mut record = owned.found.value.clone();
    record.state = JobState::Cancelling;
    Ok(owned.steps().put(&owned.key, &record).answer(()))
}

/// The job is over and nothing of it runs any more: state, exit, pins, uses, owner key and wishes in one transaction.
/// Scope: the job ([`crate::Scope::and_job`]).
pub fn ended(view: &View, job: &JobId, epoch: Revision, ending: &Ending) -> Result<Plan<JobState>, Refusal> {
    if !ending.state.is_terminal() {
        return Err(Refusal::bad_request(format!("{} is not the end of a job", ending.state.as_str())));
    }
    if let Some(found) = view.get(&JobKey::new(job))?
        && found.state.is_terminal()
        && found.attempts.last().is_some_and(|attempt| attempt.epoch == epoch)
    {
        return Ok(Plan::already(found.state));
    }
    let owned = owned(view, job, epoch)?;
    let cancel_key = JobCancelKey::new(job);
    let cancel = view.get(&cancel_key)?;
    // Deleted or cancelled before main() made it a job: it did not become one, however the process ended.
    let created = ending.created && (cancel.is_none() || owned.found.is_created());
    let state = if cancel.is_some() && !owned.found.is_created() { JobState::Canceled } else { ending.state };
    if state == JobState::Finished && !created && !owned.found.is_created() {
        return Err(Refusal::bad_request("a job that was not created cannot have FINISHED"));
    }
    let end =
        End { state, exit: ending.exit.clone(), created, retention: ending.retention, now_ms: ending.now_ms };
    let steps = Steps::new().stands(&owned.owner_key, epoch).as_read(&cancel_key, cancel.as_ref());
    let steps = owned.end_uses(steps, job);
    Ok(terminate(steps, job, &owned.found, end).delete(&owned.owner_key).answer(state))
}

/// The owner gives the job back, with nothing of it running any more (shutdown, drain, a package that cannot be
/// fetched here): its uses end and another node may claim it. Scope: the job ([`crate::Scope::and_job`]).
pub fn release(view: &View, job: &JobId, epoch: Revision, why: &str) -> Result<Plan<()>, Refusal> {
    match view.get(&JobOwnerKey::new(job))? {
        Some(owner) if owner.create_revision == epoch => {}
        _ => return Ok(Plan::already(())),
    }
    let owned = owned(view, job, epoch)?;
    let mut record = owned.given_back(epoch);
    record.waiting = Some(why.into());
    Ok(owned.give_back(job, &record).answer(()))
}

/// The same of an owner that certainly did not start main(): if it has counted an attempt, that one does not count
/// where main() may start once only, and other nodes come first from now on. Scope: the job ([`crate::Scope::and_job`]).
pub fn release_unstarted(view: &View, job: &JobId, epoch: Revision, why: &str) -> Result<Plan<()>, Refusal> {
    match view.get(&JobOwnerKey::new(job))? {
        Some(owner) if owner.create_revision == epoch => {}
        _ => return Ok(Plan::already(())),
    }
    let owned = owned(view, job, epoch)?;
    let mut record = owned.given_back(epoch);
    record.waiting = Some(why.into());
    if let Some(last) = record.attempts.last_mut().filter(|last| last.epoch == epoch) {
        last.not_started = true;
    }
    let here = NodeRef { node: owned.owner.node.clone(), incarnation: owned.owner.incarnation };
    if !record.unfit.contains(&here) {
        record.unfit.push(here);
    }
    let surplus = record.unfit.len().saturating_sub(Job::MAX_UNFIT_KEPT);
    record.unfit.drain(..surplus);
    Ok(owned.give_back(job, &record).answer(()))
}

pub(super) struct Owned {
    key: JobKey,
    pub(super) found: Stored<Job>,
    pub(super) owner_key: JobOwnerKey,
    pub(super) owner: Stored<JobOwner>,
    epoch: Revision,
}

impl Owned {
    /// The guards of every write of an owner.
    fn steps(&self) -> Steps {
        Steps::new().stands(&self.owner_key, self.epoch).unchanged(&self.key, &self.found)
    }

    /// The guards of an owner, and that each package is in use by the job on the owner's node.
    pub(super) fn packages_in_use(&self, view: &View, job: &JobId) -> Result<Steps, Refusal> {
        let packages: BTreeMap<_, _> =
            self.found.packages().map(|package| (package.unit.clone(), package)).collect();
        let mut steps = self.steps();
        for package in packages.into_values() {
            let key = UseKey::new(&package.unit, &self.owner.node, &job.to_string());
            let held = view.get(&key)?;
            let held =
                held.filter(|held| held.op == package.op && held.incarnation == self.owner.incarnation);
            let Some(held) = held else {
                return Err(Refusal::new(
                    Class::UnitNotReady,
                    format!(
                        "package {} is not in use by job {job} on node {}",
                        package.unit, self.owner.node
                    ),
                ));
            };
            steps = steps.stands(&key, held.create_revision);
        }
        Ok(steps)
    }

    /// The record of a job that its owner gives back, with nothing of it running any more.
    pub(super) fn given_back(&self, epoch: Revision) -> Job {
        Job { placed: None, released_epoch: Some(epoch), ..self.found.value.clone() }
    }

    /// Writes it, and ends what was the owner's.
    pub(super) fn give_back(&self, job: &JobId, record: &Job) -> Steps {
        self.end_uses(self.steps(), job).put(&self.key, record).delete(&self.owner_key)
    }

    /// Nothing of the job runs on the owner's node any more.
    pub(super) fn end_uses(&self, steps: Steps, job: &JobId) -> Steps {
        let holder = job.to_string();
        let uses: BTreeSet<UseKey> = self
            .found
            .packages()
            .map(|package| UseKey::new(&package.unit, &self.owner.node, &holder))
            .collect();
        uses.iter().fold(steps, |steps, used| steps.delete(used))
    }

    pub(super) fn started(&self) -> Result<(), Refusal> {
        if self.found.attempts.last().is_some_and(|attempt| attempt.epoch == self.epoch) {
            return Ok(());
        }
        Err(Refusal::wrong_state("no attempt was started under this epoch"))
    }
}

pub(super) fn owned(view: &View, job: &JobId, epoch: Revision) -> Result<Owned, Refusal> {
    let (key, owner_key) = (JobKey::new(job), JobOwnerKey::new(job));
    let owner = view.get(&owner_key)?.filter(|owner| owner.create_revision == epoch);
    let owner = owner.ok_or_else(|| Refusal::fenced(format!("job {job}: epoch {epoch} is over")))?;
    let found = view.get(&key)?.ok_or_else(|| Refusal::fenced(format!("job {job} is gone")))?;
    if found.state.is_terminal() {
        return Err(Refusal::fenced(format!("job {job} is {}", found.state.as_str())));
    }
    Ok(Owned { key, found, owner_key, owner, epoch })
}

fn being_cancelled(job: &JobId) -> Refusal {
    Refusal::wrong_state(format!("job {job} is being cancelled"))
}
