//! Nodes: registering under a lease, who is alive, draining.

mod register;

use meta_client::Stored;

use crate::keys::{NodeDrainKey, NodeKey};
use crate::record::{Node, NodeRef};
use crate::refusal::Refusal;
use crate::view::View;

pub use register::{Register, cancel_drain, drain, register, say_stopping, update};

/// True if this boot of the node still holds its key.
pub fn is_alive(view: &View, node: &NodeRef) -> Result<bool, Refusal> {
    let key = NodeKey::new(&node.node);
    Ok(view.get(&key)?.is_some_and(|stored| stored.create_revision == node.incarnation))
}

/// The boot that holds the node's key now.
pub fn current(view: &View, node: &str) -> Result<Option<NodeRef>, Refusal> {
    let found = view.get(&NodeKey { node: node.into() })?;
    Ok(found.map(|stored| NodeRef { node: node.into(), incarnation: stored.create_revision }))
}

/// Every live process.
pub fn live(view: &View) -> Result<Vec<(NodeRef, Stored<Node>)>, Refusal> {
    let all = view.all::<NodeKey>()?;
    let named = |(key, node): (NodeKey, Stored<Node>)| {
        (NodeRef { node: key.node, incarnation: node.create_revision }, node)
    };
    Ok(all.into_iter().map(named).collect())
}

/// Every live server node: has a package directory and can run code.
pub fn live_servers(view: &View) -> Result<Vec<(NodeRef, Stored<Node>)>, Refusal> {
    let mut nodes = live(view)?;
    nodes.retain(|(_, node)| node.is_server());
    Ok(nodes)
}

/// True if a process of that name lives and is a server node.
pub fn is_server(view: &View, node: &str) -> Result<bool, Refusal> {
    Ok(view.get(&NodeKey { node: node.into() })?.is_some_and(|node| node.is_server()))
}

/// The live server nodes in one line, for who named another.
pub fn servers_line(view: &View) -> Result<String, Refusal> {
    let names: Vec<String> = live_servers(view)?.into_iter().map(|(of, _)| of.node).collect();
    Ok(match names.as_slice() {
        [] => "no server node is alive".to_owned(),
        names => format!("live server nodes: {}", names.join(", ")),
    })
}

/// True if this boot begins to stop.
pub fn is_leaving(view: &View, node: &NodeRef) -> Result<bool, Refusal> {
    let found = view.get(&NodeKey::new(&node.node))?;
    Ok(found.is_some_and(|found| found.create_revision == node.incarnation && found.stopping))
}

/// True if an operator wants no new jobs there.
pub fn is_draining(view: &View, node: &str) -> Result<bool, Refusal> {
    Ok(view.get(&NodeDrainKey { node: node.into() })?.is_some())
}
