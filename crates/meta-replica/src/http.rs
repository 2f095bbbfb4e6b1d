//! Plain HTTP on the client port: probes, version, and `GET /kv/KEY` for curl.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use meta_types::{KeyRange, KeyValue, RangeRequest, Refusal};
use percent_encoding::percent_decode_str;
use process_kit::Metrics;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::call::Deadline;
use crate::context::Context;
use crate::{CLUSTER_VERSION, ETCD_VERSION};

/// How long a probe waits for the cluster.
const PROBE: Duration = Duration::from_secs(3);
/// Keys of one page of `/kv`, unless asked for fewer.
const PAGE_KEYS: i64 = 1_000;
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes.
pub(crate) fn routes(context: Arc<Context>, metrics: Metrics) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/health", get(health))
        .route("/version", get(version))
        .route("/kv/{*key}", get(read))
        .with_state(context)
        .route(
            "/metrics",
            get(move || std::future::ready(([(header::CONTENT_TYPE, OPENMETRICS)], metrics.text()))),
        )
}

/// The routes of a replica that waits for its cluster: alive, not ready.
pub(crate) fn waiting_routes() -> Router {
    Router::new().route("/livez", get(|| async { "ok\n" })).fallback(crate::server::not_yet)
}

async fn version() -> Response {
    let version =
        json!({"etcdserver": ETCD_VERSION, "etcdcluster": CLUSTER_VERSION, "storage": CLUSTER_VERSION});
    ([(header::CONTENT_TYPE, "application/json")], version.to_string()).into_response()
}

#[derive(Debug, Default, Deserialize)]
struct HealthQuery {
    #[serde(default)]
    serializable: Option<String>,
    #[serde(default)]
    exclude: Option<String>,
}

/// Why the replica is not healthy, in etcd's words; `None` if it is.
async fn ailment(context: &Context, query: &HealthQuery) -> Option<&'static str> {
    if context.quota.is_exceeded() && query.exclude.as_deref() != Some("NOSPACE") {
        return Some("ALARM NOSPACE");
    }
    let deadline = Deadline { timeout: PROBE, clients: false };
    if query.serializable.as_deref() == Some("true") {
        return context.serving(&deadline).await.err().map(|_| "RANGE ERROR:not serving yet");
    }
    if !*context.has_leader.borrow() {
        return Some("RAFT NO LEADER");
    }
    context.read_index(&deadline).await.err().map(|_| "RANGE ERROR:etcdserver: request timed out")
}

async fn health(State(context): State<Arc<Context>>, Query(query): Query<HealthQuery>) -> Response {
    let (code, health) = match ailment(&context, &query).await {
        None => (StatusCode::OK, r#"{"health":"true","reason":""}"#.to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!(r#"{{"health":"false","reason":"{why}"}}"#)),
    };
    (code, [(header::CONTENT_TYPE, "application/json")], health).into_response()
}

async fn readyz(State(context): State<Arc<Context>>) -> Response {
    // A full store still serves.
    let query = HealthQuery { exclude: Some("NOSPACE".to_owned()), ..HealthQuery::default() };
    match ailment(&context, &query).await {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

#[derive(Debug, Default, Deserialize)]
struct ReadQuery {
    prefix: Option<String>,
    serializable: Option<String>,
    limit: Option<i64>,
}

fn is_set(flag: &Option<String>) -> bool {
    flag.as_deref().is_some_and(|value| !matches!(value, "0" | "false"))
}

async fn read(State(context): State<Arc<Context>>, Query(query): Query<ReadQuery>, uri: Uri) -> Response {
    let encoded = uri.path().strip_prefix("/kv/").unwrap_or_default();
    let key: Vec<u8> = percent_decode_str(encoded).collect();
    let prefix = is_set(&query.prefix);
    let range = if prefix { KeyRange::prefix(key) } else { KeyRange::one(key) };
    let limit = query.limit.filter(|limit| (1..PAGE_KEYS).contains(limit)).unwrap_or(PAGE_KEYS);
    let request = RangeRequest { range, limit, ..RangeRequest::default() };
    let waited = if is_set(&query.serializable) {
        context.serving(&Deadline::SERVER).await
    } else {
        context.read_index(&Deadline::SERVER).await
    };
    if let Err(status) = waited {
        return problem(StatusCode::SERVICE_UNAVAILABLE, status.message());
    }
    let snapshot = context.core.read().snapshot();
    let reply = match snapshot.range(&request) {
        Ok(reply) => reply,
        Err(refusal @ Refusal::EmptyKey) => return problem(StatusCode::BAD_REQUEST, &refusal.to_string()),
        Err(refusal) => return problem(StatusCode::INTERNAL_SERVER_ERROR, &refusal.to_string()),
    };
    let body = if prefix {
        let kvs: Vec<_> = reply.kvs.iter().map(|kv| Value::Object(describe(kv))).collect();
        json!({"revision": snapshot.revision(), "count": reply.count, "more": reply.more, "kvs": kvs})
    } else if let Some(kv) = reply.kvs.first() {
        let mut body = describe(kv);
        body.insert("revision".to_owned(), snapshot.revision().into());
        Value::Object(body)
    } else {
        return problem(StatusCode::NOT_FOUND, "no such key");
    };
    ([(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

fn problem(code: StatusCode, text: &str) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], format!("{}\n", json!({"error": text})))
        .into_response()
}

/// A key as JSON. What is not UTF-8 stands under `key_base64` or `value_base64` instead.
fn describe(kv: &KeyValue) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, bytes) in [("key", &kv.key), ("value", &kv.value)] {
        match std::str::from_utf8(bytes) {
            Ok(text) => fields.insert(name.to_owned(), text.into()),
            Err(_) => fields.insert(format!("{name}_base64"), base64(bytes).into()),
        };
    }
    for (name, number) in [
        ("create_revision", kv.create_revision),
        ("mod_revision", kv.mod_revision),
        ("version", kv.version),
        ("lease", kv.lease),
    ] {
        fields.insert(name.to_owned(), number.into());
    }
    fields
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| word << 8 | u32::from(*group.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63] as char;
            // Writing into a String cannot fail.
            let _ = out.write_char(if i <= group.len() { digit } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_everybody_writes_it() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"\xff\xfe\xfd\xfc", "//79/A=="),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn what_is_not_text_is_marked() {
        let kv = KeyValue { key: "k".into(), value: (&b"\xff"[..]).into(), ..KeyValue::default() };
        let fields = describe(&kv);
        assert_eq!(fields["key"], "k");
        assert_eq!(fields["value_base64"], "/w==");
        assert!(!fields.contains_key("value"));
    }
}
