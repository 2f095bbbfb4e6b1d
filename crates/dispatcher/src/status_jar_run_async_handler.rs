//! `GET /run-async/:triggerid`: Flink's asynchronous result, and what we know beyond it under `run`.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::answers::{QueueStatus, failure_cause};
use flink_rest::{RestError, respond};
use http::StatusCode;
use meta_client::Stored;
use records::jobs::{JobView, job as job_view};
use records::keys::{RunKey, RunOwnerKey, RunTokenKey};
use records::record::{Phase, Run, RunOwner, RunResult, RunToken, TokenEnd};
use records::{Scope, TriggerId};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::{Freshness, Front};
use crate::openapi::{Refused, RunStatus};
use crate::request::query_of;
use crate::run_submission::parse_trigger;

/// The handler.
#[utoipa::path(get, path = "/run-async/{triggerid}", tag = "runs", operation_id = "run_status",
    params(("triggerid" = String, Path, description = "The trigger id, percent-encoded"), ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "How far it is", body = RunStatus),
        (status = 404, description = "There is none, or it was deleted", body = Refused)))]
pub async fn status(
    State(front): State<Front>,
    Path(trigger): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let trigger = parse_trigger(&trigger)?;
    let freshness = Freshness::of(&query_of(&request)?);
    let view = front.view(Scope::run(&trigger), freshness).await?;
    let Some(run) = view.get(&RunKey::new(&trigger))? else {
        return of_token(&trigger, view.get(&RunTokenKey::new(&trigger))?.as_deref());
    };
    // The job id never changes once a run is admitted, so a second read adds to the first and contradicts nothing.
    let jobs = front.view(Scope::default().and_job(&run.job), freshness).await?;
    let facts = RunFacts {
        run: &run,
        owner: view.get(&RunOwnerKey::new(&trigger))?,
        job: job_view(&jobs, &run.job)?,
    };
    Ok(respond::ok(&facts.to_json()))
}

/// IN_PROGRESS until there is a result.
pub fn queue_status(run: &Run) -> QueueStatus {
    if run.phase == Phase::Completed { QueueStatus::Completed } else { QueueStatus::InProgress }
}

struct RunFacts<'a> {
    run: &'a Stored<Run>,
    owner: Option<Stored<RunOwner>>,
    job: Option<JobView>,
}

impl RunFacts<'_> {
    fn to_json(&self) -> Value {
        json!({
            "status": queue_status(self.run).to_json(),
            "operation": operation(self.run.result.as_ref()),
            "run": self.extras(),
        })
    }

    fn extras(&self) -> Value {
        let run = self.run;
        let job = self.job.as_ref();
        let attempts = job.map_or(run.attempts, |job| job.job.attempt);
        let waiting = match job {
            _ if run.phase == Phase::Completed => None,
            Some(job) => job.job.waiting.clone(),
            None => run.waiting.clone(),
        };
        json!({
            "phase": run.phase,
            "jobid": run.job,
            "program": run.program.unit.to_string(),
            "packages": run.class_path.iter().map(|package| package.unit.to_string()).collect::<Vec<_>>(),
            "owner": self.owner.as_ref().map(|owner| &owner.node),
            "job-state": job.map(|job| job.state().as_str()),
            "job-node": job.and_then(|job| job.owner.as_ref()).map(|owner| &owner.node),
            "job-epoch": job.and_then(|job| job.epoch),
            "attempts": attempts,
            "waiting": waiting,
            "accepted-at": run.accepted_at_ms,
            "completed-at": run.completed_at_ms,
            "output": output(run, attempts),
        })
    }
}

/// Where the output of the last attempt is read.
fn output(run: &Run, attempts: u32) -> Value {
    if attempts == 0 {
        return Value::Null;
    }
    let at = |stream: &str| format!("/jobs/{}/attempts/{attempts}/{stream}", run.job);
    json!({ "stdout": at("stdout"), "stderr": at("stderr") })
}

fn operation(result: Option<&RunResult>) -> Value {
    match result {
        None => Value::Null,
        Some(RunResult::Jobid(job)) => json!({ "jobid": job }),
        Some(RunResult::FailureCause(cause)) => failure_cause(&cause.class, &cause.stack_trace),
    }
}

/// The record is gone; its token may still know the end.
fn of_token(trigger: &TriggerId, token: Option<&RunToken>) -> Result<Response, ApiError> {
    match token.map(|token| (token, &token.end)) {
        None => Err(not_found(trigger, "there is no such run").into()),
        Some((_, TokenEnd::Deleted)) => Err(not_found(trigger, "it was deleted").into()),
        Some((token, TokenEnd::Completed(result))) => Ok(respond::ok(&json!({
            "status": QueueStatus::Completed.to_json(),
            "operation": operation(Some(result)),
            "run": { "phase": Phase::Completed, "jobid": token.job, "completed-at": token.ended_at_ms },
        }))),
    }
}

/// 404 of a run.
pub fn not_found(trigger: &TriggerId, why: &str) -> RestError {
    RestError::new(StatusCode::NOT_FOUND, format!("run \"{trigger}\": {why}"))
}
