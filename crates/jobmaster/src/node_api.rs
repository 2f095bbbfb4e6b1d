//! The node's HTTP API: packages in, package bytes and output of jobs out. For dispatchers and other nodes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use process_kit::{Form, FormError};
use records::packages::Targets;
use records::record::{Policy, UnitOrigin};
use records::{JobId, Refusal, UnitId};
use serde::Deserialize;
use serde_json::json;

use crate::blob_api;
use crate::deploy_coordinator::{Create, CreateError, create, reason_of};
use crate::guard::logs;
use crate::host::{Host, blocking};
use crate::limits::{
    CREATE_DEADLINE, CREATE_DEADLINE_MAX, LOG_ANSWER_BYTES, MAX_FILE_LIST_BYTES, MAX_REQUEST_ID,
};
use crate::package_handlers;
use crate::receive::ReceiveError;
use crate::register_api;
use crate::upload_api;

/// Where the end of the stream is, in the answer to a read of output.
pub const LOG_SIZE: &str = "x-log-size";
/// Where the bytes of the answer begin: later than asked for if output was dropped there.
pub const LOG_OFFSET: &str = "x-log-offset";

/// The routes, without those of health and figures.
pub fn routes(host: Arc<Host>) -> Router {
    Router::new()
        .route("/packages", get(list))
        .route("/reconcilers", get(reconcilers))
        .route(
            "/packages/{name}/{version}",
            put(put_package)
                .layer(DefaultBodyLimit::disable())
                .merge(post(upload_api::begin).layer(DefaultBodyLimit::max(MAX_FILE_LIST_BYTES))),
        )
        .route("/packages/{name}/{version}/upload", get(upload_api::missing))
        .route(
            "/packages/{name}/{version}/files/{digest}",
            put(upload_api::put_file).layer(DefaultBodyLimit::disable()),
        )
        .route("/blobs/have", post(upload_api::have))
        .route("/packages/{name}/{version}/manifest", get(manifest))
        .route("/packages/{name}/{version}/register", post(register_api::post))
        .route("/packages/{name}/{version}/inspection", get(register_api::inspection))
        .route("/blobs/{digest}", get(blob_api::blob))
        .route("/packages/{name}/{version}/verify", post(package_handlers::verify))
        .route("/packages/{name}/{version}/pull", post(package_handlers::pull))
        .route("/jobs/{job}/attempts/{attempt}/{stream}", get(output))
        .layer(middleware::from_fn(process_kit::refused::read_rest))
        .with_state(host)
}

/// A failure as its status and one sentence.
pub struct Failed(StatusCode, &'static str, String);

impl Failed {
    /// With its status, its code and its sentence.
    pub fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self(status, code, text.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, axum::Json(json!({ "errors": [self.2], "reason": self.1 }))).into_response()
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        let status =
            StatusCode::from_u16(refusal.class.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self(status, refusal.class.code(), refusal.text)
    }
}

impl From<CreateError> for Failed {
    fn from(error: CreateError) -> Self {
        let text = reason_of(&error);
        match error {
            CreateError::Refused(refusal) => refusal.into(),
            CreateError::Received(ReceiveError::Store(error)) => match error.code() {
                "BAD_PATH" | "LIMIT" => Self(StatusCode::BAD_REQUEST, "BAD_REQUEST", text),
                "ENOSPC" => Self(StatusCode::INSUFFICIENT_STORAGE, "ENOSPC", text),
                code => Self(StatusCode::INTERNAL_SERVER_ERROR, code, text),
            },
            CreateError::Received(ReceiveError::Body(FormError::TooSlow)) => {
                Self(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", text)
            }
            CreateError::Received(ReceiveError::Body(_)) => {
                Self(StatusCode::BAD_REQUEST, "BAD_REQUEST", text)
            }
            CreateError::Full(_) => Self(StatusCode::INSUFFICIENT_STORAGE, "ENOSPC", text),
            CreateError::Undone(_) => Self(StatusCode::INTERNAL_SERVER_ERROR, "UNDONE", text),
            CreateError::TimedOut(_) => Self(StatusCode::GATEWAY_TIMEOUT, "TIMEOUT", text),
            CreateError::Unknown(_) => Self(StatusCode::SERVICE_UNAVAILABLE, "UNKNOWN", text),
            CreateError::NotRegistered => Self(StatusCode::SERVICE_UNAVAILABLE, "NOT_REGISTERED", text),
        }
    }
}

/// 400.
pub fn bad_request(text: impl Into<String>) -> Failed {
    Failed(StatusCode::BAD_REQUEST, "BAD_REQUEST", text.into())
}

/// 404.
pub fn not_found(text: impl Into<String>) -> Failed {
    Failed(StatusCode::NOT_FOUND, "NOT_FOUND", text.into())
}

/// 500: the disk.
pub fn disk_failed(error: impl std::fmt::Display) -> Failed {
    Failed(StatusCode::INTERNAL_SERVER_ERROR, "EIO", error.to_string())
}

/// How a package is to be created.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutQuery {
    origin: Option<String>,
    copies: Option<u32>,
    nodes: Option<String>,
    timeout_ms: Option<u64>,
    request: Option<String>,
}

impl PutQuery {
    /// As a wish.
    pub fn create(self, unit: UnitId, declared_bytes: u64) -> Result<Create, Failed> {
        let origin = match self.origin.as_deref() {
            None | Some("icp") => UnitOrigin::Icp,
            Some("jar") => UnitOrigin::Jar,
            Some("private") => UnitOrigin::Private,
            Some(other) => return Err(bad_request(format!("origin={other}: wants icp, jar or private"))),
        };
        let (targets, policy) = match (self.copies, self.nodes.as_deref()) {
            (Some(_), Some(_)) => return Err(bad_request("copies and nodes exclude each other")),
            (Some(copies), None) => (Targets::Some(copies), Policy::Copies(copies)),
            (None, None | Some("all")) => (Targets::Live, Policy::All),
            (None, Some("majority")) => (Targets::Live, Policy::Majority),
            (None, Some(names)) => {
                let names = names.split(',').map(|name| name.trim().to_owned()).collect();
                (Targets::Named(names), Policy::All)
            }
        };
        let timeout = self.timeout_ms.map_or(CREATE_DEADLINE, Duration::from_millis).min(CREATE_DEADLINE_MAX);
        if let Some(request) = &self.request {
            check_request(request)?;
        }
        Ok(Create { unit, origin, targets, policy, timeout, declared_bytes, request: self.request })
    }
}

/// A client's name for a request becomes a key of the store.
fn check_request(request: &str) -> Result<(), Failed> {
    let fits = (1..=MAX_REQUEST_ID).contains(&request.len());
    if fits && request.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Ok(());
    }
    Err(bad_request(format!(
        "request={request:?}: wants 1 to {MAX_REQUEST_ID} letters, digits, dots, dashes or underscores"
    )))
}

