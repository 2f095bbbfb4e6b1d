//! The rest of a refused body is read before its answer goes out. A server that closes a connection on which bytes still
//! come resets it, and the client may never see why it was refused.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use http::header;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

/// So long a refused client is listened to at most; what it sends is dropped.
const WITHIN: Duration = Duration::from_secs(30);
/// A refused client may be silent for so long.
const IDLE: Duration = Duration::from_secs(2);
/// Beyond [`IDLE`], a refused client is listened to for a second for each so many bytes.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// For `axum::middleware::from_fn`.
pub async fn read_rest(request: Request, next: Next) -> Response {
    let asks_first = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = Arc::new(Mutex::new(Shared { stream: body.into_data_stream(), begun: false, ended: false }));
    let response = next.run(Request::from_parts(parts, Body::from_stream(read(body.clone())))).await;
    let is_refused = response.status().is_client_error() || response.status().is_server_error();
    // A client that asks first has sent nothing, and reading would invite it to.
    if is_refused && (body.lock().begun || !asks_first) {
        let begun = Instant::now();
        let (mut by, mut bytes) = (begun + IDLE, 0);
        let mut rest = Box::pin(read(body));
        while let Ok(Some(Ok(chunk))) = timeout_at(by, rest.next()).await {
            bytes += chunk.len() as u64;
            by = begun + (IDLE + Duration::from_secs(bytes / BYTES_PER_SECOND)).min(WITHIN);
        }
    }
    response
}

/// A body that the handler reads, and what it leaves is read here.
struct Shared {
    stream: BodyDataStream,
    begun: bool,
    ended: bool,
}

fn read(body: Arc<Mutex<Shared>>) -> impl futures_util::Stream<Item = Result<Bytes, axum::Error>> + Send {
    poll_fn(move |cx| {
        let mut body = body.lock();
        if body.ended {
            return Poll::Ready(None);
        }
        body.begun = true;
        let next = body.stream.poll_next_unpin(cx);
        body.ended = matches!(next, Poll::Ready(None | Some(Err(_))));
        next
    })
}
