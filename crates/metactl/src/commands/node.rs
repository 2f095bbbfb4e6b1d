//! `metactl node`.

use clap::Subcommand;
use records::{
    Scope, View,
    keys::{JobKey, JobOwnerKey, NodeDrainKey, NodeKey},
    record::{Node as NodeRecord, Role},
};
use serde_json::{Value, json};

use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    show, view,
};

/// Dispatchers and server nodes that are alive.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  metactl node list -o json")]
pub enum Node {
    /// Lists them.
    List,
}

impl Node {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::List => list(globals).await,
        }
    }
}

async fn list(globals: &Globals) -> Done {
    let view = view::load(globals, Scope::jobs()).await?;
    let nodes = rows(&view)?;
    if globals.json() {
        let nodes = nodes.into_iter().map(|(_, object)| object).collect();
        show::json_line(&Value::Array(nodes))?;
    } else {
        let rows: Vec<_> = nodes.into_iter().map(|(row, _)| row).collect();
        show::table(&COLUMNS, &rows)?;
    }
    Ok(OK)
}

const COLUMNS: [&str; 8] = ["node", "roles", "rest", "address", "slots", "used", "drain", "version"];

fn rows(view: &View) -> Result<Vec<(Vec<String>, Value)>, Failure> {
    let mut rows = Vec::new();
    for (key, node) in view.all::<NodeKey>()? {
        let used = slots_used(view, &key.node)?;
        let draining = view.get(&NodeDrainKey::new(&key.node))?.is_some();
        let object = json!({
            "node": key.node, "incarnation": node.create_revision, "roles": node.roles,
            "restAddress": node.rest_address, "nodeAddress": node.node_address, "slots": node.slots,
            "slotsUsed": used, "draining": draining, "java": node.java, "singleEnable": node.single_enable,
            "version": node.version, "startedAt": show::time(node.started_at_ms),
        });
        let row = vec![
            key.node.clone(),
            roles(&node),
            node.rest_address.clone().unwrap_or_default(),
            node.node_address.clone().unwrap_or_default(),
            node.slots.to_string(),
            used.to_string(),
            if draining { "yes" } else { "no" }.to_owned(),
            node.version.clone(),
        ];
        rows.push((row, object));
    }
    Ok(rows)
}

fn roles(node: &NodeRecord) -> String {
    let name = |role: &Role| match role {
        Role::Dispatcher => "dispatcher",
        Role::Jobmaster => "jobmaster",
    };
    node.roles.iter().map(name).collect::<Vec<_>>().join(",")
}

/// Slots of a node that live jobs take.
fn slots_used(view: &View, node: &str) -> Result<u32, Failure> {
    let mut used = 0;
    for (owner_key, owner) in view.all::<JobOwnerKey>()? {
        if owner.node != node {
            continue;
        }
        let job = view.get(&JobKey::new(&owner_key.job))?;
        used += job.filter(|job| !job.state.is_terminal()).map_or(0, |job| job.spec.parallelism);
    }
    Ok(used)
}
