//! `metactl node`.

use std::{
    ops::ControlFlow,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::{Args, Subcommand};
use records::{
    Class, JobId, Plan, Refusal, Scope, View, carry_out,
    keys::{JobKey, JobOwnerKey, NodeDrainKey, NodeKey},
    nodes,
    record::{Node as NodeRecord, Role},
};
use serde_json::{Value, json};

use crate::{
    changes,
    cli::{Globals, duration},
    exit::{CONFLICT, Done, Failure, OK},
    show, view,
};

/// Dispatchers and server nodes that are alive.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Node {
    /// Lists them.
    List,
    /// Has a node take no new jobs, and waits until no job is left on it.
    Drain(Drain),
}

const EXAMPLES: &str = "Examples:
  metactl node list -o json
  metactl node drain n1 --timeout 10m && ssh n1 systemctl stop metastore-jobmaster
  metactl node drain n1 --cancel

A drain stays, whoever waits for it, until it is cancelled; the node's packages stay where they are.";

/// Which node, and how.
#[derive(Debug, Args)]
pub struct Drain {
    /// The node.
    node: String,
    /// How long to wait at most; the drain goes on after it.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
    /// Takes the wish back: the node takes jobs again.
    #[arg(long)]
    cancel: bool,
}

impl Node {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::List => list(globals).await,
            Self::Drain(drain) if drain.cancel => drain.take_back(globals).await,
            Self::Drain(drain) => drain.run(globals).await,
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

impl Drain {
    async fn run(self, globals: &Globals) -> Done {
        let node = &self.node;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.write(globals, |view| {
            if let Some(found) = view.get(&NodeKey::new(node))?
                && !found.is_server()
            {
                let why = format!("{node} is a dispatcher without JobMasters: no job runs there");
                return Err(Refusal::new(Class::WrongState, why));
            }
            nodes::drain(view, node, now_ms)
        })
        .await?;
        let scope = Scope::nodes().and_all::<JobOwnerKey>();
        let mut left = Vec::new();
        let ended = changes::until(globals, &scope, Some(self.timeout), |view| {
            if view.get(&NodeDrainKey::new(node))?.is_none() {
                let why = format!("the drain of node {node} was cancelled");
                return Ok(ControlFlow::Break(Err(Failure::new(CONFLICT, why))));
            }
            let now = jobs_on(view, node)?;
            if now.is_empty() {
                return Ok(ControlFlow::Break(Ok(())));
            }
            if now != left {
                eprintln!("{} on {node}: {}", count(&now), shown(&now));
                left = now;
            }
            Ok(ControlFlow::Continue(()))
        });
        match ended.await? {
            Some(done) => done?,
            None => {
                return Err(Failure::unavailable(format!(
                    "time is up: {} on {node}: {}; the drain goes on: ask with metactl node list, take it back with \
                     metactl node drain {node} --cancel",
                    count(&left),
                    shown(&left)
                )));
            }
        }
        self.done(globals, "DRAINED")
    }

    async fn take_back(self, globals: &Globals) -> Done {
        let node = &self.node;
        self.write(globals, |view| {
            let is_known =
                view.get(&NodeKey::new(node))?.is_some() || view.get(&NodeDrainKey::new(node))?.is_some();
            if !is_known {
                return Err(Refusal::not_found(format!("there is no node {node}, and no drain of it")));
            }
            nodes::cancel_drain(view, node)
        })
        .await?;
        self.done(globals, "NOT DRAINED")
    }

    async fn write(
        &self,
        globals: &Globals,
        planner: impl Fn(&View) -> Result<Plan<()>, Refusal> + Send + Sync,
    ) -> Result<(), Failure> {
        let carried = carry_out(&changes::kv(globals)?, &Scope::nodes(), planner).await;
        carried.map(|_| ()).map_err(|failure| Failure::of_plan(failure, "node list"))
    }

    fn done(&self, globals: &Globals, how: &str) -> Done {
        if globals.json() {
            show::json_line(&json!({ "node": self.node, "draining": !self.cancel, "jobs": [] }))?;
        } else {
            println!("{} {how}", self.node);
        }
        Ok(OK)
    }
}

/// Jobs that a node owns.
fn jobs_on(view: &View, node: &str) -> Result<Vec<JobId>, Failure> {
    let owners = view.all::<JobOwnerKey>()?.into_iter();
    Ok(owners.filter(|(_, owner)| owner.node == node).map(|(key, _)| key.job).collect())
}

fn count(jobs: &[JobId]) -> String {
    if jobs.len() == 1 { "1 job is left".to_owned() } else { format!("{} jobs are left", jobs.len()) }
}

/// Most jobs that are named.
const MAX_SHOWN: usize = 5;

fn shown(jobs: &[JobId]) -> String {
    let named: Vec<_> = jobs.iter().take(MAX_SHOWN).map(JobId::to_string).collect();
    named.join(", ") + if jobs.len() > MAX_SHOWN { ", ..." } else { "" }
}
