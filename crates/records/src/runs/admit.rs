//! Admission: the one transaction that makes a run and its job. Two dispatchers with one triggerId: exactly one
//! transaction finds the keys absent, the other reads the winner and answers the same.

use std::collections::BTreeMap;

use meta_types::LeaseId;
use meta_types::controls::{Control, active};

use super::request::differing_fields;
use crate::keys::{JobKey, NodeKey, PinKey, RunKey, RunOwnerKey, RunTokenKey};
use crate::names::{JobId, TriggerId};
use crate::nodes;
use crate::packages::guard_ready;
use crate::plan::{Plan, Steps};
use crate::record::{
    Job, JobSpec, JobState, NodeRef, PackageRef, Phase, Pin, Run, RunOwner, StatedRequest, TokenEnd,
};
use crate::refusal::{Class, Refusal};
use crate::time::rfc3339;
use crate::view::View;

/// Most packages of one job: keeps the admission within the store's limit of operations.
pub const MAX_PACKAGES: usize = 32;

/// A request that is to become a run and a job.
#[derive(Debug, Clone)]
pub struct Admit {
    /// The run's id.
    pub trigger: TriggerId,
    /// The request as stated.
    pub stated: StatedRequest,
    /// The job's id: the request's, or 128 random bits.
    pub job: JobId,
    /// What is to be run, with every default and `latest` resolved.
    pub spec: JobSpec,
    /// The dispatcher that will drive the run.
    pub dispatcher: NodeRef,
    /// Its lease.
    pub lease: LeaseId,
    /// An inner run of the synchronous call.
    pub hidden: bool,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

/// The answer of an admission, the same for the first and for every equal retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The job.
    pub job: JobId,
    /// The package of the JAR that counts: a private package uploaded for this request that is another one lost the
    /// race and is dropped by its uploader. None if only the token remembers the run.
    pub program: Option<PackageRef>,
    /// True if this transaction made it.
    pub new: bool,
}

/// An equal request that came before.
pub type Earlier = Admitted;

/// Looks for an earlier request of this id: `None` = go on and admit; [`Class::Different`] names the fields;
/// [`Class::Deleted`] while the tombstone lives. Scope: [`crate::Scope::run`].
pub fn lookup(view: &View, trigger: &TriggerId, stated: &StatedRequest) -> Result<Option<Earlier>, Refusal> {
    if let Some(run) = view.get(&RunKey::new(trigger))? {
        let first = First { stated: &run.stated, at_ms: run.accepted_at_ms, by: &run.accepted_by };
        same_request(trigger, &first, stated)?;
        return Ok(Some(Admitted { job: run.job.clone(), program: Some(run.program.clone()), new: false }));
    }
    let Some(token) = view.get(&RunTokenKey::new(trigger))? else { return Ok(None) };
    if token.end == TokenEnd::Deleted {
        return Err(Refusal::new(
            Class::Deleted,
            format!(
                "run {trigger} was deleted at {}: a new run needs another triggerId",
                rfc3339(token.ended_at_ms)
            ),
        ));
    }
    let first = First { stated: &token.stated, at_ms: token.accepted_at_ms, by: &token.accepted_by };
    same_request(trigger, &first, stated)?;
    Ok(Some(Admitted { job: token.job.clone(), program: None, new: false }))
}

/// The request that the trigger id is of.
struct First<'a> {
    stated: &'a StatedRequest,
    at_ms: u64,
    by: &'a str,
}

impl First<'_> {
    /// When and by whom it was taken; older writers did not note it.
    fn taken(&self) -> String {
        if self.by.is_empty() {
            return String::new();
        }
        format!(" that {} took at {}", self.by, rfc3339(self.at_ms))
    }
}

fn same_request(trigger: &TriggerId, first: &First<'_>, second: &StatedRequest) -> Result<(), Refusal> {
    let differing = differing_fields(first.stated, second);
    if differing.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        Class::Different,
        format!(
            "triggerId {trigger} was used for a different request{}; these fields differ: {}",
            first.taken(),
            differing.join(", ")
        ),
    ))
}

