//! What users see of jobs.

use meta_client::Stored;
use meta_types::Revision;

use crate::keys::{JobCancelKey, JobKey, JobOwnerKey};
use crate::names::JobId;
use crate::record::{Job, JobState, NodeRef};
use crate::refusal::Refusal;
use crate::view::View;

/// A job joined with its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// The record.
    pub job: Stored<Job>,
    /// Who owns it now.
    pub owner: Option<NodeRef>,
    /// True if the owner hangs on no lease: see [`super::is_kept`].
    pub is_kept: bool,
    /// The owner's epoch.
    pub epoch: Option<Revision>,
    /// True if somebody wants it gone.
    pub cancel_wished: bool,
}

impl JobView {
    /// Its state as users see it: a wish to cancel shows at once.
    pub fn state(&self) -> JobState {
        if self.cancel_wished && !self.job.state.is_terminal() {
            JobState::Cancelling
        } else {
            self.job.state
        }
    }

    /// The node that has the output of its last attempt.
    pub fn last_node(&self) -> Option<&str> {
        self.job.attempts.last().map(|attempt| attempt.owner.node.as_str())
    }
}

/// One job; `None` if there is none. Scope: the job ([`crate::Scope::and_job`]).
pub fn job(view: &View, id: &JobId) -> Result<Option<JobView>, Refusal> {
    let Some(found) = view.get(&JobKey::new(id))? else { return Ok(None) };
    join(view, id.clone(), found).map(Some)
}

/// Every job, oldest first. Scope: [`crate::Scope::jobs`].
pub fn jobs(view: &View) -> Result<Vec<JobView>, Refusal> {
    let mut all: Vec<_> = view
        .all::<JobKey>()?
        .into_iter()
        .map(|(key, found)| join(view, key.job, found))
        .collect::<Result<_, _>>()?;
    all.sort_by_key(|job| job.job.create_revision);
    Ok(all)
}

fn join(view: &View, id: JobId, job: Stored<Job>) -> Result<JobView, Refusal> {
    let owner = view.get(&JobOwnerKey::new(&id))?;
    let cancel_wished = view.get(&JobCancelKey::new(&id))?.is_some();
    let is_kept = owner.as_ref().is_some_and(super::is_kept);
    let epoch = owner.as_ref().map(|owner| owner.create_revision);
    let owner = owner.map(|owner| NodeRef { node: owner.node.clone(), incarnation: owner.incarnation });
    Ok(JobView { id, job, owner, is_kept, epoch, cancel_wished })
}
