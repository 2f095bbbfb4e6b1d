//! `/icp`: packages. Creating goes to a random live node, which coordinates; the rest is records.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::{StatusCode, header};
use records::keys::encode_segment;
use records::names::LATEST;
use records::packages::{
    PackageStatus, Remove, force_remove, package_status, packages, preview, remove as plan_remove, resolve,
    versions_status,
};
use records::{Scope, UnitId};
use serde_json::json;

use crate::api_error::{self, ApiError};
use crate::front::{Freshness, Front};
use crate::icp_upload;
use crate::jar_handlers::of_failure;
use crate::node_client::{NodeAnswer, PassError};
use crate::openapi::{Begun, FileList, FilesForm, Packages, Refused, Removed, UnitPath};
use crate::receive::is_multipart;
use crate::request::{flag_of, known_parameters, query_of, unknown_parameter};
use crate::warning::{holders_in, if_few_hold};

/// Parameters that are passed on to the coordinator.
const CREATE_PARAMETERS: &[&str] = &["nodes", "timeout_ms", "request", "private"];

/// `PUT /icp/:name/:version`: the body goes on to the coordinator as it comes.
#[utoipa::path(put, path = "/icp/{name}/{version}", tag = "packages", operation_id = "icp_create",
    params(UnitPath,
        ("nodes" = Option<String>, Query, description = "`all` (default), `majority`, or names parted by commas"),
        ("timeout_ms" = Option<u64>, Query, description = "How long it may take; 5 minutes by default"),
        ("request" = Option<String>, Query, description = "Names the request: the same one again is the same create"),
        ("private" = Option<bool>, Query, description = "For runs alone: it goes when no job needs it any more")),
    request_body(content((FilesForm = "multipart/form-data"), (FileList = "application/json"))),
    responses((status = 200, description = "READY, or it was with the same content", body = PackageStatus),
        (status = 202, description = "Of a list: send what is missing", body = Begun),
        (status = 400, description = "A path that could leave the package, a bad name, a limit, a broken body", body = Refused),
        (status = 409, description = "EXISTS with other content, IN_PROGRESS or REMOVING", body = Refused),
        (status = 503, description = "No server node is alive", body = Refused),
        (status = 507, description = "A disk is full: undone on every node", body = Refused)))]
pub async fn create(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let unit = UnitId::new(&name, &version)?;
    let query = query_of(&request)?;
    let origin = if flag_of(&query, "private")? { "private" } else { "icp" };
    let mut passed = format!("origin={origin}");
    for (parameter, value) in query.iter() {
        if !CREATE_PARAMETERS.contains(&parameter) {
            return Err(unknown_parameter(parameter, CREATE_PARAMETERS).into());
        }
        if parameter != "private" {
            passed.push_str(&format!("&{parameter}={}", encode_segment(value)));
        }
    }
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content_type.is_some_and(|text| text.trim_start().to_ascii_lowercase().starts_with("application/json"))
    {
        return icp_upload::begin(&front, &unit, &passed, request).await;
    }
    if !is_multipart(&request) {
        let text = "send the files as multipart/form-data, a part's file name being its path in the package, or \
                    their list as application/json";
        return Err(RestError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into());
    }
    let address = reachable_server(&front).await?;
    let path = format!("{}?{passed}", icp_upload::path_of(&unit));
    let answer = front.nodes.put_body(&address, &path, request).await.map_err(|error| match error {
        PassError::Node(error) => icp_upload::unknown(&error, &unit),
        PassError::Body(_) => error.into(),
    })?;
    Ok(created(&unit, &answer))
}

/// A coordinator's answer to a create. Of a package that is READY on fewer than two live nodes a `Warning` says so.
pub fn created(unit: &UnitId, answer: &NodeAnswer) -> Response {
    let response = respond::json(answer.status, &answer.body);
    match answer.status {
        StatusCode::OK => if_few_hold(response, &unit.to_string(), &holders_in(&answer.body)),
        _ => response,
    }
}

/// A live server node that answers: a body can be sent only once.
pub async fn reachable_server(front: &Front) -> Result<String, ApiError> {
    let mut last = api_error::no_server_node();
    for (_, node) in front.live_servers().await? {
        let Some(address) = node.value.node_address else { continue };
        match front.nodes.pass_get(&address, "/livez").await {
            Ok(answer) if answer.status().is_success() => return Ok(address),
            Ok(answer) => {
                last = RestError::new(
                    StatusCode::BAD_GATEWAY,
                    format!("node {address} says {}", answer.status()),
                )
            }
            Err(error) => last = error.into(),
        }
    }
    Err(last.into())
}

