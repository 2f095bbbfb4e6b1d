//! Errors as Flink's REST server words them: always `{"errors": [...]}`, without Java stack frames.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use thiserror::Error;

use crate::respond;

/// Flink's class for most refusals; clients print it, some look for it.
pub const REST_HANDLER_EXCEPTION: &str = "org.apache.flink.runtime.rest.handler.RestHandlerException";
/// Flink's class for "no such thing".
pub const NOT_FOUND_EXCEPTION: &str = "org.apache.flink.runtime.rest.NotFoundException";

/// A refusal with its status and its texts.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{status}: {}", errors.join(" "))]
pub struct RestError {
    status: StatusCode,
    errors: Vec<String>,
    cors: bool,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl RestError {
    /// A refusal in our own words, for the routes Flink does not have.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, errors: vec![message.into()], cors: true, headers: Vec::new() }
    }

    /// A refusal of a Flink handler: the class name stands before the message.
    pub fn handler(status: StatusCode, message: impl AsRef<str>) -> Self {
        Self::new(status, format!("{REST_HANDLER_EXCEPTION}: {}", message.as_ref()))
    }

    /// A Flink 404 of something that a handler looked for.
    pub fn not_found(message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{NOT_FOUND_EXCEPTION}: {}", message.as_ref()))
    }

    /// Flink's answer to an exception that no handler expected: 500 and two texts.
    pub fn internal(cause: impl AsRef<str>) -> Self {
        let cause = cause.as_ref();
        Self {
            errors: vec![
                "Internal server error.".to_owned(),
                format!("<Exception on server side:\n{cause}\n\nEnd of exception on server side>"),
            ],
            ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "")
        }
    }

    /// No route and a GET: Flink's static file handler answers, without the CORS header.
    pub fn no_such_file(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("Unable to load requested file {path}.")).without_cors()
    }

    /// No route for this method and path.
    pub fn no_route(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("Not found: {path}"))
    }

    /// The body is not what the route takes; `format` is Flink's class name of the expected body.
    pub fn bad_format(format: &str) -> Self {
        Self::handler(StatusCode::BAD_REQUEST, format!("Request did not match expected format {format}."))
    }

    /// A path parameter that does not parse.
    pub fn bad_path_parameter(name: &str, value: &str) -> Self {
        Self::bad_parameter("path", name, value)
    }

    /// A query parameter that does not parse.
    pub fn bad_query_parameter(name: &str, value: &str) -> Self {
        Self::bad_parameter("query", name, value)
    }

    fn bad_parameter(kind: &str, name: &str, value: &str) -> Self {
        Self::handler(
            StatusCode::BAD_REQUEST,
            format!(
                "Bad request, could not parse parameters: Cannot resolve {kind} parameter ({name}) \
                 from value \"{value}\"."
            ),
        )
    }

    /// Leaves the CORS header out, as Flink does for a few refusals that are made below its handlers.
    pub fn without_cors(mut self) -> Self {
        self.cors = false;
        self
    }

    /// Adds what caused the refusal, in Java's manner, to the first text.
    pub fn caused_by(mut self, cause: &str) -> Self {
        if let Some(first) = self.errors.first_mut() {
            first.push_str("\nCaused by: ");
            first.push_str(cause);
        }
        self
    }

    /// Adds a header to the answer.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The texts.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "errors": self.errors });
        let mut response = respond::json(self.status, &body);
        if !self.cors {
            response.headers_mut().remove(http::header::ACCESS_CONTROL_ALLOW_ORIGIN);
        }
        for (name, value) in self.headers {
            response.headers_mut().append(name, value);
        }
        response
    }
}
