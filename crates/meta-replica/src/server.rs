//! One port for gRPC and HTTP/1: connections, their end, and the two answers that no service gives.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use meta_raft::{Connection, Listener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tower::ServiceExt as _;

/// Pause after the system refused a connection (out of file descriptors).
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How long calls under way may go on once the replica ends.
const DRAIN: Duration = Duration::from_secs(2);
/// Silence after which a client is asked whether it is still there, as etcd.
const KEEP_ALIVE: Duration = Duration::from_secs(2 * 3600);
/// How long its answer may take.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an HTTP/1 client may take to send its request line and headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of one stream's requests that may be under way.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// Calls given up by the client before they were looked at, above which its connection is closed as hostile.
/// A client whose deadlines pass while this replica is slow gives up many at once.
const RESET_STREAMS: usize = 16_384;
/// Bytes of a connection's requests that may be under way.
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;

/// Serves until the shutdown, then drains. Gives the port back so that another service may go on with it.
pub(crate) async fn serve(
    listener: Box<dyn Listener>,
    router: Router,
    shutdown: CancellationToken,
) -> Box<dyn Listener> {
    let builder = builder();
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                connections.spawn(connection(builder.clone(), stream, router.clone(), shutdown.clone()));
            }
            Err(error) => refused(&error).await,
        }
    }
    connections.close();
    connections.wait().await;
    listener
}

async fn refused(error: &io::Error) {
    tracing::warn!(%error, "a client's connection was not accepted");
    tokio::time::sleep(ACCEPT_AGAIN).await;
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(None)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(RESET_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
}

async fn connection(
    builder: auto::Builder<TokioExecutor>,
    stream: Box<dyn Connection>,
    router: Router,
    shutdown: CancellationToken,
) {
    let service = tower::service_fn(move |request: Request<hyper::body::Incoming>| {
        let router = router.clone();
        async move {
            let response = router.oneshot(request.map(Body::new)).await?;
            Ok::<_, Infallible>(too_large_as_etcd(response))
        }
    });
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = shutdown.cancelled() => {
            served.as_mut().graceful_shutdown();
            tokio::time::timeout(DRAIN, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection broke");
    }
}

/// A message over the limit is refused by the codec with its own code and text; clients know etcd's.
fn too_large_as_etcd(response: Response<Body>) -> Response<Body> {
    const OUT_OF_RANGE: &str = "11";
    if response.headers().get("grpc-status").is_none_or(|code| code != OUT_OF_RANGE) {
        return response;
    }
    let Some(status) = Status::from_header_map(response.headers()) else { return response };
    match too_large(status.message()) {
        Some((found, limit)) => {
            let text = format!("grpc: received message larger than max ({found} vs. {limit})");
            Status::resource_exhausted(text).into_http()
        }
        None => response,
    }
}

/// The two numbers of tonic's refusal.
fn too_large(message: &str) -> Option<(u64, u64)> {
    let rest = message.strip_prefix("Error, decoded message length too large: found ")?;
    let (found, rest) = rest.split_once(" bytes, the limit is: ")?;
    Some((found.parse().ok()?, rest.strip_suffix(" bytes")?.parse().ok()?))
}

/// What a path gets that nobody serves.
pub(crate) async fn not_found(request: Request<Body>) -> Response<Body> {
    let service = request.uri().path().trim_start_matches('/').split('/').next().unwrap_or_default();
    if is_grpc(request.headers()) {
        return Status::unimplemented(format!("unknown service {service}")).into_http();
    }
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

/// What every call gets while the replica waits for its cluster.
pub(crate) async fn not_yet(request: Request<Body>) -> Response<Body> {
    if is_grpc(request.headers()) {
        return Status::unavailable(meta_api::status::NO_LEADER).into_http();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "the replica waits for its cluster\n").into_response()
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/grpc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codecs_refusal_is_put_in_etcds_words() {
        let text =
            "Error, decoded message length too large: found 3145738 bytes, the limit is: 2097152 bytes";
        let response = too_large_as_etcd(Status::out_of_range(text).into_http());
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert_eq!(status.message(), "grpc: received message larger than max (3145738 vs. 2097152)");
        let other = too_large_as_etcd(Status::out_of_range("etcdserver: x").into_http());
        assert_eq!(Status::from_header_map(other.headers()).unwrap().message(), "etcdserver: x");
    }
}
