//! `GET /run-async`: every run with its status; with `limit`, page by page.

use axum::extract::{Request, State};
use axum::response::Response;
use flink_rest::{RestError, respond};
use http::{HeaderValue, StatusCode, header};
use meta_client::Stored;
use records::keys::{RunKey, encode_segment};
use records::record::Run;
use records::{Scope, TriggerId, View};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::{Freshness, Front};
use crate::openapi::RunRow;
use crate::request::query_of;
use crate::status_jar_run_async_handler::queue_status;

/// The handler. Order: by trigger id. `limit` bounds a page and `after` starts it; the next one is in `Link`.
#[utoipa::path(get, path = "/run-async", tag = "runs", operation_id = "run_list",
    params(("limit" = Option<u64>, Query, description = "Most rows of an answer; the next page is in `Link`"),
        ("after" = Option<String>, Query, description = "Only trigger ids after this one"), ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "Every run, by trigger id", body = [RunRow], headers(
        ("link" = String, description = "The next page, if there is one")))))]
pub async fn list(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let query = query_of(&request)?;
    let limit = match query.non_empty("limit") {
        None => None,
        Some(text) => match text.parse::<usize>() {
            Ok(limit) if limit > 0 => Some(limit),
            _ => return Err(RestError::bad_query_parameter("limit", text).into()),
        },
    };
    let view = front.view(Scope::default().and_all::<RunKey>(), Freshness::of(&query)).await?;
    let listed = listed(&view, query.non_empty("after"))?;
    let page = &listed[..limit.unwrap_or(listed.len()).min(listed.len())];
    let rows: Vec<Value> = page.iter().map(|(trigger, run)| row(trigger, run)).collect();
    let mut response = respond::json(StatusCode::OK, &rows);
    if let (Some(limit), Some((last, _)), true) = (limit, page.last(), page.len() < listed.len()) {
        let after = encode_segment(last.as_str());
        let link = format!("</run-async?limit={limit}&after={after}>; rel=\"next\"");
        if let Ok(link) = HeaderValue::from_str(&link) {
            response.headers_mut().insert(header::LINK, link);
        }
    }
    Ok(response)
}

fn listed(view: &View, after: Option<&str>) -> Result<Vec<(TriggerId, Stored<Run>)>, ApiError> {
    let mut runs: Vec<_> = view
        .all::<RunKey>()?
        .into_iter()
        .filter(|(_, run)| !run.hidden)
        .map(|(key, run)| (key.trigger, run))
        .filter(|(trigger, _)| after.is_none_or(|after| trigger.as_str() > after))
        .collect();
    runs.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(runs)
}

fn row(trigger: &TriggerId, run: &Run) -> Value {
    json!({ "request-id": trigger.as_str(), "status": queue_status(run).to_json() })
}
