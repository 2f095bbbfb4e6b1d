//! T1, absent -> CREATING: one transaction takes name and version, before any bytes move to other nodes.
//! Two coordinators: exactly one transaction finds the key absent, the other reads the winner.

use meta_client::Stored;
use meta_types::LeaseId;

use super::hold_manifest;
use crate::keys::{NameKey, NodeKey, ReqKey, UnitKey};
use crate::names::UnitId;
use crate::nodes;
use crate::plan::{Plan, Steps};
use crate::record::{Manifest, NameHolder, NodeRef, Policy, Req, ReqOutcome, Unit, UnitOrigin, UnitState};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// Which nodes are to hold a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// Every server node that lives now.
    Live,
    /// So many of them, the coordinator first.
    Some(u32),
    /// These.
    Named(Vec<String>),
}

/// A wish to create or register a package.
#[derive(Debug, Clone)]
pub struct Reserve {
    /// The package.
    pub unit: UnitId,
    /// The new operation: 32 random hex digits.
    pub op: String,
    /// How it comes about.
    pub origin: UnitOrigin,
    /// Who carries it: a live server node.
    pub coordinator: NodeRef,
    /// Digest and files, if they are known by now.
    pub manifest: Option<(String, Manifest)>,
    /// The files are known, their bytes are still to come: targets wait for [`super::announce`].
    pub uploading: bool,
    /// Which nodes are to hold it.
    pub targets: Targets,
    /// How many of them must, before it is READY.
    pub policy: Policy,
    /// The client's request id and the lease its outcome is kept on.
    pub request: Option<(String, LeaseId)>,
    /// Wall clock, shown only.
    pub now_ms: u64,
    /// Of a register: the directory on each target whose files are to be copied.
    pub from: Option<String>,
}

/// What became of the wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// It is CREATING under our operation, on these targets.
    Started {
        /// Nodes that are to hold it.
        targets: Vec<String>,
    },
    /// It is READY already. With the digest in the request it has the same content; without it, the caller compares
    /// what it receives with this digest.
    Ready {
        /// Its operation.
        op: String,
        /// Its digest.
        digest: Option<String>,
    },
    /// The same request is being carried out as this operation: wait for that.
    Joined {
        /// The operation.
        op: String,
    },
}

/// Reserves name and version. Scope: [`crate::Scope::package`], the manifest, the request.
pub fn reserve(view: &View, wish: &Reserve) -> Result<Plan<Reserved>, Refusal> {
    let key = UnitKey::new(&wish.unit);
    let found = view.get(&key)?;
    if let Some(found) = &found
        && found.op == wish.op
    {
        return Ok(Plan::already(Reserved::Started { targets: found.targets.clone() }));
    }
    if let Some(answer) = answered_before(view, wish)? {
        return answer.map(Plan::already);
    }
    if let Some(found) = &found {
        return occupied(view, wish, found).map(Plan::already);
    }
    if !nodes::is_alive(view, &wish.coordinator)? {
        return Err(Refusal::fenced(format!(
            "node {}: this boot's registration is gone",
            wish.coordinator.node
        )));
    }
    let targets = choose_targets(view, wish)?;
    let steps =
        Steps::new().absent(&key).stands(&NodeKey::new(&wish.coordinator.node), wish.coordinator.incarnation);
    let steps = take_name(view, steps, &wish.unit)?;
    let steps = match &wish.manifest {
        Some((digest, manifest)) => hold_manifest(view, steps, &wish.unit, digest, manifest)?,
        None => steps,
    };
    let steps = remember_request(view, steps, wish)?;
    Ok(steps.put(&key, &new_unit(wish, targets.clone())).answer(Reserved::Started { targets }))
}

fn new_unit(wish: &Reserve, targets: Vec<String>) -> Unit {
    let manifest = wish.manifest.as_ref();
    Unit {
        op: wish.op.clone(),
        state: UnitState::Creating,
        origin: wish.origin,
        coordinator: wish.coordinator.clone(),
        epoch: 1,
        manifest: manifest.map(|(digest, _)| digest.clone()),
        uploading: wish.uploading && manifest.is_some(),
        bytes: manifest.map_or(0, |(_, manifest)| manifest.bytes()),
        files: manifest.map_or(0, |(_, manifest)| manifest.files.len() as u64),
        policy: wish.policy,
        targets,
        error: None,
        aborted: false,
        request: wish.request.as_ref().map(|(id, _)| id.clone()),
        created_at_ms: wish.now_ms,
        from: wish.from.clone(),
        extra: Default::default(),
    }
}

