//! `GET /run-async`: every run with its status; with `limit`, page by page. The pages of one list are of one revision:
//! runs that come, go or end meanwhile change none of them.

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use flink_rest::query::Query;
use flink_rest::{RestError, respond};
use http::{HeaderValue, StatusCode, header};
use meta_client::{KvError, Stored, TypedKey};
use meta_types::{KeyRange, KeyValue, RangeRequest, Revision};
use records::TriggerId;
use records::keys::{RunKey, encode_segment};
use records::record::{Phase, Run};
use records::time::parse_rfc3339;
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::{Freshness, Front};
use crate::limits::LIST_PIECE;
use crate::openapi::{Refused, RunRow};
use crate::request::{above_zero, flag_of, known_parameters, query_of, revision_of};
use crate::status_jar_run_async_handler::queue_status;

/// The handler. Order: by trigger id as its path has it, percent-encoded.
#[utoipa::path(get, path = "/run-async", tag = "runs", operation_id = "run_list",
    params(("status" = Option<String>, Query, description = "Only IN_PROGRESS or only COMPLETED ones"),
        ("since" = Option<String>, Query, description = "Only those accepted then or later: RFC 3339, or milliseconds since 1970"),
        ("limit" = Option<u64>, Query, description = "Most rows of an answer; the next page is in `Link`"),
        ("after" = Option<String>, Query, description = "Only trigger ids after this one"),
        ("revision" = Option<i64>, Query, description = "The list as it was then; `Link` has it, so that all pages are of one moment"),
        ("stale" = Option<bool>, Query, description = "Take the answer of any replica, which may lag")),
    responses((status = 200, description = "The runs, by trigger id", body = [RunRow], headers(
            ("link" = String, description = "The next page, if there is one"))),
        (status = 410, description = "The store has forgotten that revision: list from the beginning", body = Refused)))]
