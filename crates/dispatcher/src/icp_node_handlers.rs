//! Packages as nodes have them: `GET /icp/:name/:version/refs`, `POST /icp/:name/:version/pull`, `GET
//! /nodes/:node/icp`.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::StatusCode;
use icp_store::{DiskState, OnDisk};
use records::keys::{NodeKey, encode_segment};
use records::names::check_node;
use records::nodes::servers_line;
use records::packages::{Found, Published, Refs, node_packages, refs as plan_refs};
use records::{Refusal, Scope, UnitId, View};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::{Freshness, Front};
use crate::limits::{DEPLOY_DEADLINE, NODE_ANSWER};
use crate::openapi::{NodePackages, Pulled, Refused, UnitPath};
use crate::request::{known_parameters, query_of, timeout_of};

/// `GET /icp/:name/:version/refs`: every run, job and node that holds the package.
#[utoipa::path(get, path = "/icp/{name}/{version}/refs", tag = "packages", operation_id = "icp_refs",
    params(UnitPath, ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "Who holds it", body = Refs),
        (status = 404, description = "There is none", body = Refused)))]
pub async fn refs(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let unit = UnitId::new(&name, &version)?;
    let query = query_of(&request)?;
    known_parameters(&query, &["stale"])?;
    let view = front.view(Scope::package(&unit), Freshness::of(&query)).await?;
    Ok(respond::ok(&plan_refs(&view, &unit)?))
}

/// `POST /icp/:name/:version/pull?node=NODE[&timeout_ms=N]`: brings the package to a node.
#[utoipa::path(post, path = "/icp/{name}/{version}/pull", tag = "packages", operation_id = "icp_pull",
    params(UnitPath, ("node" = String, Query, description = "The server node to bring it to"),
        ("timeout_ms" = Option<u64>, Query, description = "How long it may take; 5 minutes by default")),
    responses((status = 200, description = "It is there", body = Pulled),
        (status = 404, description = "No such package or node", body = Refused),
        (status = 409, description = "UNIT_NOT_READY, OCCUPIED", body = Refused),
        (status = 502, description = "NO_SOURCE, and what each node said", body = Refused),
        (status = 504, description = "TIMEOUT: the node goes on by itself", body = Refused)))]
pub async fn pull(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let unit = UnitId::new(&name, &version)?;
    let query = query_of(&request)?;
    known_parameters(&query, &["node", "timeout_ms"])?;
    let limit = timeout_of(&query)?.unwrap_or(DEPLOY_DEADLINE);
    let view = front.fresh(Scope::nodes()).await?;
    let Some(node) = query.non_empty("node") else {
        let text = format!("node is missing: the node to bring {unit} to; {}", servers_line(&view)?);
        return Err(RestError::new(StatusCode::BAD_REQUEST, text).into());
    };
    let address = server_address(&view, node)?;
    let path = format!(
        "/packages/{}/{}/pull?timeout_ms={}",
        encode_segment(&unit.name),
        encode_segment(&unit.version),
        limit.as_millis()
    );
    let answer = front.nodes.post(&address, &path, limit + NODE_ANSWER).await.map_err(|error| {
        let ask = format!("node {node}: {error}; it may go on: ask GET /nodes/{node}/icp");
        RestError::new(StatusCode::BAD_GATEWAY, ask)
    })?;
    tracing::info!(package = %unit, node, status = answer.status.as_u16(), "pulled");
    Ok(respond::json(answer.status, &answer.body))
}

/// Where a live server node is asked.
fn server_address(view: &View, name: &str) -> Result<String, ApiError> {
    check_node(name)?;
    let Some(node) = view.get(&NodeKey { node: name.to_owned() })? else {
        let text = format!("there is no live node {name}; {}", servers_line(view)?);
        return Err(Refusal::not_found(text).into());
    };
    match node.value.node_address.clone() {
        Some(address) if node.is_server() => Ok(address),
        _ => {
            let text = format!("{name} is no server node, it holds no packages; {}", servers_line(view)?);
            Err(RestError::new(StatusCode::BAD_REQUEST, text).into())
        }
    }
}

/// `GET /nodes/:node/icp`: what the records say of a node, joined with what the node finds on its disk.
#[utoipa::path(get, path = "/nodes/{node}/icp", tag = "nodes", operation_id = "node_icp",
    params(("node" = String, Path, description = "The node"), ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "Its packages", body = NodePackages),
        (status = 404, description = "No such node", body = Refused)))]
pub async fn on_node(
    State(front): State<Front>,
    Path(node): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    check_node(&node)?;
    let query = query_of(&request)?;
    known_parameters(&query, &["stale"])?;
    let view = front.view(Scope::packages(), Freshness::of(&query)).await?;
    let alive = view.get(&NodeKey { node: node.clone() })?;
    let (status, disk, disk_error) = match alive {
        None => ("OFFLINE", None, Some("the node is not alive".to_owned())),
        Some(_) => match disk_of(&front, &server_address(&view, &node)?).await {
            Ok(disk) => ("ALIVE", Some(disk), None),
            Err(why) => ("UNREACHABLE", None, Some(why)),
        },
    };
    // What the node did while it was asked is in the records by now: no drift is told that is none.
    let view = match disk {
        Some(_) => front.view(Scope::packages(), Freshness::of(&query)).await?,
        None => view,
    };
    let packages = node_packages(&view, &node, disk.as_deref())?;
    if status == "OFFLINE" && packages.is_empty() {
        let text = format!("there is no node {node}; {}", servers_line(&view)?);
        return Err(Refusal::not_found(text).into());
    }
    Ok(respond::ok(&json!({
        "node": node, "status": status, "packages": packages, "disk-error": disk_error,
    })))
}

/// What a node finds on its disk.
async fn disk_of(front: &Front, address: &str) -> Result<Vec<Found>, String> {
    let listed: Value =
        front.nodes.get_json(address, "/packages").await.map_err(|error| error.to_string())?;
    let listed: Vec<OnDisk> = serde_json::from_value(listed).map_err(|error| {
        format!(
            "the answer of node {address} makes no sense: {error}; it is of another version of this program"
        )
    })?;
    Ok(listed.into_iter().map(found).collect())
}

fn found(listed: OnDisk) -> Found {
    let published = match listed.state {
        DiskState::Published { op, digest, bytes, files, tentative: _ } => {
            Some(Published { op, digest: digest.to_string(), bytes, files: files as u64 })
        }
        DiskState::Unregistered => None,
    };
    Found { name: listed.name, version: listed.version, published }
}