/// The answer of an earlier try of the same request.
#[allow(clippy::type_complexity)]
fn answered_before(view: &View, wish: &Reserve) -> Result<Option<Result<Reserved, Refusal>>, Refusal> {
    let Some((id, _)) = &wish.request else { return Ok(None) };
    let Some(req) = view.get(&ReqKey { request: id.clone() })? else { return Ok(None) };
    if req.unit != wish.unit {
        let text = format!("request {id} was about {}: use another request id", req.unit);
        return Ok(Some(Err(Refusal::new(Class::Different, text))));
    }
    Ok(Some(match &req.outcome {
        ReqOutcome::Running => Ok(Reserved::Joined { op: req.op.clone() }),
        ReqOutcome::Ok => {
            Ok(Reserved::Ready { op: req.op.clone(), digest: wish.manifest.as_ref().map(|m| m.0.clone()) })
        }
        ReqOutcome::Failed(reason) => Err(Refusal::wrong_state(reason.clone())),
    }))
}

/// The four answers when the name is taken.
fn occupied(view: &View, wish: &Reserve, found: &Stored<Unit>) -> Result<Reserved, Refusal> {
    let unit = &wish.unit;
    match found.state {
        UnitState::Ready => match (&wish.manifest, &found.manifest) {
            (Some((ours, _)), Some(theirs)) if ours != theirs => Err(Refusal::new(
                Class::Exists,
                format!("{unit} already exists with other content: remove it first or use another version"),
            )),
            _ => Ok(Reserved::Ready { op: found.op.clone(), digest: found.manifest.clone() }),
        },
        UnitState::Creating if nodes::is_alive(view, &found.coordinator)? => Err(Refusal::new(
            Class::InProgress,
            format!("{unit} already exists: it is being created by node {}", found.coordinator.node),
        )),
        UnitState::Creating => Err(Refusal::new(
            Class::InProgress,
            format!(
                "{unit} is being created by node {}, which is lost: it is undone soon",
                found.coordinator.node
            ),
        )
        .for_now()),
        UnitState::Removing => {
            Err(Refusal::new(Class::Removing, format!("{unit} is being removed and still in use: try later")))
        }
        UnitState::Purging => {
            Err(Refusal::new(Class::Removing, format!("{unit} is being deleted on its nodes: try later"))
                .for_now())
        }
    }
}

/// Takes the lower-case name, or stands on it if an earlier version took it.
fn take_name(view: &View, steps: Steps, unit: &UnitId) -> Result<Steps, Refusal> {
    let key = NameKey::of(&unit.name);
    match view.get(&key)? {
        Some(held) if held.name == unit.name => Ok(steps.unchanged(&key, &held)),
        Some(held) => Err(Refusal::new(
            Class::NameCase,
            format!(
                "package {} exists: {} differs from it only in upper and lower case",
                held.name, unit.name
            ),
        )),
        None => {
            let record = NameHolder { name: unit.name.clone(), extra: Default::default() };
            Ok(steps.absent(&key).put(&key, &record))
        }
    }
}

fn remember_request(view: &View, steps: Steps, wish: &Reserve) -> Result<Steps, Refusal> {
    let Some((id, lease)) = &wish.request else { return Ok(steps) };
    let key = ReqKey { request: id.clone() };
    debug_assert!(view.get(&key)?.is_none(), "an earlier answer was looked for");
    let kind = if wish.origin == UnitOrigin::Register { "register" } else { "create" };
    let record = Req {
        kind: kind.into(),
        unit: wish.unit.clone(),
        op: wish.op.clone(),
        outcome: ReqOutcome::Running,
        extra: Default::default(),
    };
    Ok(steps.absent(&key).put_leased(&key, &record, *lease))
}

fn choose_targets(view: &View, wish: &Reserve) -> Result<Vec<String>, Refusal> {
    let live: Vec<String> = nodes::live_servers(view)?.into_iter().map(|(node, _)| node.node).collect();
    if live.is_empty() {
        return Err(no_server_node());
    }
    match &wish.targets {
        Targets::Live => Ok(live),
        Targets::Named(names) => {
            if names.is_empty() {
                return Err(Refusal::bad_request("no target node is named"));
            }
            if let Some(missing) = names.iter().find(|name| !live.contains(name)) {
                return Err(Refusal::bad_request(format!("{missing} is not a live server node")));
            }
            let mut names = names.clone();
            names.sort();
            names.dedup();
            Ok(names)
        }
        Targets::Some(count) => {
            let first = wish.coordinator.node.clone();
            let rest = live.into_iter().filter(|node| *node != first);
            Ok(std::iter::once(first.clone()).chain(rest).take((*count).max(1) as usize).collect())
        }
    }
}

/// Nobody can hold or run code.
pub(crate) fn no_server_node() -> Refusal {
    Refusal::new(Class::NoServerNode, "no server node lives: start a jobmaster or set single.enable=false")
}
