//! Figures and health: one registry a process, and the routes `/metrics`, `/livez`, `/readyz`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, metrics::info::Info, registry::Registry};

/// What a scraper is told of the text that `/metrics` answers.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The registry of a process; clones share it.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// A registry that knows which binary it is in: `metastore_build_info{version, role}`.
    pub fn new(role: &'static str) -> Self {
        let mut registry = Registry::default();
        let info = Info::new(vec![("version", env!("CARGO_PKG_VERSION")), ("role", role)]);
        registry.register("metastore_build", "Version and role of the process", info);
        Self(Arc::new(Mutex::new(registry)))
    }

    /// Registers metrics.
    pub fn with<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.0.lock())
    }

    /// The text of `/metrics`.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut out, &self.0.lock());
        out
    }
}

/// What a process still waits for before it serves; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Readiness {
    /// Ready until told otherwise.
    pub fn new() -> Self {
        Self::default()
    }

    /// `what` is not ready, because of `why`.
    pub fn waiting(&self, what: &'static str, why: impl Into<String>) {
        self.0.lock().insert(what, why.into());
    }

    /// `what` is ready.
    pub fn ready(&self, what: &'static str) {
        self.0.lock().remove(what);
    }

    /// `Ok`, or one line with everything that is not ready.
    pub fn check(&self) -> Result<(), String> {
        let waiting = self.0.lock();
        if waiting.is_empty() {
            return Ok(());
        }
        let reasons: Vec<_> = waiting.iter().map(|(what, why)| format!("{what}: {why}")).collect();
        Err(reasons.join("; "))
    }
}

/// `/metrics`, `/livez` (the process runs) and `/readyz` (it serves), to be merged into a process's router.
pub fn ops_routes(metrics: Metrics, readiness: Readiness) -> Router {
    Router::new()
        .route("/metrics", get(move || std::future::ready(metrics_answer(&metrics))))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(move || std::future::ready(ready_answer(&readiness))))
}

fn metrics_answer(metrics: &Metrics) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.text()).into_response()
}

fn ready_answer(readiness: &Readiness) -> Response {
    match readiness.check() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_everything_it_waits_for() {
        let readiness = Readiness::new();
        readiness.waiting("leader", "none elected");
        readiness.waiting("disk", "replaying the log");
        assert_eq!(readiness.check().unwrap_err(), "disk: replaying the log; leader: none elected");
        readiness.ready("leader");
        readiness.ready("disk");
        assert_eq!(ready_answer(&readiness).status(), StatusCode::OK);
    }

    #[test]
    fn the_text_names_the_build() {
        let text = Metrics::new("replica").text();
        assert!(text.contains("metastore_build_info{") && text.contains("role=\"replica\""), "{text}");
    }
}
