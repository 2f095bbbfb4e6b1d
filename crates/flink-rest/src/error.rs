//! Errors as Flink's REST server words them: always `{"errors": [...]}`, each text one line. Where Flink goes on with a
//! stack trace, we stop; where it goes on with a cause, that is a text of its own.

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
    pub fn new(status: StatusCode, message: impl AsRef<str>) -> Self {
        Self { status, errors: vec![first_line(message.as_ref())], cors: true, headers: Vec::new() }
    }

    /// A refusal of a Flink handler: the class name stands before the message.
    pub fn handler(status: StatusCode, message: impl AsRef<str>) -> Self {
        Self::new(status, format!("{REST_HANDLER_EXCEPTION}: {}", message.as_ref()))
    }

    /// A Flink 404 of something that a handler looked for.
    pub fn not_found(message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{NOT_FOUND_EXCEPTION}: {}", message.as_ref()))
    }

    /// Flink's answer to an exception that no handler expected: 500 and two texts. Flink puts the second between two
    /// more lines.
    pub fn internal(cause: impl AsRef<str>) -> Self {
        let mut error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error.");
        error.errors.push(first_line(cause.as_ref()));
        error
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

    /// Adds what caused the refusal, in Java's manner.
    pub fn caused_by(mut self, cause: &str) -> Self {
        self.errors.push(first_line(&format!("Caused by: {cause}")));
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

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_one_line() {
        let trace = "java.lang.IllegalStateException: boom\n\tat A.main(A.java:1)\r\n\tat B";
        for error in [
            RestError::new(StatusCode::CONFLICT, trace),
            RestError::handler(StatusCode::BAD_REQUEST, trace),
            RestError::internal(trace),
            RestError::handler(StatusCode::BAD_REQUEST, "Could not execute application.").caused_by(trace),
        ] {
            assert!(error.errors().iter().all(|text| !text.contains(['\n', '\r'])), "{error}");
            assert!(error.errors().iter().any(|text| text.ends_with("boom")), "{error}");
        }
    }
}
