//! `/overview`, `/config`, `/taskmanagers`, `/nodes`: what is alive and how busy it is.

use axum::extract::{Request, State};
use axum::response::Response;
use flink_rest::answers::{Config, Features, Overview};
use flink_rest::respond;
use meta_client::Stored;
use records::jobs::free_slots;
use records::keys::JobKey;
use records::nodes::{is_draining, live};
use records::record::{JobState, Node};
use records::{Refusal, Scope, View};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::{Freshness, Front};
use crate::openapi::Nodes;
use crate::request::freshness_of;

/// Version in the answers that name Flink's: ours, since no Flink runs here.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit in the answers that name Flink's.
pub const COMMIT: &str = "metastore";

struct NodeFacts {
    name: String,
    node: Stored<Node>,
    free: u64,
    draining: bool,
}

impl NodeFacts {
    fn all(view: &View) -> Result<Vec<Self>, Refusal> {
        let slots = free_slots(view, None)?;
        let nodes = live(view)?.into_iter().map(|(of, node)| {
            let draining = is_draining(view, &of.node)?;
            let free = slots.get(&of).map_or(0, |slots| u64::try_from(slots.free).unwrap_or(0));
            Ok(Self { name: of.node, node, free, draining })
        });
        nodes.collect()
    }

    fn slots(&self) -> u64 {
        u64::from(self.node.slots)
    }

    fn to_json(&self) -> Value {
        json!({
            "node": self.name,
            "roles": self.node.roles,
            "alive": true,
            "draining": self.draining,
            "incarnation": self.node.create_revision,
            "rest-address": self.node.rest_address,
            "node-address": self.node.node_address,
            "slots": self.slots(),
            "free-slots": self.free,
            "version": self.node.version,
            "java": self.node.java,
            "single-enable": self.node.single_enable,
            "started-at": self.node.started_at_ms,
        })
    }

    /// A node as a task manager. What only a JVM has is zero.
    fn to_task_manager(&self) -> Value {
        let resource = json!({
            "cpuCores": self.slots() as f64, "taskHeapMemory": 0, "taskOffHeapMemory": 0,
            "managedMemory": 0, "networkMemory": 0, "extendedResources": {},
        });
        let port = self.node.node_address.as_deref().and_then(|a| a.rsplit(':').next()?.parse::<u16>().ok());
        json!({
            "id": self.name,
            "path": self.node.node_address,
            "dataPort": port.unwrap_or_default(),
            "jmxPort": -1,
            "timeSinceLastHeartbeat": self.node.started_at_ms,
            "slotsNumber": self.slots(),
            "freeSlots": self.free,
            "assignedTasks": self.slots().saturating_sub(self.free),
            "totalResource": resource.clone(),
            "freeResource": resource,
            "hardware": { "cpuCores": self.slots(), "physicalMemory": 0, "freeMemory": 0, "managedMemory": 0 },
            "memoryConfiguration": {
                "frameworkHeap": 0, "taskHeap": 0, "frameworkOffHeap": 0, "taskOffHeap": 0, "networkMemory": 0,
                "managedMemory": 0, "jvmMetaspace": 0, "jvmOverhead": 0, "totalFlinkMemory": 0,
                "totalProcessMemory": 0,
            },
        })
    }
}

async fn cluster(front: &Front, freshness: Freshness) -> Result<View, ApiError> {
    Ok(front.view(Scope::jobs(), freshness).await?)
}

/// `GET /overview`.
pub async fn overview(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let view = cluster(&front, freshness_of(&request)?).await?;
    let servers: Vec<_> = NodeFacts::all(&view)?.into_iter().filter(|n| n.node.is_server()).collect();
    let jobs = view.all::<JobKey>()?;
    let count = |wanted: fn(JobState) -> bool| jobs.iter().filter(|(_, job)| wanted(job.state)).count();
    Ok(respond::ok(&Overview {
        taskmanagers: servers.len(),
        slots_total: servers.iter().map(NodeFacts::slots).sum(),
        slots_available: servers.iter().map(|node| node.free).sum(),
        jobs_running: count(|state| !state.is_terminal()),
        jobs_finished: count(|state| state == JobState::Finished),
        jobs_cancelled: count(|state| state == JobState::Canceled),
        jobs_failed: count(|state| state == JobState::Failed),
        flink_version: VERSION.to_owned(),
        flink_commit: COMMIT.to_owned(),
    }))
}

/// `GET /config`.
pub async fn config(State(front): State<Front>) -> Response {
    respond::ok(&Config {
        refresh_interval: 3_000,
        timezone_name: "Coordinated Universal Time",
        timezone_offset: 0,
        flink_version: VERSION.to_owned(),
        flink_revision: COMMIT.to_owned(),
        features: Features {
            web_submit: front.options.web_submit,
            web_cancel: true,
            web_rescale: false,
            web_history: false,
        },
    })
}

/// `GET /taskmanagers`: the server nodes.
pub async fn task_managers(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let view = cluster(&front, freshness_of(&request)?).await?;
    let servers = NodeFacts::all(&view)?.into_iter().filter(|node| node.node.is_server());
    let servers: Vec<Value> = servers.map(|node| node.to_task_manager()).collect();
    Ok(respond::ok(&json!({ "taskmanagers": servers })))
}

/// `GET /nodes`: every live process of ours that is not a replica.
#[utoipa::path(get, path = "/nodes", tag = "nodes", operation_id = "nodes", params(("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "What is alive", body = Nodes)))]
pub async fn nodes(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let view = cluster(&front, freshness_of(&request)?).await?;
    let nodes: Vec<Value> = NodeFacts::all(&view)?.iter().map(NodeFacts::to_json).collect();
    Ok(respond::ok(&json!({ "nodes": nodes })))
}

/// A live server node as `/taskmanagers` lists it. Scope: jobs.
pub(crate) fn task_manager_of(view: &View, id: &str) -> Result<Option<Value>, Refusal> {
    let node = NodeFacts::all(view)?.into_iter().find(|node| node.name == id && node.node.is_server());
    Ok(node.map(|node| node.to_task_manager()))
}
