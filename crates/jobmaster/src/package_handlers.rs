//! What operators ask of a node's packages: to read a copy again, and to fetch one.
//!
//! A verification writes nothing, unless it is asked to repair: then a damaged copy's row becomes CORRUPT, and the
//! package agent replaces it (`package_repair`). A pull is what a job's start does, without the job.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use icp_store::{FileState, StoreError, VerifyReport};
use records::keys::UnitKey;
use records::packages::ready_package;
use records::record::{PackageRef, Unit};
use records::{Refusal, Scope, UnitId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::host::{Host, blocking};
use crate::limits::{CREATE_DEADLINE_MAX, PULL_DEADLINE, VERIFY_ROWS};
use crate::node_api::{Failed, bad_request};
use crate::package_copy::{EnsureError, For, Trouble, ensure, load, manifest_of};
use crate::package_repair::{condemn, in_words};
use crate::session::Tenure;

/// Stands for the whole package in a row.
pub const WHOLE: &str = "*";

/// A node's answer to a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The operation whose copy was read.
    pub op: String,
    /// Files of the package.
    pub files: usize,
    /// What is not as it should be; none = all is well.
    pub rows: Vec<VerifiedFile>,
    /// How many rows more there would be.
    pub left_off: usize,
    /// What is done about it, if that was asked for and something is wrong.
    pub repair: Option<Repair>,
}

/// A file that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedFile {
    /// Its path in the package, or [`WHOLE`].
    pub file: String,
    /// How it is.
    pub state: FileState,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What becomes of a damaged copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// BEGUN; WAITING for running uses to end; NONE if the copy's record said before that it cannot be used, so that
    /// the node works on it anyway.
    pub state: String,
    /// Uses that run on the copy.
    pub uses: usize,
}

/// The query of a verification.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifyQuery {
    op: Option<String>,
    repair: Option<bool>,
}

/// The query of a pull.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullQuery {
    timeout_ms: Option<u64>,
}

/// The tenure of this boot, as far as a request needs it: it ends with the registration.
fn tenure_of(host: &Arc<Host>) -> Result<Tenure, Failed> {
    let session = host.session.borrow().clone().ok_or_else(not_registered)?;
    let lost = CancellationToken::new();
    let (mut sessions, mine, ends) = (host.session.clone(), session.clone(), lost.clone());
    let end = host.shutdown.token();
    tokio::spawn(async move {
        tokio::select! {
            _ = sessions.wait_for(|now| now.as_ref() != Some(&mine)) => ends.cancel(),
            () = end.cancelled() => ends.cancel(),
            () = ends.cancelled() => {}
        }
    });
    Ok(Tenure { session, lost })
}

fn not_registered() -> Failed {
    let text = "this node is not registered in the metastore now; try again";
    Failed::new(StatusCode::SERVICE_UNAVAILABLE, "NOT_REGISTERED", text)
}

/// `POST /packages/{name}/{version}/verify?op=OP[&repair=true]`.
pub async fn verify(
    State(host): State<Arc<Host>>,
    Path((name, version)): Path<(String, String)>,
    query: Result<Query<VerifyQuery>, QueryRejection>,
) -> Result<Response, Failed> {
    let unit = UnitId::new(&name, &version)?;
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let op = query.op.filter(|op| !op.is_empty());
    let op = op.ok_or_else(|| bad_request("op is missing: the operation whose copy is to be read"))?;
    let package = PackageRef { unit, op };
    let tenure = tenure_of(&host)?;
    let _done = tenure.lost.clone().drop_guard();
    let found = recorded(&host, &tenure, &package).await?;
    let (files, checked) = read_again(&host, &tenure, &package, &found).await?;
    let mut answer = Verified { op: package.op.clone(), files, rows: vec![], left_off: 0, repair: None };
    let damage = answer.take(checked);
    if let Some(damage) = damage.filter(|_| query.repair == Some(true)) {
        let is_corrupt = condemn(&host, &tenure, &package, &damage).await?;
        let uses = host.gates.running(&package.op);
        let state = match (is_corrupt, uses) {
            (false, _) => "NONE",
            (true, 0) => "BEGUN",
            (true, _) => "WAITING",
        };
        answer.repair = Some(Repair { state: state.into(), uses });
    }
    Ok(axum::Json(answer).into_response())
}

/// The package's record, if it is still of this operation.
async fn recorded(host: &Host, tenure: &Tenure, package: &PackageRef) -> Result<Unit, Failed> {
    let view = load(host, tenure, Scope::package(&package.unit)).await?;
    let found = view.get(&UnitKey::new(&package.unit))?.map(|found| found.value);
    match found {
        Some(found) if found.op == package.op => Ok(found),
        Some(found) => {
            let text = format!("{} is now operation {}, not {}", package.unit, found.op, package.op);
            Err(Refusal::fenced(text).into())
        }
        None => Err(Refusal::not_found(format!("there is no package {}", package.unit)).into()),
    }
}

