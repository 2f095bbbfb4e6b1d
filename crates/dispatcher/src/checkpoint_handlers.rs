//! `/jobs/:jobid/checkpoints`: a process of ours makes none, so the answers are Flink's for a job without checkpointing.

use axum::extract::{Path, RawPathParams, Request, State};
use axum::response::Response;
use flink_rest::{RestError, checkpoints as answers, respond};
use http::StatusCode;

use crate::api_error::ApiError;
use crate::front::Front;
use crate::job_handlers::job_in_path;
use crate::request::{check_ids, freshness_of};

/// `GET /jobs/:jobid/checkpoints`.
pub async fn checkpoints(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    job_in_path(&front, &id, freshness_of(&request)?).await?;
    Ok(respond::ok(&answers::none()))
}

/// `GET /jobs/:jobid/checkpoints/config`.
pub async fn config(
    State(front): State<Front>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let job = job_in_path(&front, &id, freshness_of(&request)?).await?;
    let text = format!("Checkpointing is not enabled for this job ({}).", job.id);
    Err(RestError::handler(StatusCode::NOT_FOUND, text).into())
}

/// `GET /jobs/:jobid/checkpoints/details/:checkpointid`, and of one vertex of it.
pub async fn details(
    State(front): State<Front>,
    parameters: RawPathParams,
    request: Request,
) -> Result<Response, ApiError> {
    check_ids(&parameters)?;
    let (mut job, mut checkpoint) = (String::new(), String::new());
    for (name, value) in &parameters {
        match name {
            "jobid" => job = value.to_owned(),
            "checkpointid" => checkpoint = value.to_owned(),
            _ => {}
        }
    }
    if checkpoint.parse::<i64>().is_err() {
        return Err(RestError::bad_path_parameter("checkpointid", &checkpoint).into());
    }
    job_in_path(&front, &job, freshness_of(&request)?).await?;
    let text = format!("Could not find checkpointing statistics for checkpoint {checkpoint}.");
    Err(RestError::handler(StatusCode::NOT_FOUND, text).into())
}
