//! What users see of runs.

use meta_client::Stored;
use meta_types::Revision;

use crate::keys::{RunKey, RunOwnerKey};
use crate::names::TriggerId;
use crate::record::{NodeRef, Phase, Run};
use crate::refusal::Refusal;
use crate::view::View;

/// A run joined with its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// Its id.
    pub trigger: TriggerId,
    /// The record.
    pub run: Stored<Run>,
    /// The dispatcher that drives it.
    pub owner: Option<NodeRef>,
    /// That dispatcher's epoch.
    pub epoch: Option<Revision>,
}

impl RunView {
    /// Flink's status: `IN_PROGRESS` or `COMPLETED`.
    pub fn status(&self) -> &'static str {
        if self.run.phase == Phase::Completed { "COMPLETED" } else { "IN_PROGRESS" }
    }
}

/// One run, listed or not; `None` if there is none. Scope: [`crate::Scope::run`].
pub fn run(view: &View, trigger: &TriggerId) -> Result<Option<RunView>, Refusal> {
    let Some(run) = view.get(&RunKey::new(trigger))? else { return Ok(None) };
    join(view, trigger.clone(), run).map(Some)
}

/// Every run that is listed, oldest first. Scope: all runs and run owners.
pub fn runs(view: &View) -> Result<Vec<RunView>, Refusal> {
    let mut all: Vec<_> = view
        .all::<RunKey>()?
        .into_iter()
        .filter(|(_, run)| !run.hidden)
        .map(|(key, run)| join(view, key.trigger, run))
        .collect::<Result<_, _>>()?;
    all.sort_by_key(|view| view.run.create_revision);
    Ok(all)
}

fn join(view: &View, trigger: TriggerId, run: Stored<Run>) -> Result<RunView, Refusal> {
    let owner = view.get(&RunOwnerKey::new(&trigger))?;
    let epoch = owner.as_ref().map(|owner| owner.create_revision);
    let owner = owner.map(|owner| NodeRef { node: owner.node.clone(), incarnation: owner.incarnation });
    Ok(RunView { trigger, run, owner, epoch })
}