/// Compares the copy with the manifest that the cluster recorded. One at a time a package: a second one waits, even if
/// the caller of the first is gone.
async fn read_again(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    found: &Unit,
) -> Result<(usize, Result<Option<VerifyReport>, StoreError>), Failed> {
    let manifest = manifest_of(host, tenure, found).await?;
    let files = manifest.files().len();
    let alone = host.verifications.of(&package.op).lock_owned().await;
    let (store, package) = (host.store.clone(), package.clone());
    let checked = blocking(move || {
        let _alone = alone;
        let UnitId { name, version } = &package.unit;
        store.verify_against(name, version, &package.op, &manifest)
    });
    Ok((files, checked.await))
}

impl Verified {
    /// Takes over what was found; the damage in words, if there is any.
    fn take(&mut self, checked: Result<Option<VerifyReport>, StoreError>) -> Option<String> {
        let whole = |state, detail: String| VerifiedFile { file: WHOLE.into(), state, detail: Some(detail) };
        match checked {
            Ok(Some(report)) => {
                let damaged = report.damage().map(|(path, state)| VerifiedFile {
                    file: path.into(),
                    state,
                    detail: None,
                });
                self.rows = damaged.collect();
                self.left_off = self.rows.len().saturating_sub(VERIFY_ROWS);
                self.rows.truncate(VERIFY_ROWS);
                in_words(&report)
            }
            Ok(None) => {
                let text = "nothing that this operation published is on the disk";
                self.rows = vec![whole(FileState::Missing, text.into())];
                Some(text.into())
            }
            Err(error) => {
                self.rows = vec![whole(FileState::Unreadable, error.to_string())];
                Some(error.to_string())
            }
        }
    }
}

/// `POST /packages/{name}/{version}/pull[?timeout_ms=N]`: answers when the package is PRESENT here.
pub async fn pull(
    State(host): State<Arc<Host>>,
    Path((name, version)): Path<(String, String)>,
    query: Result<Query<PullQuery>, QueryRejection>,
) -> Result<Response, Failed> {
    let unit = UnitId::new(&name, &version)?;
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let limit = query.timeout_ms.map_or(PULL_DEADLINE, Duration::from_millis).min(CREATE_DEADLINE_MAX);
    if limit.is_zero() {
        return Err(bad_request("timeout_ms=0: wants a number of milliseconds above 0"));
    }
    let pulled = tokio::time::timeout(limit, pull_now(&host, &unit)).await;
    let found = pulled.unwrap_or_else(|_| {
        let node = &host.options.name;
        let text = format!("{unit} is not on node {node} after {limit:?}; the node goes on by itself");
        Err(Failed::new(StatusCode::GATEWAY_TIMEOUT, "TIMEOUT", text))
    })?;
    Ok(axum::Json(json!({
        "name": unit.name, "version": unit.version, "node": host.options.name, "status": "PRESENT",
        "op": found.op, "bytes": found.bytes, "files": found.files,
    }))
    .into_response())
}

async fn pull_now(host: &Arc<Host>, unit: &UnitId) -> Result<Unit, Failed> {
    let tenure = tenure_of(host)?;
    let view = load(host, &tenure, Scope::package(unit)).await?;
    let package = ready_package(&view, unit)?;
    let found = recorded(host, &tenure, &package).await?;
    // A task of its own: a caller that hangs up does not stop it half way, it only does not hear of the end.
    let (told, outcome) = oneshot::channel();
    let host = host.clone();
    tokio::spawn(async move {
        let done = tokio::select! {
            done = ensure(&host, &tenure, &package, For::Node) => done,
            () = tenure.lost.cancelled() => Err(Refusal::fenced("the registration of this node is gone").into()),
        };
        tenure.lost.cancel();
        let _ = told.send(done);
    });
    match outcome.await {
        Ok(Ok(())) => Ok(found),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failed::new(StatusCode::INTERNAL_SERVER_ERROR, "PANICKED", "the pull broke off")),
    }
}

impl From<EnsureError> for Failed {
    fn from(error: EnsureError) -> Self {
        match error {
            EnsureError::Refused(refusal) => refusal.into(),
            EnsureError::Failed(trouble) => trouble.into(),
        }
    }
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        let status = match trouble.code {
            "ENOSPC" => StatusCode::INSUFFICIENT_STORAGE,
            "NO_SOURCE" => StatusCode::BAD_GATEWAY,
            "OCCUPIED" => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, trouble.code, trouble.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Verified {
        Verified { op: "op".into(), files: 5000, rows: vec![], left_off: 0, repair: None }
    }

    #[test]
    fn an_answer_names_what_is_wrong_and_no_more_than_so_much() {
        let mut clean = VerifyReport::default();
        clean.files.insert("good".into(), FileState::Ok);
        let mut answer = fresh();
        assert_eq!(answer.take(Ok(Some(clean.clone()))), None);
        assert!(answer.rows.is_empty());
        let mut damaged = clean;
        damaged.files.extend((0..VERIFY_ROWS + 3).map(|n| (format!("f{n:05}"), FileState::Corrupt)));
        let mut answer = fresh();
        let words = answer.take(Ok(Some(damaged))).unwrap();
        assert_eq!(words, "f00000 CORRUPT, f00001 CORRUPT, f00002 CORRUPT and 1000 more");
        assert_eq!((answer.rows.len(), answer.left_off), (VERIFY_ROWS, 3));
        let mut answer = fresh();
        assert!(answer.take(Ok(None)).is_some());
        assert_eq!((answer.rows[0].file.as_str(), answer.rows[0].state), (WHOLE, FileState::Missing));
    }
}
