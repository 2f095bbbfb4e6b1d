//! `GET /run-async/:triggerid`: Flink's asynchronous result, and what we know beyond it under `run`.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::answers::{QueueStatus, failure_cause};
use flink_rest::query::Query;
use flink_rest::{RestError, respond};
use http::StatusCode;
use meta_client::Stored;
use meta_types::Revision;
use records::jobs::{JobView, job as job_view, lost_host};
use records::keys::{RunKey, RunOwnerKey, RunTokenKey};
use records::record::{Phase, Run, RunOwner, RunResult, RunToken, TokenEnd};
use records::runs::shown_phase;
use records::time::rfc3339;
use records::{Refusal, Scope, TriggerId, View};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::front::{Freshness, Front};
use crate::openapi::{Refused, RunGone, RunStatus};
use crate::request::{flag_of, known_parameters, query_of, revision_of, wait_of};
use crate::run_submission::parse_trigger;
use crate::wait::wait_until;

/// The handler.
#[utoipa::path(get, path = "/run-async/{triggerid}", tag = "runs", operation_id = "run_status",
    params(("triggerid" = String, Path, description = "The trigger id, percent-encoded"),
        ("wait" = Option<String>, Query, description = "Answer when the run is completed, at the latest after so long: `30s`, `500ms`; at most 5 minutes"),
        ("revision" = Option<i64>, Query, description = "With `wait`: answer already when the run or its job changed behind this revision, which the last answer had in `run`"),
        ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "How far it is", body = RunStatus),
        (status = 404, description = "There is none, or it was deleted", body = Refused),
        (status = 410, description = "It was completed, and its details are gone; its outcome is not", body = RunGone)))]
pub async fn status(
    State(front): State<Front>,
    Path(trigger): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let trigger = parse_trigger(&trigger)?;
    let query = query_of(&request)?;
    known_parameters(&query, &["revision", "stale", "wait"])?;
    flag_of(&query, "stale")?;
    let freshness = Freshness::of(&query);
    let wait = Wait::of(&query)?;
    let view = front.view(Scope::run(&trigger), freshness).await?;
    let Some(run) = view.get(&RunKey::new(&trigger))? else {
        return answer(&view, &trigger, None);
    };
    // The job id never changes once a run is admitted, so the job can be read in a second step.
    let scope = Scope::run(&trigger).and_job(&run.job);
    let view = match wait {
        None => front.view(scope, freshness).await?,
        Some(wait) => wait.until_due(&front, scope, &trigger).await?,
    };
    let waits = match job_view(&view, &run.job)?.filter(|job| job.is_kept) {
        Some(job) => lost_host(&front.view(Scope::nodes(), freshness).await?, &job)?,
        None => None,
    };
    answer(&view, &trigger, waits)
}

/// What the view says of the run: its record, or what is left of it. `waits`: for a host that is away.
fn answer(view: &View, trigger: &TriggerId, waits: Option<String>) -> Result<Response, ApiError> {
    let Some(run) = view.get(&RunKey::new(trigger))? else {
        return of_token(trigger, view.get(&RunTokenKey::new(trigger))?.as_deref());
    };
    let facts = RunFacts {
        run: &run,
        owner: view.get(&RunOwnerKey::new(trigger))?,
        job: job_view(view, &run.job)?,
        waits,
        revision: view.revision(),
    };
    Ok(respond::ok(&facts.to_json()))
}

/// A wish to be answered later.
struct Wait {
    until: Instant,
    /// The caller knows everything up to here.
    behind: Option<Revision>,
}

impl Wait {
    fn of(query: &Query) -> Result<Option<Self>, RestError> {
        let behind = revision_of(query)?;
        match (wait_of(query)?, behind) {
            (Some(wait), behind) => Ok(Some(Self { until: Instant::now() + wait, behind })),
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let text = "revision: says what the caller knows, and needs wait=DURATION, such as wait=30s";
                Err(RestError::new(StatusCode::BAD_REQUEST, text))
            }
        }
    }

    async fn until_due(&self, front: &Front, scope: Scope, trigger: &TriggerId) -> Result<View, ApiError> {
        let due = wait_until(front, scope.clone(), self.until, |view| {
            Ok(self.is_due(view, trigger)?.then(|| view.clone()))
        });
        match due.await? {
            Some(view) => Ok(view),
            None => Ok(front.fresh(scope).await?),
        }
    }

    fn is_due(&self, view: &View, trigger: &TriggerId) -> Result<bool, Refusal> {
        let Some(run) = view.get(&RunKey::new(trigger))? else { return Ok(true) };
        Ok(match self.behind {
            None => run.phase == Phase::Completed,
            Some(known) => view.snapshot().iter().any(|kv| kv.mod_revision > known),
        })
    }
}

/// IN_PROGRESS until there is a result.
pub fn queue_status(run: &Run) -> QueueStatus {
    if run.phase == Phase::Completed { QueueStatus::Completed } else { QueueStatus::InProgress }
}

struct RunFacts<'a> {
    run: &'a Stored<Run>,
    owner: Option<Stored<RunOwner>>,
    job: Option<JobView>,
    waits: Option<String>,
    revision: Revision,
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
            _ if self.waits.is_some() => self.waits.clone(),
            _ if run.phase == Phase::Completed => None,
            Some(job) => job.job.waiting.clone(),
            None => run.waiting.clone(),
        };
        json!({
            "phase": shown_phase(run, job.map(|job| &job.job.value)),
            "jobid": run.job,
            "revision": self.revision,
            "program": run.program.unit.to_string(),
            "packages": run.class_path.iter().map(|package| package.unit.to_string()).collect::<Vec<_>>(),
            "owner": self.owner.as_ref().map(|owner| &owner.node),
            "job-state": job.map(|job| job.state().as_str()),
            "job-node": job.and_then(|job| job.owner.as_ref()).map(|owner| &owner.node),
            "job-epoch": job.and_then(|job| job.epoch),
            "attempts": attempts,
            "waiting": waiting,
            "accepted-at": run.accepted_at_ms,
            "accepted-by": (!run.accepted_by.is_empty()).then_some(&run.accepted_by),
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
        Some((token, TokenEnd::Deleted)) => {
            Err(not_found(trigger, &format!("it was deleted at {}", rfc3339(token.ended_at_ms))).into())
        }
        Some((token, TokenEnd::Completed(result))) => Ok(gone(trigger, token, result)),
    }
}

/// 410 of a run whose details are gone: how it ended, and when.
fn gone(trigger: &TriggerId, token: &RunToken, result: &RunResult) -> Response {
    let outcome = match result {
        RunResult::Jobid(job) => format!("job {job} was created"),
        RunResult::FailureCause(cause) => {
            let why = cause.stack_trace.lines().next().map(|line| format!(": {line}")).unwrap_or_default();
            format!("no job was created: {}{why}", cause.class)
        }
    };
    let at = rfc3339(token.ended_at_ms);
    let text =
        format!("run \"{trigger}\" was completed at {at}: {outcome}; its details are gone (run.retention)");
    let body = json!({
        "errors": [text],
        "status": QueueStatus::Completed.to_json(),
        "operation": operation(Some(result)),
        "run": { "phase": Phase::Completed, "jobid": token.job, "completed-at": token.ended_at_ms },
    });
    respond::json(StatusCode::GONE, &body)
}

/// 404 of a run.
pub fn not_found(trigger: &TriggerId, why: &str) -> RestError {
    RestError::new(StatusCode::NOT_FOUND, format!("run \"{trigger}\": {why}"))
}
