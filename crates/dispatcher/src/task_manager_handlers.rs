//! `/taskmanagers/:taskmanagerid`: one of the server nodes that `/taskmanagers` lists, with the jobs that it runs.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::StatusCode;
use records::keys::{JobKey, JobOwnerKey};
use records::{Refusal, Scope, View};
use serde_json::{Map, Value, json};

use crate::api_error::ApiError;
use crate::cluster_handlers::task_manager_of;
use crate::front::Front;
use crate::request::freshness_of;

/// What Flink measures of a JVM. There is none, and each is 0.
const JVM_FIGURES: [&str; 20] = [
    "heapUsed",
    "heapCommitted",
    "heapMax",
    "nonHeapUsed",
    "nonHeapCommitted",
    "nonHeapMax",
    "directCount",
    "directUsed",
    "directMax",
    "mappedCount",
    "mappedUsed",
    "mappedMax",
    "memorySegmentsAvailable",
    "memorySegmentsTotal",
    "nettyShuffleMemorySegmentsAvailable",
    "nettyShuffleMemorySegmentsUsed",
    "nettyShuffleMemorySegmentsTotal",
    "nettyShuffleMemoryAvailable",
    "nettyShuffleMemoryUsed",
    "nettyShuffleMemoryTotal",
];

/// The handler.
pub async fn details(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let view = front.view(Scope::jobs(), freshness_of(&request)?).await?;
    let Some(mut node) = task_manager_of(&view, &id)? else {
        let text = format!("Could not find TaskExecutor {id}.");
        return Err(RestError::handler(StatusCode::NOT_FOUND, text).into());
    };
    let mut metrics: Map<String, Value> =
        JVM_FIGURES.iter().map(|name| ((*name).to_owned(), json!(0))).collect();
    metrics.insert("garbageCollectors".to_owned(), json!([]));
    node["metrics"] = Value::Object(metrics);
    node["allocatedSlots"] = Value::Array(allocated(&view, &id)?);
    Ok(respond::ok(&node))
}

/// The jobs that a node runs, each with the slots it takes as its processor cores.
fn allocated(view: &View, node: &str) -> Result<Vec<Value>, Refusal> {
    let owners = view.all::<JobOwnerKey>()?;
    let of_node = owners.into_iter().filter(|(_, owner)| owner.node == node);
    let jobs = of_node.map(|(key, _)| Ok((key.job.clone(), view.get(&JobKey { job: key.job })?)));
    let jobs: Vec<_> = jobs.collect::<Result<_, Refusal>>()?;
    let slots = jobs.into_iter().filter_map(|(id, job)| {
        let resource = json!({
            "cpuCores": f64::from(job?.spec.parallelism), "taskHeapMemory": 0, "taskOffHeapMemory": 0,
            "managedMemory": 0, "networkMemory": 0, "extendedResources": {},
        });
        Some(json!({ "jobId": id.as_str(), "resource": resource, "assignedTasks": 1 }))
    });
    Ok(slots.collect())
}
