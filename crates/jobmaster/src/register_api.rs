//! The part of the node API that registers are made with.

use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path as UrlPath, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use icp_store::Finding;
use records::UnitId;
use records::packages::Targets;
use serde::Deserialize;
use serde_json::json;

use crate::host::Host;
use crate::limits::{CREATE_DEADLINE, CREATE_DEADLINE_MAX};
use crate::node_api::{Failed, bad_request, not_found};
use crate::register_coordinator::{Register, RegisterError, register};
use crate::register_report::{Blame, Report};

/// Bytes of a directory's path.
const MAX_FROM_BYTES: usize = 4096;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegisterQuery {
    nodes: Option<String>,
    from: Option<String>,
    expect: Option<String>,
    timeout_ms: Option<u64>,
}

impl RegisterQuery {
    fn register(self, unit: UnitId) -> Result<Register, Failed> {
        let targets = match self.nodes.as_deref() {
            None | Some("all") => Targets::Live,
            Some("majority") => {
                let text =
                    "nodes=majority: a register needs each of its nodes to be equal; name those that are";
                return Err(bad_request(text));
            }
            Some(names) => Targets::Named(names.split(',').map(|name| name.trim().to_owned()).collect()),
        };
        let expect =
            self.expect.map(|text| text.parse().map_err(|why| bad_request(format!("expect: {why}"))));
        if let Some(from) = &self.from {
            check_from(from)?;
        }
        let timeout = self.timeout_ms.map_or(CREATE_DEADLINE, Duration::from_millis).min(CREATE_DEADLINE_MAX);
        Ok(Register { unit, from: self.from, targets, expect: expect.transpose()?, timeout })
    }
}

fn check_from(from: &str) -> Result<(), Failed> {
    let why = if !Path::new(from).is_absolute() {
        "it is not absolute: the nodes have no directory in common that it could be below"
    } else if Path::new(from).components().any(|part| matches!(part, Component::ParentDir)) {
        "it has a part `..`: name the directory itself"
    } else if from.len() > MAX_FROM_BYTES {
        "it is longer than 4096 bytes"
    } else if from.chars().any(char::is_control) {
        "it has a control character"
    } else {
        return Ok(());
    };
    Err(bad_request(format!("from={from:?}: {why}")))
}

pub(crate) async fn post(
    State(host): State<Arc<Host>>,
    UrlPath((name, version)): UrlPath<(String, String)>,
    query: Result<Query<RegisterQuery>, QueryRejection>,
) -> Result<Response, Failed> {
    let unit = UnitId::new(&name, &version)?;
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let wish = query.register(unit)?;
    match register(host, wish).await {
        Ok(done) => {
            let mut answer = json!(done.status);
            answer["rows"] = json!(done.rows);
            Ok(Json(answer).into_response())
        }
        Err(RegisterError::Create(error)) => Err(error.into()),
        Err(RegisterError::Files(report)) => Ok(of_report(&report)),
    }
}

fn of_report(report: &Report) -> Response {
    let (status, reason) = match report.blame {
        Blame::NothingThere => (StatusCode::NOT_FOUND, "CONTENT_MISSING"),
        Blame::NotAllowed => (StatusCode::BAD_REQUEST, "NOT_ALLOWED"),
        Blame::Unusable => (StatusCode::CONFLICT, "UNUSABLE"),
        Blame::NotEqual => (StatusCode::CONFLICT, "NOT_EQUAL"),
    };
    let answer = json!({
        "errors": [report.text], "reason": reason, "rows": report.rows, "rows-left-out": report.left_out,
    });
    (status, Json(answer)).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InspectionQuery {
    op: String,
}

pub(crate) async fn inspection(
    State(host): State<Arc<Host>>,
    UrlPath((name, version)): UrlPath<(String, String)>,
    query: Result<Query<InspectionQuery>, QueryRejection>,
) -> Result<Json<Finding>, Failed> {
    UnitId::new(&name, &version)?;
    let Query(query) = query.map_err(|e| bad_request(e.body_text()))?;
    let found = host.inspections.finding(&query.op);
    let missing = || not_found(format!("operation {} inspected nothing here", query.op));
    found.map(Json).ok_or_else(missing)
}
