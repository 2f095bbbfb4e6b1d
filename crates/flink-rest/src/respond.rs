//! JSON answers with the headers Flink sends.

use axum::body::Body;
use axum::response::Response;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// Flink's content type, to the letter.
pub const JSON_CONTENT_TYPE: &str = "application/json; charset=UTF-8";

/// A JSON answer.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Our answers are structs and maps with string keys: they always serialize.
    let text = serde_json::to_vec(body).unwrap_or_else(|_| b"{}".to_vec());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_CONTENT_TYPE));
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// 200 with a JSON body.
pub fn ok(body: &impl Serialize) -> Response {
    json(StatusCode::OK, body)
}

/// Flink's empty object with this status.
pub fn empty(status: StatusCode) -> Response {
    json(status, &serde_json::json!({}))
}