/// Admits the run. Scope: [`crate::Scope::run`], the job, the nodes and the key of every package of the spec.
pub fn admit(view: &View, wish: &Admit) -> Result<Plan<Admitted>, Refusal> {
    if let Some(earlier) = lookup(view, &wish.trigger, &wish.stated)? {
        return Ok(Plan::already(earlier));
    }
    let job_key = JobKey::new(&wish.job);
    if let Some(job) = view.get(&job_key)? {
        return Err(Refusal::new(
            Class::JobIdInUse,
            format!("job id {} is in use by run {}", wish.job, job.trigger),
        ));
    }
    if !nodes::is_alive(view, &wish.dispatcher)? {
        return Err(Refusal::fenced(format!(
            "node {}: this boot's registration is gone",
            wish.dispatcher.node
        )));
    }
    let (run_key, owner_key) = (RunKey::new(&wish.trigger), RunOwnerKey::new(&wish.trigger));
    // Positive control: that the trigger is new was looked up above, and the transaction does not ask again.
    let asks_again = !active(Control::TriggerOutsideTxn);
    let steps = Steps::new()
        .when(asks_again, |steps| steps.absent(&run_key).absent(&RunTokenKey::new(&wish.trigger)))
        .absent(&job_key)
        .stands(&NodeKey::new(&wish.dispatcher.node), wish.dispatcher.incarnation);
    let steps = pin_packages(view, steps, wish)?;
    let owner = RunOwner {
        node: wish.dispatcher.node.clone(),
        incarnation: wish.dispatcher.incarnation,
        extra: Default::default(),
    };
    let answer = Admitted { job: wish.job.clone(), program: Some(wish.spec.program.clone()), new: true };
    Ok(steps
        .put(&run_key, &new_run(wish))
        .put(&job_key, &new_job(wish))
        .put_leased(&owner_key, &owner, wish.lease)
        .answer(answer))
}

/// Guards that every package is READY, and pins it for the job.
fn pin_packages(view: &View, mut steps: Steps, wish: &Admit) -> Result<Steps, Refusal> {
    let packages: BTreeMap<_, _> = std::iter::once(&wish.spec.program)
        .chain(&wish.spec.class_path)
        .map(|package| (package.unit.clone(), package))
        .collect();
    if packages.len() > MAX_PACKAGES {
        return Err(Refusal::bad_request(format!("a job can have at most {MAX_PACKAGES} packages")));
    }
    for package in packages.into_values() {
        let pin = Pin { op: package.op.clone(), trigger: wish.trigger.clone(), extra: Default::default() };
        steps = guard_ready(view, steps, package)?.put(&PinKey::new(&package.unit, &wish.job), &pin);
    }
    Ok(steps)
}

fn new_run(wish: &Admit) -> Run {
    Run {
        stated: wish.stated.clone(),
        program: wish.spec.program.clone(),
        class_path: wish.spec.class_path.clone(),
        job: wish.job.clone(),
        phase: Phase::Accepted,
        result: None,
        attempts: 0,
        waiting: None,
        hidden: wish.hidden,
        accepted_at_ms: wish.now_ms,
        accepted_by: wish.dispatcher.node.clone(),
        completed_at_ms: None,
        extra: Default::default(),
    }
}

fn new_job(wish: &Admit) -> Job {
    Job {
        spec: wish.spec.clone(),
        trigger: wish.trigger.clone(),
        state: JobState::Initializing,
        attempt: 0,
        attempts: Vec::new(),
        placed: None,
        waiting: None,
        created_at_ms: None,
        exit: None,
        released_epoch: None,
        failures: 0,
        unfit: Vec::new(),
        pause_ms: None,
        last_failure: None,
        admitted_at_ms: wish.now_ms,
        ended_at_ms: None,
        extra: Default::default(),
    }
}