async fn put_package(
    State(host): State<Arc<Host>>,
    Path((name, version)): Path<(String, String)>,
    query: Result<Query<PutQuery>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> Result<Response, Failed> {
    let unit = UnitId::new(&name, &version)?;
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|l| l.to_str().ok()?.parse().ok());
    let wish = query.create(unit, length.unwrap_or(0))?;
    let body = Form::of(request).await.map_err(|e| bad_request(e.to_string()))?;
    let status = create(host, wish, body).await?;
    Ok(axum::Json(status).into_response())
}

async fn list(State(host): State<Arc<Host>>) -> Result<Response, Failed> {
    let found = host.on_disk(icp_store::PackageStore::list).await.map_err(disk_failed)?;
    Ok(axum::Json(found).into_response())
}

async fn reconcilers(State(host): State<Arc<Host>>) -> Response {
    axum::Json(json!({ "reconcilers": host.rounds.all() })).into_response()
}

async fn manifest(
    State(host): State<Arc<Host>>,
    Path((name, version)): Path<(String, String)>,
) -> Result<Response, Failed> {
    let unit = UnitId::new(&name, &version)?;
    let found = host.on_disk(move |store| store.installed(&unit.name, &unit.version)).await;
    match found.map_err(disk_failed)? {
        Some(found) => Ok(axum::Json(found.manifest).into_response()),
        None => Err(not_found(format!("{name}:{version} is not on this node"))),
    }
}

#[derive(Debug, Default, Deserialize)]
struct OutputQuery {
    offset: Option<i64>,
    limit: Option<usize>,
}

async fn output(
    State(host): State<Arc<Host>>,
    Path((job, attempt, stream)): Path<(String, u32, String)>,
    Query(query): Query<OutputQuery>,
) -> Result<Response, Failed> {
    let job: JobId = job.parse().map_err(Failed::from)?;
    if stream != "stdout" && stream != "stderr" {
        return Err(not_found(format!("there is no output {stream}: ask for stdout or stderr")));
    }
    let dir = host.jobs_dir.join(job.as_str()).join(attempt.to_string());
    let limit = query.limit.unwrap_or(LOG_ANSWER_BYTES).min(LOG_ANSWER_BYTES);
    let offset = query.offset.unwrap_or(0);
    let piece = blocking(move || logs::read(&dir, &stream, offset, limit)).await;
    let piece = match piece {
        Ok(piece) => piece,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(not_found(format!("attempt {attempt} of job {job} is not on this node (any more)")));
        }
        Err(e) => return Err(disk_failed(e)),
    };
    let headers = [
        (header::CONTENT_TYPE.as_str(), "text/plain; charset=utf-8".to_owned()),
        (LOG_SIZE, piece.end.to_string()),
        (LOG_OFFSET, piece.offset.to_string()),
    ];
    Ok((headers, piece.bytes).into_response())
}
