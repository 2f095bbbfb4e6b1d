//! `POST /run-async`: answers when the run is stored, not when it has run.

use axum::extract::{Request, State};
use axum::response::Response;
use flink_rest::{answers, respond};
use http::{HeaderName, HeaderValue};

use crate::admission::{admit_run, detached};
use crate::api_error::ApiError;
use crate::front::Front;
use crate::openapi::{Refused, RunForm, RunRequest, Triggered};
use crate::run_submission::Submission;

/// Says that an equal request was answered before, and this is its answer.
pub const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The handler. Once the request was read whole, it is carried out even if the client hangs up.
#[utoipa::path(post, path = "/run-async", tag = "runs", operation_id = "run_submit",
    params(("triggerId" = Option<String>, Query, description = "As in the body; every field may stand in the query"),
        ("Idempotency-Key" = Option<String>, Header, description = "The trigger id once more")),
    request_body(content((RunRequest = "application/json"), (RunForm = "multipart/form-data"))),
    responses((status = 200, description = "Stored: it runs whatever happens to this dispatcher", body = Triggered, headers(
            ("idempotency-replayed" = String, description = "`true`: an equal request was stored before"))),
        (status = 403, description = "Runs are turned off here", body = Refused),
        (status = 404, description = "No such JAR or package", body = Refused),
        (status = 409, description = "The trigger id is of another request, or deleted; UNIT_NOT_READY", body = Refused),
        (status = 429, description = "As many runs are in progress as may be; see `Retry-After`", body = Refused),
        (status = 503, description = "No server node is alive, or too many runs are being taken here", body = Refused)))]
pub async fn submit(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let room = front.room_for_a_run()?;
    let submission = Submission::of_run_async(&front.spool, request).await?;
    let accepted = detached(async move {
        let admitted = admit_run(&front, submission, false).await;
        drop(room);
        admitted
    });
    let accepted = accepted.await?;
    let mut response = respond::ok(&answers::trigger_response(accepted.trigger.as_str()));
    if !accepted.admitted.new {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}
