//! `/icp` for clients that list their files first: the list goes to a live node, which coordinates; each file that no
//! node has goes to that coordinator, through whichever dispatcher.

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::StatusCode;
use records::keys::{NodeKey, UnitKey, encode_segment};
use records::record::{Unit, UnitState};
use records::{Scope, UnitId, nodes};

use crate::api_error::{self, ApiError};
use crate::front::Front;
use crate::icp_handlers::{created, reachable_server};
use crate::limits::UPLOAD_IDLE;
use crate::node_client::NodeError;
use crate::openapi::{Missing, Received, Refused, UnitPath};
use crate::request::query_of;
use crate::request::unknown_parameter;

/// Parameters of the calls about an upload.
const UPLOAD_PARAMETERS: &[&str] = &["op", "offset"];

/// `PUT /icp/:name/:version` with a list of files as JSON.
pub async fn begin(
    front: &Front,
    unit: &UnitId,
    passed: &str,
    request: Request,
) -> Result<Response, ApiError> {
    let list = read_list(request).await?;
    let address = reachable_server(front).await?;
    let answer = front.nodes.post_json(&address, &format!("{}?{passed}", path_of(unit)), list).await;
    let answer = answer.map_err(|error| unknown(&error, unit))?;
    Ok(created(unit, &answer))
}

async fn read_list(request: Request) -> Result<Bytes, RestError> {
    let limit = jobmaster::limits::MAX_FILE_LIST_BYTES;
    match tokio::time::timeout(UPLOAD_IDLE, axum::body::to_bytes(request.into_body(), limit)).await {
        Ok(Ok(list)) => Ok(list),
        Ok(Err(_)) => {
            let text = format!("the list of files broke off or is larger than {limit} bytes");
            Err(RestError::new(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Err(_) => Err(RestError::new(StatusCode::REQUEST_TIMEOUT, "the list stopped midway; send it again")),
    }
}

/// A node that was asked to change something and did not answer.
pub fn unknown(error: &NodeError, unit: &UnitId) -> RestError {
    let ask = format!("{error}; it may go on: ask GET /icp/{}/{}", unit.name, unit.version);
    RestError::new(StatusCode::BAD_GATEWAY, ask)
}

/// The package on the node API.
pub fn path_of(unit: &UnitId) -> String {
    format!("/packages/{}/{}", encode_segment(&unit.name), encode_segment(&unit.version))
}

/// `GET /icp/:name/:version/upload?op=`: what is still to be sent.
#[utoipa::path(get, path = "/icp/{name}/{version}/upload", tag = "packages", operation_id = "icp_upload",
    params(UnitPath, ("op" = String, Query, description = "The operation that the create answered")),
    responses((status = 200, description = "What is still to be sent", body = Missing),
        (status = 404, description = "No such operation: its request's outcome tells", body = Refused),
        (status = 409, description = "Nothing is to be sent any more", body = Refused)))]
pub async fn missing(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let unit = UnitId::new(&name, &version)?;
    let (op, _) = which(&request)?;
    let address = coordinator_of(&front, &unit, &op).await?;
    let path = format!("{}/upload?op={}", path_of(&unit), encode_segment(&op));
    Ok(front.nodes.pass_get(&address, &path).await.map_err(RestError::from)?)
}

/// `PUT /icp/:name/:version/files/:blake3?op=&offset=`: the bytes of one file from `offset` on.
#[utoipa::path(put, path = "/icp/{name}/{version}/files/{digest}", tag = "packages", operation_id = "icp_upload_file",
    params(UnitPath, ("digest" = String, Path, description = "The file's hash, as listed"),
        ("op" = String, Query, description = "The operation that the create answered"),
        ("offset" = Option<u64>, Query, description = "The first byte that is sent: what is received so far")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "Taken", body = Received),
        (status = 400, description = "More than listed, or broken off: what came is kept", body = Refused),
        (status = 404, description = "No such operation, or a hash that is not listed", body = Refused),
        (status = 409, description = "OFFSET: send from the byte that it names; OVER", body = Refused),
        (status = 422, description = "HASH: other bytes than listed, nothing is kept", body = Refused)))]
pub async fn put_file(
    State(front): State<Front>,
    Path((name, version, digest)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let unit = UnitId::new(&name, &version)?;
    let (op, offset) = which(&request)?;
    let address = coordinator_of(&front, &unit, &op).await?;
    let (digest, op) = (encode_segment(&digest), encode_segment(&op));
    let path = format!("{}/files/{digest}?op={op}&offset={offset}", path_of(&unit));
    let answer = front.nodes.put_body(&address, &path, request).await;
    // What came is kept there: the client asks what is missing and goes on.
    let answer = answer.map_err(RestError::from)?;
    Ok(respond::json(answer.status, &answer.body))
}

fn which(request: &Request) -> Result<(String, u64), ApiError> {
    let query = query_of(request)?;
    if let Some((other, _)) = query.iter().find(|(parameter, _)| !UPLOAD_PARAMETERS.contains(parameter)) {
        return Err(unknown_parameter(other, UPLOAD_PARAMETERS).into());
    }
    let bad = |text: &str| RestError::new(StatusCode::BAD_REQUEST, text);
    let op =
        query.non_empty("op").ok_or_else(|| bad("op: the operation that the create answered is missing"))?;
    let offset = query.non_empty("offset").unwrap_or("0").parse();
    Ok((op.to_owned(), offset.map_err(|_| bad("offset: wants a number of bytes"))?))
}

/// Where the coordinator of a create listens.
async fn coordinator_of(front: &Front, unit: &UnitId, op: &str) -> Result<String, ApiError> {
    let view = front.fresh(Scope::package(unit)).await?;
    let found = view.get(&UnitKey::new(unit))?.filter(|found| found.op == op);
    let Some(found) = found else {
        let text = format!("operation {op} of {unit} is over: its request's outcome says how it ended");
        return Err(RestError::new(StatusCode::NOT_FOUND, text).into());
    };
    if found.state != UnitState::Creating {
        return Err(RestError::new(StatusCode::CONFLICT, no_longer(unit, &found)).into());
    }
    let node = view.get(&NodeKey::new(&found.coordinator.node))?;
    let address = node.and_then(|node| node.value.node_address);
    match address.filter(|_| nodes::is_alive(&view, &found.coordinator).unwrap_or(false)) {
        Some(address) => Ok(address),
        None => {
            let coordinator = &found.coordinator.node;
            let text =
                format!("node {coordinator}, which creates {unit}, is lost: the create is undone soon");
            Err(api_error::retry_later(RestError::new(StatusCode::SERVICE_UNAVAILABLE, text)).into())
        }
    }
}

fn no_longer(unit: &UnitId, found: &Unit) -> String {
    match (found.state, &found.error) {
        (UnitState::Ready, _) => format!("{unit} is READY: nothing is to be sent any more"),
        (_, Some(why)) => format!("the create of {unit} was given up: {why}"),
        (_, None) => format!("{unit} is no longer being created"),
    }
}
