//! Who holds a package: the jobs that may start on it (with the runs they come from), the attempts that run on it,
//! the nodes that have a copy. One query, for `icp refs`, for a removal that waits, and for one that is refused.

use std::collections::BTreeMap;

use meta_client::TypedKey;
use serde::Serialize;
use utoipa::ToSchema;

use crate::keys::{CopyKey, PinKey, UnitKey, UseKey, below};
use crate::names::{JobId, TriggerId, UnitId};
use crate::nodes;
use crate::record::{CopyState, NodeRef, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// Everything that holds one package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Refs {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its operation.
    pub op: String,
    /// Its state, as recorded.
    pub status: UnitState,
    /// Jobs that were admitted with it and are not over: they may start, and start again, on it.
    pub jobs: Vec<JobHold>,
    /// What runs on it.
    pub uses: Vec<UseHold>,
    /// Nodes that have a row of it.
    pub nodes: Vec<NodeHold>,
}

/// A job's pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobHold {
    /// The job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// The run that admitted it.
    #[schema(value_type = String)]
    pub run: TriggerId,
}

/// A running use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UseHold {
    /// Where it runs.
    pub node: String,
    /// Who it is: the job's id, or a name of its own.
    pub holder: String,
    /// The job's attempt.
    pub attempt: u32,
    /// The run of the job, if the job is still pinned.
    #[schema(value_type = Option<String>)]
    pub run: Option<TriggerId>,
    /// Since when.
    pub since_ms: u64,
}

/// A node's copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeHold {
    /// The node.
    pub node: String,
    /// State of its copy.
    pub status: CopyState,
    /// Whether the boot that wrote the row lives.
    pub alive: bool,
}

impl Refs {
    /// What keeps a safe removal from ending, in words: `job JOB` for pins, `HOLDER on NODE` for running uses.
    pub fn holders(&self) -> Vec<String> {
        let jobs = self.jobs.iter().map(|hold| format!("job {}", hold.job));
        let uses = self.uses.iter().map(|hold| format!("{} on {}", hold.holder, hold.node));
        jobs.chain(uses).collect()
    }
}

/// Who holds the package. Scope: [`crate::Scope::package`].
pub fn refs(view: &View, unit: &UnitId) -> Result<Refs, Refusal> {
    let found = view.get(&UnitKey::new(unit))?;
    let found = found.ok_or_else(|| Refusal::not_found(format!("there is no package {unit}")))?;
    let pins = view.under::<PinKey>(&below(PinKey::PREFIX, unit))?;
    let runs: BTreeMap<String, TriggerId> =
        pins.iter().map(|(key, pin)| (key.job.to_string(), pin.trigger.clone())).collect();
    let jobs = pins.into_iter().map(|(key, pin)| JobHold { job: key.job, run: pin.value.trigger });
    let uses = view.under::<UseKey>(&below(UseKey::PREFIX, unit))?.into_iter().map(|(key, held)| UseHold {
        run: runs.get(&key.holder).cloned(),
        node: key.node,
        holder: key.holder,
        attempt: held.attempt,
        since_ms: held.since_ms,
    });
    let mut nodes = Vec::new();
    for (key, copy) in view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))? {
        let writer = NodeRef { node: key.node.clone(), incarnation: copy.incarnation };
        nodes.push(NodeHold { node: key.node, status: copy.state, alive: nodes::is_alive(view, &writer)? });
    }
    Ok(Refs {
        name: unit.name.clone(),
        version: unit.version.clone(),
        op: found.op.clone(),
        status: found.state,
        jobs: jobs.collect(),
        uses: uses.collect(),
        nodes,
    })
}
