//! `GET /icp/:name/:version/files/:hash`: one file of a package, from whichever node gives it.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::RestError;
use http::{HeaderMap, StatusCode, header};
use jobmaster::package_copy::sources;
use records::keys::{ManifestKey, UnitKey};
use records::packages::ready_package;
use records::{Refusal, Scope, UnitId, View};

use crate::api_error::ApiError;
use crate::front::Front;
use crate::openapi::{Refused, UnitPath};
use crate::request::{known_parameters, query_of};

/// The handler. `Range: bytes=N-` goes on where a broken connection was.
#[utoipa::path(get, path = "/icp/{name}/{version}/files/{digest}", tag = "packages", operation_id = "icp_file",
    params(UnitPath, ("digest" = String, Path, description = "The file's hash, as the manifest has it"),
        ("range" = Option<String>, Header, description = "`bytes=N-`: from that byte on")),
    responses((status = 200, description = "The bytes", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The rest", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, description = "No such package, or no such file in it", body = Refused),
        (status = 409, description = "UNIT_NOT_READY", body = Refused),
        (status = 416, description = "It has fewer bytes", body = Refused),
        (status = 502, description = "No live node gave it, and what each said", body = Refused)))]
pub async fn file(
    State(front): State<Front>,
    Path((name, version, digest)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let unit = UnitId::new(&name, &version)?;
    known_parameters(&query_of(&request)?, &[])?;
    let view = front.fresh(Scope::package(&unit)).await?;
    ready_package(&view, &unit)?;
    let addresses = holders_of(&front, &view, &unit, &digest).await?;
    let range: HeaderMap = request
        .headers()
        .get(header::RANGE)
        .map(|range| (header::RANGE, range.clone()))
        .into_iter()
        .collect();
    let path = format!("/blobs/{digest}");
    let mut said = Vec::new();
    for address in addresses {
        match front.nodes.pass_get_with(&address, &path, range.clone()).await {
            Ok(answer)
                if answer.status().is_success() || answer.status() == StatusCode::RANGE_NOT_SATISFIABLE =>
            {
                return Ok(answer);
            }
            Ok(answer) => said.push(format!("{address} says {}", answer.status())),
            Err(error) => said.push(error.to_string()),
        }
    }
    let said = if said.is_empty() { "none is alive".to_owned() } else { said.join("; ") };
    let text = format!("no node that holds {unit} gave the file: {said}; try again");
    Err(RestError::new(StatusCode::BAD_GATEWAY, text).into())
}

/// Addresses of those that hold the package, if the file is one of its own.
async fn holders_of(
    front: &Front,
    view: &View,
    unit: &UnitId,
    digest: &str,
) -> Result<Vec<String>, ApiError> {
    let none = || Refusal::not_found(format!("{unit} has no file with hash {digest}"));
    let found = view.get(&UnitKey::new(unit))?.ok_or_else(none)?;
    let key = ManifestKey { digest: found.manifest.clone().ok_or_else(none)? };
    let manifest = front.fresh(Scope::default().and_key(&key)).await?.get(&key)?.ok_or_else(none)?;
    if !manifest.files.iter().any(|file| file.hash == digest) {
        return Err(none().into());
    }
    Ok(sources(view, unit, &found, "")?)
}