/// `GET /icp`.
#[utoipa::path(get, path = "/icp", tag = "packages", operation_id = "icp_list", params(("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "Every package", body = Packages)))]
pub async fn list(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let view = front.view(Scope::packages(), Freshness::of(&query_of(&request)?)).await?;
    Ok(respond::ok(&json!({ "packages": packages(&view)? })))
}

/// `GET /icp/:name`.
#[utoipa::path(get, path = "/icp/{name}", tag = "packages", operation_id = "icp_versions",
    params(("name" = String, Path, description = "The name"), ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "Every version of the name", body = Packages)))]
pub async fn versions(
    State(front): State<Front>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    records::names::check_name(&name)?;
    let view = front.view(Scope::packages(), Freshness::of(&query_of(&request)?)).await?;
    Ok(respond::ok(&json!({ "packages": versions_status(&view, &name)? })))
}

/// `GET /icp/:name/:version`.
#[utoipa::path(get, path = "/icp/{name}/{version}", tag = "packages", operation_id = "icp_status",
    params(UnitPath, ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "The package on every node", body = PackageStatus),
        (status = 404, description = "There is none", body = Refused)))]
pub async fn status(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let freshness = Freshness::of(&query_of(&request)?);
    let unit = if version == LATEST {
        let view = front.view(Scope::default().and_versions(&name), freshness).await?;
        resolve(&view, &name)?.unit
    } else {
        UnitId::new(&name, &version)?
    };
    let view = front.view(Scope::package(&unit), freshness).await?;
    Ok(respond::ok(&package_status(&view, &unit)?))
}

/// `DELETE /icp/:name/:version?mode=safe|force[&op=OP][&dry-run=true]`: answers at once; `holders` says what a safe
/// removal waits for, `refs` the same in detail. A dry run says what would happen and changes nothing.
#[utoipa::path(delete, path = "/icp/{name}/{version}", tag = "packages", operation_id = "icp_remove",
    params(UnitPath,
        ("mode" = Option<String>, Query, description = "`safe` (default): waits for jobs and uses; `force`: ends them"),
        ("op" = Option<String>, Query, description = "Only if it is still of this operation"),
        ("dry-run" = Option<bool>, Query, description = "Only says what would happen")),
    responses((status = 200, description = "It goes as soon as nobody holds it", body = Removed),
        (status = 404, description = "There is none", body = Refused),
        (status = 409, description = "IN_PROGRESS, or of another operation", body = Refused)))]
pub async fn remove(
    State(front): State<Front>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let unit = UnitId::new(&name, &version)?;
    let query = query_of(&request)?;
    known_parameters(&query, &["mode", "op", "dry-run"])?;
    let forced = match query.non_empty("mode") {
        None | Some("safe") => false,
        Some("force") => true,
        Some(other) => {
            let text = format!("mode: expected safe or force, found \"{other}\"");
            return Err(RestError::new(StatusCode::BAD_REQUEST, text).into());
        }
    };
    let reason = if forced { "forced by an operator" } else { "removed" };
    let wish = Remove {
        unit: unit.clone(),
        op: query.non_empty("op").map(str::to_owned),
        reason: reason.to_owned(),
    };
    if flag_of(&query, "dry-run")? {
        let view = front.fresh(Scope::package(&unit)).await?;
        return Ok(respond::ok(&preview(&view, &wish, forced)?));
    }
    let ask = format!("GET /icp/{name}/{version}");
    let removal = if forced {
        // A create that is forced away settles its request too.
        let view = front.fresh(Scope::package(&unit)).await?;
        let found = view.get(&records::keys::UnitKey::new(&unit))?;
        let request = found.and_then(|found| found.value.request);
        let scope = Scope::package(&unit).and_request(request.as_deref().unwrap_or_default());
        front.carry(&scope, |view| force_remove(view, &wish)).await
    } else {
        front.carry(&Scope::package(&unit), |view| plan_remove(view, &wish)).await
    };
    let removal = removal.map_err(|failure| of_failure(failure, &ask))?.answer;
    tracing::info!(package = %unit, forced, "package is being removed");
    Ok(respond::ok(&json!({
        "name": name, "version": version, "status": removal.state, "op": removal.op,
        "holders": removal.refs.holders(), "refs": removal.refs,
    })))
}
