//! `DELETE /run-async/:triggerid`: one transaction makes the tombstone and the wish to cancel; the answer waits for
//! the kill.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::StatusCode;
use records::keys::{RunKey, RunTokenKey};
use records::runs::{Delete, Deleted, delete as plan_delete, is_settled};
use records::{JobId, Scope, TriggerId};
use serde_json::json;
use tokio::time::Instant;

use crate::admission::detached;
use crate::api_error::ApiError;
use crate::front::{Front, now_ms};
use crate::jar_handlers::of_failure;
use crate::limits::CANCEL_WAIT;
use crate::openapi::{Cancelling, Refused};
use crate::request::{known_parameters, query_of};
use crate::run_submission::parse_trigger;
use crate::status_jar_run_async_handler::not_found;
use crate::wait::wait_until;

/// The handler. `timeout_ms` bounds the wait for the kill; past it the answer is 202.
#[utoipa::path(delete, path = "/run-async/{triggerid}", tag = "runs", operation_id = "run_delete",
    params(("triggerid" = String, Path, description = "The trigger id, percent-encoded"),
        ("timeout_ms" = Option<u64>, Query, description = "How long the answer may wait for the kill")),
    responses((status = 200, description = "Deleted, and nothing of its job runs", body = Object),
        (status = 202, description = "Deleted, and its job is still being killed", body = Cancelling),
        (status = 404, description = "There is none", body = Refused)))]
pub async fn delete(
    State(front): State<Front>,
    Path(trigger): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let trigger = parse_trigger(&trigger)?;
    let query = query_of(&request)?;
    known_parameters(&query, &["timeout_ms"])?;
    let wait = match query.non_empty("timeout_ms") {
        None => CANCEL_WAIT,
        Some(text) => match text.parse() {
            Ok(ms) => Duration::from_millis(ms).min(CANCEL_WAIT),
            Err(_) => return Err(RestError::bad_query_parameter("timeout_ms", text).into()),
        },
    };
    let deadline = Instant::now() + wait;
    let (deleting, of) = (front.clone(), trigger.clone());
    let deleted = detached(async move { carry_delete(&deleting, &of).await }).await?;
    let node = &front.options.node_name;
    tracing::info!(%trigger, job = %deleted.job, node, settled = deleted.settled, "run deleted");
    if deleted.settled || killed(&front, &deleted.job, deadline).await? {
        return Ok(respond::empty(StatusCode::OK));
    }
    Ok(respond::json(StatusCode::ACCEPTED, &json!({ "status": "cancelling", "jobid": deleted.job })))
}

async fn carry_delete(front: &Front, trigger: &TriggerId) -> Result<Deleted, ApiError> {
    let view = front.fresh(Scope::run(trigger)).await?;
    let of_run = view.get(&RunKey::new(trigger))?.map(|run| run.value.job);
    let of_token = view.get(&RunTokenKey::new(trigger))?.map(|token| token.value.job);
    let Some(job) = of_run.or(of_token) else {
        return Err(not_found(trigger, "there is no such run").into());
    };
    let wish = Delete {
        trigger: trigger.clone(),
        token_retention: front.retentions.token.lease(&*front.kv).await?,
        job_retention: front.retentions.job.lease(&*front.kv).await?,
        now_ms: now_ms(),
    };
    let scope = Scope::run(trigger).and_job(&job);
    let done = front.carry(&scope, |view| plan_delete(view, &wish)).await;
    let ask = format!("GET /run-async/{}", records::keys::encode_segment(trigger.as_str()));
    Ok(done.map_err(|failure| of_failure(failure, &ask))?.answer)
}

/// Waits until nothing of the job runs: the owner said so, or its lease ran out.
async fn killed(front: &Front, job: &JobId, deadline: Instant) -> Result<bool, ApiError> {
    let settled = wait_until(front, Scope::default().and_job(job), deadline, |view| {
        Ok(is_settled(view, job)?.then_some(()))
    })
    .await?;
    Ok(settled.is_some())
}
