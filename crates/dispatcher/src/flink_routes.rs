//! Flink's routes: those that are answered here, and those that only a Flink cluster can answer (501). docs/flink-compat.md
//! lists every one of them; a path that is in neither list is Flink's own 404.

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::routing::{MethodFilter, delete, get, on, post};
use flink_rest::RestError;
use flink_rest::path::RawPath;
use http::{Method, StatusCode};

use crate::front::Front;
use crate::request::{check_ids, raw_path};
use crate::{
    checkpoint_handlers, cluster_handlers, jar_handlers, jar_run_handler, job_detail_handlers, job_handlers,
    job_manager_handlers, task_manager_handlers,
};

/// What only a Flink cluster can do.
const NEEDS_FLINK: &[(MethodFilter, &str)] = &[
    (MethodFilter::GET, "/applications/overview"),
    (MethodFilter::GET, "/applications/{applicationid}"),
    (MethodFilter::POST, "/applications/{applicationid}/cancel"),
    (MethodFilter::GET, "/applications/{applicationid}/exceptions"),
    (MethodFilter::GET, "/applications/{applicationid}/jobmanager/config"),
    (MethodFilter::DELETE, "/datasets/{datasetid}"),
    (MethodFilter::GET, "/datasets/delete/{triggerid}"),
    (MethodFilter::POST, "/jars/{jarid}/run-application"),
    (MethodFilter::GET, "/jobmanager/metrics"),
    (MethodFilter::GET, "/jobmanager/profiler"),
    (MethodFilter::POST, "/jobmanager/profiler"),
    (MethodFilter::GET, "/jobmanager/profiler/{filename}"),
    (MethodFilter::GET, "/jobmanager/thread-dump"),
    (MethodFilter::POST, "/jobs"),
    (MethodFilter::GET, "/jobs/metrics"),
    (MethodFilter::POST, "/jobs/{jobid}/checkpoints"),
    (MethodFilter::GET, "/jobs/{jobid}/checkpoints/{triggerid}"),
    (MethodFilter::PATCH, "/jobs/{jobid}/clientHeartbeat"),
    (MethodFilter::POST, "/jobs/{jobid}/coordinators/{operatorid}"),
    (MethodFilter::GET, "/jobs/{jobid}/jobmanager/environment"),
    (MethodFilter::GET, "/jobs/{jobid}/jobmanager/log-url"),
    (MethodFilter::GET, "/jobs/{jobid}/rescales/config"),
    (MethodFilter::GET, "/jobs/{jobid}/rescales/details/{rescaleuuid}"),
    (MethodFilter::GET, "/jobs/{jobid}/rescales/history"),
    (MethodFilter::GET, "/jobs/{jobid}/rescales/overview"),
    (MethodFilter::GET, "/jobs/{jobid}/rescales/summary"),
    (MethodFilter::PATCH, "/jobs/{jobid}/rescaling"),
    (MethodFilter::GET, "/jobs/{jobid}/rescaling/{triggerid}"),
    (MethodFilter::GET, "/jobs/{jobid}/resource-requirements"),
    (MethodFilter::PUT, "/jobs/{jobid}/resource-requirements"),
    (MethodFilter::POST, "/jobs/{jobid}/savepoints"),
    (MethodFilter::GET, "/jobs/{jobid}/savepoints/{triggerid}"),
    (MethodFilter::POST, "/jobs/{jobid}/stop"),
    (MethodFilter::GET, "/jobs/{jobid}/taskmanagers/{taskmanagerid}/log-url"),
    (MethodFilter::POST, "/savepoint-disposal"),
    (MethodFilter::GET, "/savepoint-disposal/{triggerid}"),
    (MethodFilter::GET, "/taskmanagers/metrics"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/log"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/logs"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/logs/{filename}"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/metrics"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/profiler"),
    (MethodFilter::POST, "/taskmanagers/{taskmanagerid}/profiler"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/profiler/{filename}"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/stdout"),
    (MethodFilter::GET, "/taskmanagers/{taskmanagerid}/thread-dump"),
];

/// Paths below a vertex, of which our jobs have none.
const OF_A_VERTEX: [&str; 14] = [
    "accumulators",
    "backpressure",
    "flamegraph",
    "jm-operator-metrics",
    "metrics",
    "subtasks/accumulators",
    "subtasks/metrics",
    "subtasks/{subtaskindex}",
    "subtasks/{subtaskindex}/metrics",
    "subtasks/{subtaskindex}/attempts/{attempt}",
    "subtasks/{subtaskindex}/attempts/{attempt}/accumulators",
    "subtasktimes",
    "taskmanagers",
    "watermarks",
];

/// All of them.
pub fn routes() -> Router<Front> {
    let answered = cluster_routes().merge(job_routes());
    NEEDS_FLINK.iter().fold(answered, |router, (method, path)| router.route(path, on(*method, refuse)))
}

fn cluster_routes() -> Router<Front> {
    Router::new()
        .route("/jars", get(jar_handlers::list))
        .route("/jars/upload", post(jar_handlers::upload))
        .route("/jars/{jarid}", delete(jar_handlers::delete))
        .route("/jars/{jarid}/run", post(jar_run_handler::run))
        .route("/jars/{jarid}/plan", get(jar_handlers::plan).post(jar_handlers::plan))
        .route("/overview", get(cluster_handlers::overview))
        .route("/config", get(cluster_handlers::config))
        .route("/datasets", get(job_manager_handlers::datasets))
        .route("/jobmanager/config", get(job_manager_handlers::config))
        .route("/jobmanager/environment", get(job_manager_handlers::environment))
        .route("/jobmanager/logs", get(job_manager_handlers::logs))
        .route("/jobmanager/logs/{filename}", get(job_manager_handlers::no_log))
        .route("/jobmanager/log", get(job_manager_handlers::no_log))
        .route("/jobmanager/stdout", get(job_manager_handlers::no_log))
        .route("/taskmanagers", get(cluster_handlers::task_managers))
        .route("/taskmanagers/{taskmanagerid}", get(task_manager_handlers::details))
}

fn job_routes() -> Router<Front> {
    let vertex = "/jobs/{jobid}/vertices/{vertexid}";
    let router = OF_A_VERTEX.iter().fold(Router::new(), |router, below| {
        router.route(&format!("{vertex}/{below}"), get(job_detail_handlers::no_vertex))
    });
    router
        .route(vertex, get(job_detail_handlers::no_vertex))
        .route("/jobs", get(job_handlers::list))
        .route("/jobs/overview", get(job_handlers::overview))
        .route("/jobs/{jobid}", get(job_handlers::details).patch(job_handlers::cancel))
        .route("/jobs/{jobid}/status", get(job_handlers::status))
        .route("/jobs/{jobid}/execution-result", get(job_handlers::execution_result))
        .route("/jobs/{jobid}/yarn-cancel", get(job_handlers::cancel))
        .route("/jobs/{jobid}/yarn-stop", get(job_handlers::stop))
        .route("/jobs/{jobid}/accumulators", get(job_detail_handlers::accumulators))
        .route("/jobs/{jobid}/config", get(job_detail_handlers::config))
        .route("/jobs/{jobid}/exceptions", get(job_detail_handlers::exceptions))
        .route("/jobs/{jobid}/jobmanager/config", get(job_detail_handlers::job_manager_config))
        .route("/jobs/{jobid}/metrics", get(job_detail_handlers::metrics))
        .route("/jobs/{jobid}/plan", get(job_detail_handlers::plan))
        .route("/jobs/{jobid}/checkpoints", get(checkpoint_handlers::checkpoints))
        .route("/jobs/{jobid}/checkpoints/config", get(checkpoint_handlers::config))
        .route("/jobs/{jobid}/checkpoints/details/{checkpointid}", get(checkpoint_handlers::details))
        .route(
            "/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}",
            get(checkpoint_handlers::details),
        )
}

async fn refuse(parameters: RawPathParams, request: Request) -> RestError {
    match check_ids(&parameters) {
        Ok(()) => needs_flink(request.method(), &raw_path(&request)),
        Err(error) => error,
    }
}

/// 501 of what only a Flink cluster can do.
pub fn needs_flink(method: &Method, raw: &RawPath) -> RestError {
    let text =
        format!("{method} {} needs a Flink cluster: set engine = flink on the JobMaster processes", raw.0);
    RestError::new(StatusCode::NOT_IMPLEMENTED, text)
}
