//! Registering a process: `/node/<node>` on the process's lease. The create revision of the key is the boot's
//! incarnation; it goes with the lease, and with it every right of that boot.

use meta_types::LeaseId;

use crate::keys::{NodeDrainKey, NodeKey};
use crate::names::check_node;
use crate::nodes::servers_line;
use crate::plan::{Plan, Steps, put_kept};
use crate::record::{Node, NodeDrain, NodeRef};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// A wish to register.
#[derive(Debug, Clone)]
pub struct Register {
    /// The node's name.
    pub name: String,
    /// What it is; `boot` is drawn anew at each start.
    pub node: Node,
    /// The lease it lives on.
    pub lease: LeaseId,
}

/// Registers a boot; answers its incarnation. While another boot holds the name: [`Class::NotYet`].
/// Scope: [`crate::Scope::nodes`].
pub fn register(view: &View, request: &Register) -> Result<Plan<NodeRef>, Refusal> {
    check_node(&request.name)?;
    let key = NodeKey::new(&request.name);
    let name = request.name.clone();
    match view.get(&key)? {
        Some(held) if held.boot == request.node.boot => {
            Ok(Plan::already(NodeRef { node: name, incarnation: held.create_revision }))
        }
        Some(_) => Err(Refusal::new(
            Class::NotYet,
            format!(
                "a process named {name} is registered: it runs, or its lease has not run out yet; each process \
                 needs a node.name of its own"
            ),
        )),
        None => Ok(Steps::new()
            .absent(&key)
            .put_leased(&key, &request.node, request.lease)
            .answer_at(move |incarnation| NodeRef { node: name, incarnation })),
    }
}

/// Rewrites what a boot says about itself, keeping lease and incarnation. Scope: [`crate::Scope::nodes`].
pub fn update(view: &View, me: &NodeRef, node: &Node) -> Result<Plan<()>, Refusal> {
    let key = NodeKey::new(&me.node);
    match view.get(&key)? {
        Some(held) if held.create_revision == me.incarnation => {
            if held.value == *node {
                return Ok(Plan::already(()));
            }
            Ok(put_kept(Steps::new().unchanged(&key, &held), &key, &held, node).answer(()))
        }
        _ => Err(Refusal::fenced(format!("node {}: this boot's registration is gone", me.node))),
    }
}

/// Says that this boot begins to stop, so that what it gives back is not placed on it again.
/// Scope: [`crate::Scope::nodes`].
pub fn say_stopping(view: &View, me: &NodeRef) -> Result<Plan<()>, Refusal> {
    match view.get(&NodeKey::new(&me.node))? {
        Some(held) if held.create_revision == me.incarnation => {
            update(view, me, &Node { stopping: true, ..held.value })
        }
        _ => Err(Refusal::fenced(format!("node {}: this boot's registration is gone", me.node))),
    }
}

/// Wishes that a node takes no new jobs and gives back those that may move; a job whose main() may start once only
/// stays until it ends. Scope: [`crate::Scope::nodes`].
pub fn drain(view: &View, node: &str, now_ms: u64) -> Result<Plan<()>, Refusal> {
    let key = NodeDrainKey { node: node.into() };
    if view.get(&key)?.is_some() {
        return Ok(Plan::already(()));
    }
    match view.get(&NodeKey { node: node.into() })? {
        None => {
            let line = servers_line(view)?;
            return Err(Refusal::not_found(format!("there is no live node {node}; {line}")));
        }
        Some(found) if !found.is_server() => {
            let line = servers_line(view)?;
            return Err(Refusal::wrong_state(format!("node {node} runs no jobs: nothing to drain; {line}")));
        }
        Some(_) => {}
    }
    let record = NodeDrain { since_ms: now_ms, ..NodeDrain::default() };
    Ok(Steps::new().absent(&key).put(&key, &record).answer(()))
}

/// Takes the wish back. Scope: [`crate::Scope::nodes`].
pub fn cancel_drain(view: &View, node: &str) -> Result<Plan<()>, Refusal> {
    let key = NodeDrainKey { node: node.into() };
    let Some(held) = view.get(&key)? else { return Ok(Plan::already(())) };
    Ok(Steps::new().unchanged(&key, &held).delete(&key).answer(()))
}
