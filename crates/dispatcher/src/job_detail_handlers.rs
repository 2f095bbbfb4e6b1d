//! `/jobs/:jobid/{exceptions,config,plan,metrics,accumulators,...}`: the rest of what Flink says about a job, as far as a
//! record of a process can tell it.

use axum::extract::{Path, RawPathParams, Request, State};
use axum::response::Response;
use flink_rest::exceptions::{DEFAULT_EXCEPTIONS, JobFailure, JobFailures};
use flink_rest::{RestError, respond, sensitive};
use records::jobs::{JobView, ON_LOST_STORE};
use records::record::{Exit, Job, JobState, RestartStrategy};
use serde_json::{Map, Value, json};

use crate::api_error::ApiError;
use crate::front::{Front, now_ms};
use crate::job_handlers::{facts, job_in_path};
use crate::request::{check_ids, freshness_of, query_of};

/// `GET /jobs/:jobid/exceptions`.
pub async fn exceptions(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query_of(&request)?;
    let most = match query.non_empty("maxExceptions") {
        None => DEFAULT_EXCEPTIONS,
        Some(text) => text.parse().map_err(|_| RestError::bad_query_parameter("maxExceptions", text))?,
    };
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    // No failure of ours has a label.
    let failures = match query.non_empty("failureLabelFilter") {
        Some(_) => JobFailures::default(),
        None => failures(&job.job),
    };
    Ok(respond::ok(&failures.to_json(most)))
}

/// The failure that ended the job, and the last of those that it was started again after.
fn failures(job: &Job) -> JobFailures {
    let failed = job.state == JobState::Failed;
    let last = job.attempts.last();
    let node = last.map(|attempt| attempt.owner.node.clone());
    let ended = job.exit.as_ref().filter(|_| failed).map(|exit| {
        let at_ms = job.ended_at_ms.unwrap_or(job.admitted_at_ms);
        JobFailure { node: node.clone(), ..failure(exit, at_ms) }
    });
    let restarted = job.last_failure.as_ref().map(|exit| {
        // Nobody wrote when that was. The newest attempt's start is near it.
        failure(exit, last.map_or(job.admitted_at_ms, |attempt| attempt.started_at_ms))
    });
    let more = job.failures > 1;
    JobFailures { known: ended.into_iter().chain(restarted).collect(), more }
}

fn failure(exit: &Exit, at_ms: u64) -> JobFailure {
    let class = exit.class.clone().unwrap_or_else(|| "MAIN_FAILED".to_owned());
    let text = if exit.text.is_empty() { class.clone() } else { exit.text.clone() };
    JobFailure { class, text, at_ms, node: None }
}

/// `GET /jobs/:jobid/config`.
pub async fn config(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    let spec = &job.job.spec;
    let stated = spec.configuration.iter();
    let stated: Map<String, Value> =
        stated.map(|(key, value)| (key.clone(), json!(sensitive::shown(key, value)))).collect();
    Ok(respond::ok(&json!({
        "jid": job.id.as_str(),
        "name": spec.name,
        "execution-config": {
            "restart-strategy": in_words(&spec.restart),
            "job-parallelism": spec.parallelism,
            "object-reuse-mode": false,
            "user-config": stated,
        },
    })))
}

fn in_words(strategy: &RestartStrategy) -> String {
    match strategy {
        RestartStrategy::None => "Restart deactivated.".to_owned(),
        RestartStrategy::OnContainerLoss => "Restart after the loss of a container only.".to_owned(),
        RestartStrategy::FixedDelay { attempts, delay_ms } => {
            format!("Restart with fixed delay ({delay_ms} ms). #{attempts} restart attempts.")
        }
        RestartStrategy::ExponentialDelay(backoff) => format!(
            "Restart with exponential delay (from {} ms to {} ms). {} restart attempts in a row.",
            backoff.initial_ms,
            backoff.max_ms,
            backoff.attempts.map_or_else(|| "Any number of".to_owned(), |attempts| format!("#{attempts}"))
        ),
    }
}

/// `GET /jobs/:jobid/jobmanager/config`: what was stated for this job, and what became of what was not.
pub async fn job_manager_config(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    let spec = &job.job.spec;
    let mut settings = spec.configuration.clone();
    settings.insert("parallelism.default".to_owned(), spec.parallelism.to_string());
    settings.insert("restart-strategy.type".to_owned(), spec.restart.as_str().to_owned());
    settings.insert(ON_LOST_STORE.to_owned(), spec.on_lost_store.as_str().to_owned());
    let settings = settings.iter().map(|(key, value)| (key.as_str(), sensitive::shown(key, value)));
    Ok(respond::ok(&pairs(settings)))
}

/// Settings as Flink lists them.
pub fn pairs<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    settings.map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

/// `GET /jobs/:jobid/plan`.
pub async fn plan(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    Ok(respond::ok(&json!({ "plan": facts(&job).plan() })))
}

/// `GET /jobs/:jobid/metrics`: their names, or with `get` the values of some. Names that we do not have are left out, as
/// by Flink.
pub async fn metrics(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query_of(&request)?;
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    let known = figures(&job, now_ms());
    let answer: Value = match query.non_empty("get") {
        None => known.iter().map(|(name, _)| json!({ "id": name })).collect(),
        Some(wanted) => {
            let wanted = wanted.split(',').filter_map(|name| known.iter().find(|(known, _)| *known == name));
            wanted.map(|(name, value)| json!({ "id": name, "value": value.to_string() })).collect()
        }
    };
    Ok(respond::ok(&answer))
}

/// Those of Flink's figures of a job that its record tells.
fn figures(view: &JobView, now_ms: u64) -> [(&'static str, i64); 2] {
    let job = &view.job;
    let since = job.attempts.last().map(|attempt| attempt.started_at_ms).max(job.created_at_ms);
    let uptime = match (view.state(), since) {
        (state, _) if state.is_terminal() => -1,
        (JobState::Running, Some(since)) => i64::try_from(now_ms.saturating_sub(since)).unwrap_or(i64::MAX),
        _ => 0,
    };
    [("numRestarts", i64::from(job.main_starts().saturating_sub(1))), ("uptime", uptime)]
}

/// `GET /jobs/:jobid/accumulators`: a process of ours has no way to have any.
pub async fn accumulators(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    job_in_path(&front, &id, freshness_of(&request)?).await?;
    Ok(respond::ok(&json!({
        "job-accumulators": [],
        "user-task-accumulators": [],
        "serialized-user-task-accumulators": {},
    })))
}

/// `GET /jobs/:jobid/vertices/:vertexid` and what is below: the job is a process and has no vertices.
pub async fn no_vertex(
    State(front): State<Front>,
    parameters: RawPathParams,
    request: Request,
) -> Result<Response, ApiError> {
    check_ids(&parameters)?;
    let of = |wanted: &str| {
        let found = parameters.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let (job, vertex) = (of("jobid"), of("vertexid"));
    job_in_path(&front, &job, freshness_of(&request)?).await?;
    Err(RestError::not_found(format!("JobVertex {vertex} not found")).into())
}
