//! The node API's part for packages whose files are listed first: reserve, what is missing, one file after the other.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use icp_store::{Digest, FileEntry, Manifest};
use records::UnitId;
use serde::Deserialize;
use serde_json::json;

use crate::deploy_coordinator::{Listed, Upload, UploadError, create_listed};
use crate::host::Host;
use crate::node_api::{Failed, PutQuery, bad_request, not_found};

/// The files of a package, as a client lists them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileList {
    files: Vec<FileEntry>,
}

/// `POST /packages/{name}/{version}`: reserves the package and says which files are to be sent.
pub async fn begin(
    State(host): State<Arc<Host>>,
    Path((name, version)): Path<(String, String)>,
    query: Result<Query<PutQuery>, QueryRejection>,
    list: Result<Json<FileList>, JsonRejection>,
) -> Result<Response, Failed> {
    let unit = UnitId::new(&name, &version)?;
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let Json(list) = list.map_err(|e| bad_request(format!("the list of files: {}", e.body_text())))?;
    let manifest = Manifest::new(list.files).map_err(|e| bad_request(e.to_string()))?;
    let digest = manifest.digest();
    let wish = query.create(unit, 0)?;
    Ok(match create_listed(host.clone(), wish, manifest).await? {
        Listed::Ready(status) => Json(status).into_response(),
        Listed::Begun { op, missing } => {
            let coordinator = &host.options.name;
            let body = json!({
                "name": name, "version": version, "status": "CREATING", "op": op, "digest": digest,
                "coordinator": coordinator, "missing": missing,
            });
            (StatusCode::ACCEPTED, Json(body)).into_response()
        }
    })
}

/// Which upload, and where in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadQuery {
    op: String,
    #[serde(default)]
    offset: u64,
}

fn upload_of(host: &Host, op: &str) -> Result<Arc<Upload>, Failed> {
    host.uploads.get(op).ok_or_else(|| not_found(format!("no upload of operation {op} goes on here")))
}

/// `GET /packages/{name}/{version}/upload?op=`: what is still to be sent.
pub async fn missing(
    State(host): State<Arc<Host>>,
    query: Result<Query<UploadQuery>, QueryRejection>,
) -> Result<Response, Failed> {
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let upload = upload_of(&host, &query.op)?;
    Ok(Json(json!({ "op": query.op, "missing": upload.missing() })).into_response())
}

/// `PUT /packages/{name}/{version}/files/{digest}?op=&offset=`: the bytes of one file from `offset` on.
pub async fn put_file(
    State(host): State<Arc<Host>>,
    Path((_, _, digest)): Path<(String, String, String)>,
    query: Result<Query<UploadQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, Failed> {
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let digest: Digest = digest.parse().map_err(bad_request)?;
    let upload = upload_of(&host, &query.op)?;
    let body = request.into_body().into_data_stream();
    let received = upload.receive(&host.options.name, digest, query.offset, body).await?;
    Ok(Json(json!({ "blake3": digest, "received": received })).into_response())
}

/// `POST /blobs/have`: which of these files are here.
pub async fn have(
    State(host): State<Arc<Host>>,
    digests: Result<Json<Vec<Digest>>, JsonRejection>,
) -> Result<Response, Failed> {
    let Json(digests) = digests.map_err(|e| bad_request(e.body_text()))?;
    let found = host
        .on_disk(move |store| {
            digests.into_iter().filter(|digest| store.blob(digest).is_some()).collect::<Vec<_>>()
        })
        .await;
    Ok(Json(found).into_response())
}

impl From<UploadError> for Failed {
    fn from(error: UploadError) -> Self {
        let (status, reason) = match &error {
            UploadError::NotListed(_) => (StatusCode::NOT_FOUND, "NOT_FOUND"),
            UploadError::Offset { .. } => (StatusCode::CONFLICT, "OFFSET"),
            UploadError::TooLong { .. } => (StatusCode::BAD_REQUEST, "BAD_REQUEST"),
            UploadError::Hash { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "HASH"),
            UploadError::Broken(_) => (StatusCode::BAD_REQUEST, "BROKEN"),
            UploadError::Over => (StatusCode::CONFLICT, "OVER"),
            UploadError::Store(error) if error.code() == "ENOSPC" => {
                (StatusCode::INSUFFICIENT_STORAGE, "ENOSPC")
            }
            UploadError::Store(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.code()),
        };
        Self::new(status, reason, error.to_string())
    }
}
