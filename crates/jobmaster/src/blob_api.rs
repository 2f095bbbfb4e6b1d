//! The node API's part that gives files of packages to other nodes.

use std::collections::{BTreeMap, HashMap};
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt;
use icp_store::Digest;
use icp_store::peer::{HOLDERS_HEADER, INSIST_HEADER, NODE_HEADER};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::time::Instant;
use tokio_util::io::ReaderStream;

use crate::host::Host;
use crate::node_api::{Failed, bad_request, disk_failed, not_found};

/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Smaller files are given to everybody.
const SPREAD_FROM: u64 = 1 << 20;
/// How many nodes are given a larger one before the others are sent to them.
const GIVEN_TO: usize = 2;
/// How long a node counts as one that was given a file.
const GIVEN_FOR: Duration = Duration::from_secs(60);

/// Who was given which file of late.
#[derive(Debug, Default)]
pub struct Given {
    to: Mutex<HashMap<Digest, BTreeMap<String, Instant>>>,
}

impl Given {
    /// Where the asking node is to go; none = it is given the file here. Who does not say where it serves files
    /// itself is given everything.
    fn others(&self, digest: Digest, asking: &HeaderMap) -> Option<Vec<String>> {
        let node = asking.get(NODE_HEADER).and_then(|node| node.to_str().ok())?;
        let insists = asking.contains_key(INSIST_HEADER);
        self.next(digest, node, insists, Instant::now())
    }

    fn next(&self, digest: Digest, node: &str, insists: bool, now: Instant) -> Option<Vec<String>> {
        let mut to = self.to.lock();
        to.retain(|_, nodes| {
            nodes.retain(|_, at| now.saturating_duration_since(*at) < GIVEN_FOR);
            !nodes.is_empty()
        });
        let nodes = to.entry(digest).or_default();
        if insists || nodes.contains_key(node) || nodes.len() < GIVEN_TO {
            nodes.insert(node.to_owned(), now);
            return None;
        }
        Some(nodes.keys().cloned().collect())
    }
}

fn busy(holders: &[String]) -> Response {
    let text = format!("the file is being given to {}: ask there", holders.join(", "));
    let headers = [(HOLDERS_HEADER, holders.join(",")), (header::RETRY_AFTER.as_str(), "1".to_owned())];
    let body = axum::Json(json!({ "errors": [text], "reason": "BUSY" }));
    (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
}

/// `GET /blobs/{hash}`, whole or from a byte on. To many nodes at once each node gives a file only twice: the others
/// are sent to those that have it by now, so that a package spreads as a tree.
pub async fn blob(
    State(host): State<Arc<Host>>,
    Path(digest): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failed> {
    let digest: Digest = digest.parse().map_err(bad_request)?;
    let path = host.on_disk(move |store| store.blob(&digest)).await;
    let path = path.ok_or_else(|| not_found(format!("no file with hash {digest} is on this node")))?;
    let mut file = tokio::fs::File::open(path).await.map_err(disk_failed)?;
    let size = file.metadata().await.map_err(disk_failed)?.len();
    if size >= SPREAD_FROM
        && let Some(holders) = host.given.others(digest, &headers)
    {
        return Ok(busy(&holders));
    }
    let from = match headers.get(header::RANGE) {
        None => None,
        Some(range) => Some(range_start(range.to_str().unwrap_or_default(), size)?),
    };
    let start = from.unwrap_or(0);
    file.seek(SeekFrom::Start(start)).await.map_err(disk_failed)?;
    let sent = host.metrics.blob_bytes.clone();
    let chunks = ReaderStream::with_capacity(file.take(size - start), CHUNK_BYTES);
    let body = Body::from_stream(chunks.inspect_ok(move |chunk| {
        sent.inc_by(chunk.len() as u64);
    }));
    let length = (header::CONTENT_LENGTH, (size - start).to_string());
    let kind = (header::CONTENT_TYPE, "application/octet-stream".to_owned());
    Ok(match from {
        None => (StatusCode::OK, [length, kind], body).into_response(),
        Some(start) => {
            let last = size.saturating_sub(1);
            let range = (header::CONTENT_RANGE, format!("bytes {start}-{last}/{size}"));
            (StatusCode::PARTIAL_CONTENT, [length, kind, range], body).into_response()
        }
    })
}

/// `bytes=N-`, the only form that a resumed fetch needs.
fn range_start(range: &str, size: u64) -> Result<u64, Failed> {
    let start = range.strip_prefix("bytes=").and_then(|r| r.strip_suffix('-')).and_then(|n| n.parse().ok());
    match start {
        Some(start) if start <= size => Ok(start),
        Some(_) => {
            Err(Failed::new(StatusCode::RANGE_NOT_SATISFIABLE, "RANGE", format!("the file has {size} bytes")))
        }
        None => Err(bad_request(format!("range {range:?}: wants bytes=N-"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_node_is_sent_to_the_first_two_until_they_are_forgotten() {
        let (given, file, now) = (Given::default(), Digest::of(b"x"), Instant::now());
        let ask = |node: &str, at| given.next(file, node, false, now + Duration::from_secs(at));
        assert_eq!((ask("a:1", 0), ask("b:1", 1)), (None, None));
        assert_eq!(ask("a:1", 2), None, "a resumed transfer");
        assert_eq!(ask("c:1", 3), Some(vec!["a:1".to_owned(), "b:1".to_owned()]));
        assert_eq!(given.next(Digest::of(b"y"), "c:1", false, now), None, "another file");
        assert_eq!(given.next(file, "d:1", true, now), None, "who insists is given it");
        assert_eq!(ask("e:1", 100), None);
    }
}
