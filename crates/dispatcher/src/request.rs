//! The small parts of a request that handlers look at: query, path parameters, the raw path.

use std::str::FromStr;
use std::time::Duration;

use axum::extract::{Path, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use flink_rest::path::RawPath;
use flink_rest::query::Query;
use flink_rest::{RestError, job_id};
use http::{Method, StatusCode, request::Parts};
use meta_types::Revision;
use process_kit::config::ConfigValue;
use records::JobId;

use crate::front::Freshness;
use crate::limits::{LONGEST_TIMEOUT, LONGEST_WAIT};

/// The query of a request.
pub fn query_of(request: &Request) -> Result<Query, RestError> {
    Query::parse(request.uri().query())
}

/// Refuses a parameter that is none of these, with the nearest of them.
pub fn known_parameters(query: &Query, known: &[&str]) -> Result<(), RestError> {
    match query.names().find(|name| !known.contains(name)) {
        Some(name) => Err(unknown_parameter(name, known)),
        None => Ok(()),
    }
}

/// 400: no such parameter.
pub fn unknown_parameter(name: &str, known: &[&str]) -> RestError {
    let nearest = flink_rest::run_request::nearest(name, known);
    bad(format!("unknown query parameter \"{name}\"; did you mean \"{nearest}\"?"))
}

/// A parameter that is `true` (or bare) or `false`; absent is false.
pub fn flag_of(query: &Query, name: &str) -> Result<bool, RestError> {
    match query.get(name) {
        None | Some("false") => Ok(false),
        Some("" | "true") => Ok(true),
        Some(other) => Err(bad(format!("{name}: expected true or false, found \"{other}\""))),
    }
}

/// The parameter `timeout_ms`.
pub fn timeout_of(query: &Query) -> Result<Option<Duration>, RestError> {
    let Some(text) = query.get("timeout_ms") else { return Ok(None) };
    match text.parse::<u64>() {
        Ok(ms) if ms > 0 => Ok(Some(Duration::from_millis(ms).min(LONGEST_TIMEOUT))),
        _ => Err(bad(format!("timeout_ms: expected a number of milliseconds above 0, found \"{text}\""))),
    }
}

/// The parameter `wait`: how long the answer may be held back, at most [`LONGEST_WAIT`].
pub fn wait_of(query: &Query) -> Result<Option<Duration>, RestError> {
    let Some(text) = query.non_empty("wait") else { return Ok(None) };
    match Duration::from_text(text) {
        Some(wait) => Ok(Some(wait.min(LONGEST_WAIT))),
        None => Err(bad(format!("wait: expected {}, found \"{text}\"", Duration::WANTS))),
    }
}

/// The parameter `revision`.
pub fn revision_of(query: &Query) -> Result<Option<Revision>, RestError> {
    above_zero(query, "revision")
}

/// The number that a parameter has, which must be above 0.
pub fn above_zero<N: FromStr + PartialOrd + Default>(
    query: &Query,
    name: &str,
) -> Result<Option<N>, RestError> {
    let Some(text) = query.non_empty(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) if number > N::default() => Ok(Some(number)),
        _ => Err(bad(format!("{name}: expected a number above 0, found \"{text}\""))),
    }
}

fn bad(text: String) -> RestError {
    RestError::new(StatusCode::BAD_REQUEST, text)
}

/// Whether the request's answer may be stale.
pub fn freshness_of(request: &Request) -> Result<Freshness, RestError> {
    Ok(Freshness::of(&query_of(request)?))
}

/// A job id in a path, or Flink's refusal.
pub fn job_id_in_path(text: &str) -> Result<JobId, RestError> {
    let id = job_id::parse(text).ok_or_else(|| RestError::bad_path_parameter("jobid", text))?;
    id.parse().map_err(|_| RestError::bad_path_parameter("jobid", text))
}

/// Refuses what is no id where Flink has one, as Flink does before it looks at anything else.
pub fn check_ids(parameters: &RawPathParams) -> Result<(), RestError> {
    let is_id = |name| matches!(name, "jobid" | "triggerid" | "vertexid");
    match parameters.iter().find(|(name, value)| is_id(*name) && job_id::parse(value).is_none()) {
        Some((name, value)) => Err(RestError::bad_path_parameter(name, value)),
        None => Ok(()),
    }
}

/// A jar id in a path. One with a slash in it is, to Flink, another route.
pub fn jar_id_in_path(
    Path(jar_id): Path<String>,
    raw: &RawPath,
    method: &Method,
) -> Result<String, RestError> {
    if jar_id.contains('/') {
        return Err(no_route(method, &raw.0));
    }
    Ok(jar_id)
}

/// The path as the client sent it.
pub fn raw_path(request: &Request) -> RawPath {
    let sent = request.extensions().get::<RawPath>().cloned();
    sent.unwrap_or_else(|| RawPath(request.uri().path().to_owned()))
}

/// Flink's 404 for a method and a path that no handler has.
pub fn no_route(method: &Method, raw: &str) -> RestError {
    if method == Method::GET { RestError::no_such_file(raw) } else { RestError::no_route(raw) }
}

/// The router's fallback.
pub async fn fallback(request: Request) -> Response {
    no_route(request.method(), &raw_path(&request).0).into_response()
}

/// A header as text.
pub fn header_of<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}