pub async fn list(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let wanted = Wanted::of(&query_of(&request)?)?;
    let page = wanted.page(&front).await?;
    let rows: Vec<Value> = page.runs.iter().map(|(trigger, run)| row(trigger, run)).collect();
    let mut response = respond::json(StatusCode::OK, &rows);
    let last = page.runs.last().filter(|_| page.more);
    if let Some(Ok(link)) = last.map(|(last, _)| HeaderValue::from_str(&wanted.next(last, page.revision))) {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

/// What is asked for.
struct Wanted {
    is_completed: Option<bool>,
    since_ms: Option<u64>,
    limit: Option<usize>,
    after: Option<String>,
    revision: Option<Revision>,
    freshness: Freshness,
}

/// Some of the runs, all as of one revision.
struct Page {
    runs: Vec<(TriggerId, Run)>,
    revision: Revision,
    more: bool,
}

impl Wanted {
    fn of(query: &Query) -> Result<Self, RestError> {
        known_parameters(query, &["after", "limit", "revision", "since", "stale", "status"])?;
        flag_of(query, "stale")?;
        Ok(Self {
            is_completed: status_of(query)?,
            since_ms: since_of(query)?,
            limit: above_zero(query, "limit")?,
            after: query.non_empty("after").map(str::to_owned),
            revision: revision_of(query)?,
            freshness: Freshness::of(query),
        })
    }

    fn takes(&self, run: &Run) -> bool {
        let is_completed = run.phase == Phase::Completed;
        !run.hidden
            && self.is_completed.is_none_or(|wanted| wanted == is_completed)
            && self.since_ms.is_none_or(|since| run.accepted_at_ms >= since)
    }

    /// Reads pieces until the page is full and one more run is seen, or there are no more.
    async fn page(&self, front: &Front) -> Result<Page, ApiError> {
        let mut page = Page { runs: Vec::new(), revision: self.revision.unwrap_or(0), more: false };
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut range = KeyRange::prefix(RunKey::PREFIX);
        if let Some(after) = &self.after {
            range.key = behind(format!("{}{}", RunKey::PREFIX, encode_segment(after)).as_bytes());
        }
        loop {
            let piece = front.piece(self.request(range.clone(), &page)).await.map_err(of_old_revision)?;
            if page.revision == 0 {
                page.revision = piece.revision;
            }
            for (trigger, run) in piece.value.kvs.iter().filter_map(|kv| read(kv)) {
                if !self.takes(&run) {
                    continue;
                }
                if page.runs.len() == limit {
                    page.more = true;
                    return Ok(page);
                }
                page.runs.push((trigger, run));
            }
            match piece.value.kvs.last().filter(|_| piece.value.more) {
                Some(last) => range.key = behind(&last.key),
                None => return Ok(page),
            }
        }
    }

    /// One more than the page still takes, as whether there are more is told too; filters take a part of what is read.
    fn request(&self, range: KeyRange, page: &Page) -> RangeRequest {
        let is_filtered = self.is_completed.is_some() || self.since_ms.is_some();
        let wanted =
            self.limit.filter(|_| !is_filtered).map(|limit| (limit - page.runs.len()).saturating_add(1));
        RangeRequest {
            range,
            limit: wanted.unwrap_or(LIST_PIECE).min(LIST_PIECE) as i64,
            revision: page.revision,
            // A replica that lags may not have the first piece's revision yet.
            serializable: self.freshness == Freshness::Stale && page.revision == 0,
            ..RangeRequest::default()
        }
    }

    /// The header that leads to the next page.
    fn next(&self, last: &TriggerId, revision: Revision) -> String {
        let mut query = format!("revision={revision}&after={}", encode_segment(last.as_str()));
        let parameters = [
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("status", self.is_completed.map(|completed| status_text(completed).to_owned())),
            ("since", self.since_ms.map(|since| since.to_string())),
        ];
        for (name, value) in parameters {
            query.extend(value.map(|value| format!("&{name}={value}")));
        }
        format!("</run-async?{query}>; rel=\"next\"")
    }
}

/// The first key behind this one.
fn behind(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// Unreadable records are left to the invariant that names them.
fn read(kv: &KeyValue) -> Option<(TriggerId, Run)> {
    let key = RunKey::decode(std::str::from_utf8(&kv.key).ok()?)?;
    Some((key.trigger, Stored::<Run>::read(kv).ok()?.value))
}

fn row(trigger: &TriggerId, run: &Run) -> Value {
    json!({ "request-id": trigger.as_str(), "status": queue_status(run).to_json() })
}

fn status_text(is_completed: bool) -> &'static str {
    if is_completed { "COMPLETED" } else { "IN_PROGRESS" }
}

fn status_of(query: &Query) -> Result<Option<bool>, RestError> {
    let Some(text) = query.non_empty("status") else { return Ok(None) };
    match [true, false].into_iter().find(|completed| status_text(*completed) == text) {
        Some(completed) => Ok(Some(completed)),
        None => Err(bad(format!("status: expected IN_PROGRESS or COMPLETED, found \"{text}\""))),
    }
}

fn since_of(query: &Query) -> Result<Option<u64>, RestError> {
    let Some(text) = query.non_empty("since") else { return Ok(None) };
    match text.parse().ok().or_else(|| parse_rfc3339(text)) {
        Some(since) => Ok(Some(since)),
        None => Err(bad(format!(
            "since: expected a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970, found \"{text}\""
        ))),
    }
}

fn bad(text: String) -> RestError {
    RestError::new(StatusCode::BAD_REQUEST, text)
}

/// gRPC's code for a revision that is not there yet.
const OUT_OF_RANGE: i32 = 11;

fn of_old_revision(error: KvError) -> ApiError {
    match error {
        KvError::Compacted { compact_revision } => RestError::new(
            StatusCode::GONE,
            format!(
                "the store has forgotten what was before revision {compact_revision}: list from the beginning"
            ),
        )
        .into(),
        KvError::Rejected { code: OUT_OF_RANGE, .. } => {
            bad("revision: the store is not that far; take it from Link".to_owned()).into()
        }
        error => error.into(),
    }
}
