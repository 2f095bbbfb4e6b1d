//! `/jobmanager`: the process that answers, which is this dispatcher. `/datasets`, which only Flink's jobs make.

use axum::extract::State;
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::StatusCode;
use process_kit::config::Config;
use serde_json::json;

use crate::cluster_handlers::VERSION;
use crate::front::Front;
use crate::job_detail_handlers::pairs;

/// `GET /jobmanager/config`: every key of this dispatcher with its value. None of them is a secret.
pub async fn config(State(front): State<Front>) -> Response {
    let settings = front.options.settings();
    respond::ok(&pairs(settings.iter().map(|(key, value)| (*key, value.as_str()))))
}

/// `GET /jobmanager/environment`: there is no JVM, so its options and its class path are empty.
pub async fn environment() -> Response {
    let version = format!("none: metastore {VERSION} is a native program");
    respond::ok(&json!({
        "jvm": { "version": version, "arch": std::env::consts::ARCH, "options": [] },
        "classpath": [],
    }))
}

/// `GET /jobmanager/logs`: the log goes to standard error; this process keeps no files of it.
pub async fn logs() -> Response {
    respond::ok(&json!({ "logs": [] }))
}

/// `GET /jobmanager/log`, `/jobmanager/stdout`, `/jobmanager/logs/:filename`: none of the files in [`logs`].
pub async fn no_log() -> RestError {
    RestError::handler(StatusCode::NOT_FOUND, "This file does not exist in JobManager log dir.")
}

/// `GET /datasets`.
pub async fn datasets() -> Response {
    respond::ok(&json!({ "dataSets": [] }))
}
