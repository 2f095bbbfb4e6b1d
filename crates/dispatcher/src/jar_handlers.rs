//! `/jars`: upload, list, delete. A JAR is a package on server nodes; its id is a record every dispatcher reads.

use std::fs::File;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::answers::{JarEntry, JarFile, JarList, JarUploaded};
use flink_rest::{RestError, jar, respond, upload};
use http::StatusCode;
use process_kit::{Form, FormError};
use records::keys::JarKey;
use records::packages::{AddJar, add_jar, delete_jar, jars};
use records::record::Jar;
use records::{Failure, Scope};

use crate::api_error::{self, ApiError};
use crate::deploy::{self, JarPackage};
use crate::flink_routes::needs_flink;
use crate::front::{Front, now_ms};
use crate::jar_run_handler::missing_jar;
use crate::receive::{self, SpooledFile};
use crate::request::{freshness_of, jar_id_in_path, raw_path};
use crate::warning::if_few_hold;

/// `POST /jars/upload`. 200 when two live nodes hold it, synced; if there is only one, a `Warning` says so.
pub async fn upload(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let file = receive_jar(&front, request).await?;
    let info = inspect(&file).await;
    let JarPackage { uuid, package, holders } = deploy::deploy_jar(&front, "jar", &file).await?;
    let id = format!("{uuid}_{}", file.name);
    let jar = Jar {
        unit: package.unit.clone(),
        op: package.op.clone(),
        file_name: file.name.clone(),
        digest: file.digest.clone(),
        uploaded_at_ms: now_ms(),
        entry_classes: info.entry_classes,
        extra: Default::default(),
    };
    let wish = AddJar { id: id.clone(), jar };
    let scope = Scope::package(&package.unit).and_key(&JarKey { jar: id.clone() });
    let added = front.carry(&scope, |view| add_jar(view, &wish)).await;
    added.map_err(|failure| of_failure(failure, "GET /jars"))?;
    front.metrics.uploads.inc();
    tracing::info!(jar = id, package = %package.unit, bytes = file.bytes, "JAR uploaded");
    Ok(if_few_hold(respond::ok(&JarUploaded::of(&id)), &id, &holders))
}

async fn receive_jar(front: &Front, request: Request) -> Result<SpooledFile, RestError> {
    if !receive::is_multipart(&request) {
        let body = receive::json_body(request).await.map_err(|_| upload::unexpected_body())?;
        let is_json = body.is_empty() || serde_json::from_slice::<serde_json::Value>(&body).is_ok();
        return Err(if is_json { upload::wrong_count(0) } else { upload::unexpected_body() });
    }
    let Ok(mut form) = Form::of(request).await else { return Err(upload::unexpected_body()) };
    let mut rules = upload::UploadRules::default();
    let mut stored = None;
    while let Some(part) = form.next_part().await.map_err(broken)? {
        let (field, file_name) = (part.name().map(str::to_owned), part.file_name().map(str::to_owned));
        if rules.part(field.as_deref(), file_name.as_deref())? {
            let name = upload::base_name(file_name.as_deref().unwrap_or_default()).to_owned();
            stored = Some(front.spool.store(name, part).await.map_err(|error| match error.status() {
                StatusCode::BAD_REQUEST => upload::wrong_count(0),
                _ => error,
            })?);
        } else {
            part.skip().await.map_err(broken)?;
        }
    }
    let name = rules.finish()?;
    let mut file = stored.ok_or_else(|| upload::wrong_count(0))?;
    file.name = name;
    Ok(file)
}

/// A body that breaks off holds no whole file.
fn broken(error: FormError) -> RestError {
    match error {
        FormError::TooSlow => receive::broken(error),
        FormError::NoForm(_) | FormError::Broken(_) | FormError::Head | FormError::FileName => {
            upload::wrong_count(0)
        }
    }
}

/// What the JAR says about itself; what cannot be read says nothing.
pub async fn inspect(file: &SpooledFile) -> jar::JarInfo {
    let path = file.path().to_owned();
    let inspected =
        tokio::task::spawn_blocking(move || File::open(path).map(jar::inspect).unwrap_or_default()).await;
    inspected.unwrap_or_default()
}

/// `GET /jars`.
pub async fn list(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let view = front.view(Scope::default().and_all::<JarKey>(), freshness_of(&request)?).await?;
    let files = jars(&view)?.into_iter().map(|(id, jar)| JarFile {
        id,
        name: jar.value.file_name,
        uploaded: jar.value.uploaded_at_ms,
        entry: jar.value.entry_classes.into_iter().map(|name| JarEntry { name, description: None }).collect(),
    });
    Ok(respond::ok(&JarList { address: format!("http://{}", front.address), files: files.collect() }))
}

/// `DELETE /jars/:jarid`: the id goes at once, the package when no job needs it any more.
pub async fn delete(
    State(front): State<Front>,
    path: Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let id = jar_id_in_path(path, &raw_path(&request), request.method())?;
    let key = JarKey { jar: id.clone() };
    let view = front.fresh(Scope::default().and_key(&key)).await?;
    let Some(jar) = view.get(&key)? else {
        let text = format!("File {id} does not exist in flink-web-upload.");
        return Err(RestError::handler(StatusCode::BAD_REQUEST, text).into());
    };
    let scope = Scope::package(&jar.unit).and_key(&key);
    let deleted = front.carry(&scope, |view| delete_jar(view, &id)).await;
    match deleted {
        Ok(_) => Ok(respond::empty(StatusCode::OK)),
        // Another DELETE was faster.
        Err(Failure::Refused(refusal)) if refusal.class == records::Class::NotFound => {
            Ok(respond::empty(StatusCode::OK))
        }
        Err(failure) => Err(of_failure(failure, "GET /jars")),
    }
}

/// `GET|POST /jars/:jarid/plan`: Flink runs main() for it and looks at the graph, which only a Flink cluster can.
pub async fn plan(
    State(front): State<Front>,
    path: Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let raw = raw_path(&request);
    let id = jar_id_in_path(path, &raw, request.method())?;
    let key = JarKey { jar: id.clone() };
    let view = front.view(Scope::default().and_key(&key), freshness_of(&request)?).await?;
    match view.get(&key)? {
        None => Err(missing_jar(&id).into()),
        Some(_) => Err(needs_flink(request.method(), &raw).into()),
    }
}

/// A failed planner as an answer; `ask` tells how to find out about an unknown outcome.
pub fn of_failure(failure: Failure, ask: &str) -> ApiError {
    match failure {
        Failure::Refused(refusal) => refusal.into(),
        Failure::Store(error) => api_error::outcome_unknown(&error, ask).into(),
        error @ Failure::Contended => {
            RestError::new(StatusCode::SERVICE_UNAVAILABLE, format!("{error}; try again")).into()
        }
    }
}
