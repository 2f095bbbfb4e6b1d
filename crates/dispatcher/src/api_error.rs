//! What went wrong, as an answer: the class decides the status, the text says what to do.

use flink_rest::RestError;
use http::{HeaderValue, StatusCode, header};
use meta_client::{KvError, RecordError};
use records::{Class, Refusal};
use thiserror::Error;

/// Why a handler has no good answer.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The answer is made already.
    #[error(transparent)]
    Rest(#[from] RestError),
    /// A planner said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] KvError),
    /// A record cannot be read by this binary.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl From<ApiError> for RestError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Rest(error) => error,
            ApiError::Refused(refusal) => of_refusal(&refusal),
            ApiError::Store(error) => of_store(&error),
            ApiError::Record(error) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl axum::response::IntoResponse for ApiError {
    fn into_response(self) -> axum::response::Response {
        RestError::from(self).into_response()
    }
}

/// The status of the refusal's class, and its text behind the class's code.
pub fn of_refusal(refusal: &Refusal) -> RestError {
    let status = StatusCode::from_u16(refusal.class.http_status()).unwrap_or(StatusCode::CONFLICT);
    let text = match refusal.class {
        Class::BadRequest | Class::NotFound => refusal.text.clone(),
        class => format!("{}: {}", class.code(), refusal.text),
    };
    let error = RestError::new(status, text);
    if status == StatusCode::SERVICE_UNAVAILABLE { retry_later(error) } else { error }
}

/// A read that failed, or a write that surely did nothing.
pub fn of_store(error: &KvError) -> RestError {
    match error {
        KvError::NotSent(why) | KvError::Unknown(why) => retry_later(RestError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "the metastore does not answer ({why}): metactl endpoint health tells whether a majority of its \
                 replicas runs; try again"
            ),
        )),
        KvError::Rejected { .. } | KvError::Compacted { .. } => {
            RestError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    }
}

/// A write whose outcome nobody knows; `ask` says how to find out.
pub fn outcome_unknown(error: &KvError, ask: &str) -> RestError {
    match error {
        KvError::Unknown(_) => retry_later(RestError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the metastore did not answer; the request may have been accepted; ask {ask}"),
        )),
        _ => of_store(error),
    }
}

/// With a `Retry-After`.
pub fn retry_later(error: RestError) -> RestError {
    error.with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

/// 503: nobody can take code.
pub fn no_server_node() -> RestError {
    retry_later(RestError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "no server node is alive; start a jobmaster or set single.enable=false",
    ))
}
