//! `/jobs/:jobid/attempts/:n/{stdout,stderr}`: output lies on the node that ran the attempt and is passed on from it.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::RestError;
use http::StatusCode;
use records::keys::{JobKey, NodeKey};
use records::record::{Attempt, Job, NodeRef};
use records::{JobId, Scope, View};

use crate::api_error::ApiError;
use crate::front::Front;
use crate::openapi::Refused;
use crate::request::job_id_in_path;

/// The handler. `n` is an attempt's number or `latest`; the query (offset, limit) is passed on.
#[utoipa::path(get, path = "/jobs/{jobid}/attempts/{attempt}/{stream}", tag = "runs", operation_id = "job_output",
    params(("jobid" = String, Path, description = "32 hex digits"),
        ("attempt" = String, Path, description = "Its number, or `latest`"),
        ("stream" = String, Path, description = "`stdout` or `stderr`"),
        ("offset" = Option<i64>, Query, description = "First byte; negative: so many from the end"),
        ("limit" = Option<u64>, Query, description = "Most bytes")),
    responses((status = 200, description = "Output as it was written", content_type = "text/plain", body = String, headers(
            ("x-log-offset" = u64, description = "Where the answer begins: later than asked for if that part is gone"),
            ("x-log-size" = u64, description = "How long the stream is by now"))),
        (status = 404, description = "No such job or attempt", body = Refused),
        (status = 503, description = "Its node is not alive", body = Refused)))]
pub async fn output(
    State(front): State<Front>,
    Path((id, attempt, stream)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = job_id_in_path(&id)?;
    if stream != "stdout" && stream != "stderr" {
        let text = format!("\"{stream}\" is no output; ask for stdout or stderr");
        return Err(RestError::new(StatusCode::NOT_FOUND, text).into());
    }
    let key = JobKey::new(&id);
    let view = front.fresh(Scope::nodes().and_key(&key)).await?;
    let job = view.get(&key)?.ok_or_else(|| RestError::not_found(format!("Job {id} not found")))?;
    let attempt = find_attempt(&id, &job, &attempt)?;
    let address = address_of(&view, &attempt.owner)?;
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("/jobs/{id}/attempts/{}/{stream}{query}", attempt.number);
    Ok(front.nodes.pass_get(&address, &path).await.map_err(RestError::from)?)
}

fn find_attempt<'a>(id: &JobId, job: &'a Job, wanted: &str) -> Result<&'a Attempt, RestError> {
    let found = match wanted {
        "latest" => job.attempts.last(),
        number => {
            let number: u32 = number.parse().map_err(|_| RestError::bad_path_parameter("attempt", number))?;
            job.attempts.iter().find(|attempt| attempt.number == number)
        }
    };
    found.ok_or_else(|| {
        let waiting = job.waiting.as_deref().map(|why| format!("; it waits: {why}")).unwrap_or_default();
        let known: Vec<String> = job.attempts.iter().map(|attempt| attempt.number.to_string()).collect();
        let known = if known.is_empty() {
            "it was not started yet".to_owned()
        } else {
            format!("known: {}", known.join(", "))
        };
        RestError::new(StatusCode::NOT_FOUND, format!("job {id} has no attempt {wanted}: {known}{waiting}"))
    })
}

/// Where a node is reached now. A restarted node still has the output of its earlier attempts.
fn address_of(view: &View, owner: &NodeRef) -> Result<String, ApiError> {
    let node = view.get(&NodeKey { node: owner.node.clone() })?;
    let address = node.and_then(|node| node.value.node_address);
    address.ok_or_else(|| {
        let text =
            format!("the output is on node {}, which is not alive; start it again to read it", owner.node);
        RestError::new(StatusCode::SERVICE_UNAVAILABLE, text).into()
    })
}
