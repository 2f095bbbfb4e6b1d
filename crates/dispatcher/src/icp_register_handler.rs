//! `POST /icp/{name}/{version}/register`: what lies on the nodes already becomes a package. Goes to a random live node,
//! which coordinates; its answer, with the rows of who is to blame, is passed on.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::StatusCode;
use records::UnitId;
use records::keys::encode_segment;

use crate::api_error::{self, ApiError};
use crate::front::Front;
use crate::limits::DEPLOY_DEADLINE;
use crate::node_client::NodeError;
use crate::openapi::{Refused, Registered, UnitPath};
use crate::request::query_of;
use crate::request::unknown_parameter;

/// Parameters that are passed on to the coordinator.
const PARAMETERS: &[&str] = &["nodes", "from", "expect", "timeout_ms"];
/// What a coordinator needs beyond the time it may take: the undoing.
const UNDOING: Duration = Duration::from_secs(10);

/// The handler.
#[utoipa::path(post, path = "/icp/{name}/{version}/register", tag = "packages", operation_id = "icp_register",
    params(UnitPath,
        ("nodes" = Option<String>, Query, description = "`all` (default: every live server node), or names parted by commas"),
        ("from" = Option<String>, Query, description = "An allowed directory on each node; else the package's place"),
        ("expect" = Option<String>, Query, description = "Digest of the list that the files must have"),
        ("timeout_ms" = Option<u64>, Query, description = "How long it may take; 5 minutes by default")),
    responses((status = 200, description = "READY", body = Registered),
        (status = 404, description = "CONTENT_MISSING: no node has a file", body = Refused),
        (status = 409, description = "NOT_EQUAL, with rows; EXISTS, IN_PROGRESS, REMOVING", body = Refused)))]
pub async fn register(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let unit = UnitId::new(&name, &version)?;
    let query = query_of(&request)?;
    let mut passed = Vec::new();
    let mut within = DEPLOY_DEADLINE;
    for (parameter, value) in query.iter() {
        if !PARAMETERS.contains(&parameter) {
            return Err(unknown_parameter(parameter, PARAMETERS).into());
        }
        if parameter == "timeout_ms" {
            let wrong = || {
                let text = format!("timeout_ms: expected milliseconds, found \"{value}\"");
                RestError::new(StatusCode::BAD_REQUEST, text)
            };
            within = Duration::from_millis(value.parse().map_err(|_| wrong())?);
        }
        passed.push(format!("{parameter}={}", encode_segment(value)));
    }
    let passed = passed.join("&");
    let mut last = api_error::no_server_node();
    for (_, node) in front.live_servers().await? {
        let Some(address) = node.value.node_address else { continue };
        match front.nodes.post_register(&address, &unit, &passed, within.saturating_add(UNDOING)).await {
            Ok(answer) => return Ok(respond::json(answer.status, &answer.body)),
            // Nothing was begun there.
            Err(error @ NodeError::NotReached { .. }) => last = error.into(),
            Err(error @ NodeError::Lost { .. }) => {
                let ask = format!("{error}; it may go on: ask GET /icp/{name}/{version}");
                return Err(RestError::new(StatusCode::BAD_GATEWAY, ask).into());
            }
        }
    }
    Err(last.into())
}
