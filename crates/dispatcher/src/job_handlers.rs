//! `/jobs`: list, overview, details, status, cancel. Flink's answers from our records.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::answers::JobFacts;
use flink_rest::{RestError, respond};
use http::StatusCode;
use records::jobs::{Cancel, JobView, cancel_by_force, job as job_view, jobs as job_views, request_cancel};
use records::record::{Job, JobState};
use records::{Class, Failure, JobId, Scope};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::{Freshness, Front, now_ms};
use crate::jar_handlers::of_failure;
use crate::request::{flag_of, freshness_of, job_id_in_path, query_of};

/// What Flink's answers are made of.
pub fn facts(view: &JobView) -> JobFacts {
    let job: &Job = &view.job;
    let state = view.state();
    let mut timestamps = vec![("INITIALIZING".to_owned(), job.admitted_at_ms)];
    if let Some(created) = job.created_at_ms {
        timestamps.push(("CREATED".to_owned(), created));
        timestamps.push(("RUNNING".to_owned(), created));
    }
    if let (true, Some(ended)) = (state.is_terminal(), job.ended_at_ms) {
        timestamps.push((state.as_str().to_owned(), ended));
    }
    let started = job.attempts.last().map(|attempt| attempt.started_at_ms);
    JobFacts {
        id: view.id.as_str().to_owned(),
        name: job.spec.name.clone(),
        state: state.as_str().to_owned(),
        start_ms: job.admitted_at_ms,
        end_ms: job.ended_at_ms,
        modified_ms: job.ended_at_ms.or(job.created_at_ms).or(started).unwrap_or(job.admitted_at_ms),
        timestamps,
        parallelism: job.spec.parallelism,
    }
}

/// Jobs newest first, as Flink lists them.
async fn all_jobs(front: &Front, freshness: Freshness) -> Result<Vec<JobView>, ApiError> {
    let mut jobs = job_views(&front.view(Scope::jobs(), freshness).await?)?;
    jobs.reverse();
    Ok(jobs)
}

/// `GET /jobs`.
pub async fn list(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let jobs = all_jobs(&front, freshness_of(&request)?).await?;
    let jobs: Vec<Value> = jobs.iter().map(|job| facts(job).id_with_status()).collect();
    Ok(respond::ok(&json!({ "jobs": jobs })))
}

/// `GET /jobs/overview`.
pub async fn overview(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let jobs = all_jobs(&front, freshness_of(&request)?).await?;
    let now = now_ms();
    let jobs: Vec<Value> = jobs.iter().map(|job| facts(job).overview(now)).collect();
    Ok(respond::ok(&json!({ "jobs": jobs })))
}

/// The job that a path names, or Flink's refusal.
pub(crate) async fn job_in_path(front: &Front, id: &str, freshness: Freshness) -> Result<JobView, ApiError> {
    one_job(front, &job_id_in_path(id)?, freshness).await
}

async fn one_job(front: &Front, id: &JobId, freshness: Freshness) -> Result<JobView, ApiError> {
    let view = front.view(Scope::default().and_job(id), freshness).await?;
    Ok(job_view(&view, id)?.ok_or_else(|| job_not_found(id))?)
}

fn job_not_found(id: &JobId) -> RestError {
    RestError::not_found(format!("Job {id} not found"))
}

/// `GET /jobs/:jobid`.
pub async fn details(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    Ok(respond::ok(&facts(&job).details(now_ms())))
}

/// `GET /jobs/:jobid/status`. Flink answers 500 for an unknown job here; 404 is right, and its clients take both.
pub async fn status(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    Ok(respond::ok(&json!({ "status": job.state().as_str() })))
}

/// `GET /jobs/:jobid/execution-result`, which `bin/flink` polls.
pub async fn execution_result(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = job_id_in_path(&id)?;
    let job = one_job(&front, &id, freshness_of(&request)?).await?;
    let job = &job.job;
    let outcome = match job.state {
        JobState::Finished => "SUCCEEDED",
        JobState::Failed => "FAILED",
        JobState::Canceled => "CANCELED",
        _ => return Ok(respond::ok(&json!({ "status": { "id": "IN_PROGRESS" } }))),
    };
    let ended = job.ended_at_ms.unwrap_or(job.admitted_at_ms);
    let mut result = json!({
        "id": id.as_str(),
        "name": job.spec.name,
        "application-status": outcome,
        "accumulator-results": {},
        "net-runtime": ended.saturating_sub(job.admitted_at_ms),
        "start-time": job.admitted_at_ms,
        "end-time": ended,
    });
    if let (JobState::Failed, Some(exit)) = (job.state, &job.exit) {
        let class = exit.class.as_deref().unwrap_or("MAIN_FAILED");
        result["failure-cause"] = json!({ "class": class, "stack-trace": exit.text });
    }
    Ok(respond::ok(&json!({ "status": { "id": "COMPLETED" }, "job-execution-result": result })))
}

/// `PATCH /jobs/:jobid?mode=cancel` and `GET /jobs/:jobid/yarn-cancel`, for clients that can only GET: 202 once the
/// wish is stored; the owner kills the job. With `force=true` a job that waits for a host that is away is over at once.
pub async fn cancel(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = job_id_in_path(&id)?;
    let query = query_of(&request)?;
    check_mode(query.non_empty("mode").unwrap_or("cancel"))?;
    cancel_job(&front, &id, flag_of(&query, "force")?).await?;
    Ok(respond::empty(StatusCode::ACCEPTED))
}

/// `GET /jobs/:jobid/yarn-stop`: the same, and to stop is the default, which Flink has taken away.
pub async fn stop(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = job_id_in_path(&id)?;
    check_mode(query_of(&request)?.non_empty("mode").unwrap_or("stop"))?;
    cancel_job(&front, &id, false).await?;
    Ok(respond::empty(StatusCode::ACCEPTED))
}

fn check_mode(mode: &str) -> Result<(), RestError> {
    match mode {
        "cancel" => Ok(()),
        "stop" => {
            let text = "The termination mode \"stop\" has been removed; use mode=cancel.";
            Err(RestError::handler(StatusCode::PERMANENT_REDIRECT, text))
        }
        other => Err(RestError::bad_query_parameter("mode", other)),
    }
}

/// `force`: without waiting for a host that is away ([`cancel_by_force`]).
async fn cancel_job(front: &Front, id: &JobId, force: bool) -> Result<(), ApiError> {
    let wish = Cancel {
        job: id.clone(),
        reason: "cancelled by a user".to_owned(),
        retention: front.retentions.job.lease(&*front.kv).await?,
        now_ms: now_ms(),
    };
    let scope = Scope::default().and_job(id).and_nodes();
    let planner = if force { cancel_by_force } else { request_cancel };
    match front.carry(&scope, |view| planner(view, &wish)).await {
        Ok(_) => Ok(()),
        Err(Failure::Refused(refusal)) if refusal.class == Class::NotFound => {
            Err(RestError::handler(StatusCode::NOT_FOUND, "Job could not be found.").into())
        }
        Err(Failure::Refused(refusal)) if refusal.class == Class::WrongState => {
            let text = "Job cancellation failed because the job has already reached another terminal state";
            Err(RestError::handler(StatusCode::CONFLICT, format!("{text}: {refusal}.")).into())
        }
        Err(failure) => Err(of_failure(failure, &format!("GET /jobs/{id}/status"))),
    }
}
