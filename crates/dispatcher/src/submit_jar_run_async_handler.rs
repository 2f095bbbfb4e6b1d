//! `POST /run-async`: answers when the run is stored, not when it has run.

use axum::extract::{Request, State};
use axum::response::Response;
use flink_rest::{answers, respond};

use crate::admission::{admit_run, detached};
use crate::api_error::ApiError;
use crate::front::Front;
use crate::run_submission::Submission;

/// The handler. Once the request was read whole, it is carried out even if the client hangs up.
pub async fn submit(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let submission = Submission::of_run_async(&front.spool, request).await?;
    let accepted = detached(async move { admit_run(&front, submission, false).await }).await?;
    Ok(respond::ok(&answers::trigger_response(accepted.trigger.as_str())))
}
