//! Serves HTTP to clients that may be slow, silent or many: a request line and headers have a time-out, and one
//! connection that breaks or cannot be accepted ends no other.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt as _};

/// How long a client may take to send its request line and headers, and may be silent between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after the system refused a connection (out of file descriptors).
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves until `end`; then takes no more connections and answers what it was asked. How long that may take is the
/// caller's to bound.
pub async fn serve<S>(listener: TcpListener, service: S, end: CancellationToken)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    serve_within(listener, service, end, HEADER_TIMEOUT).await;
}

async fn serve_within<S>(listener: TcpListener, service: S, end: CancellationToken, header_timeout: Duration)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(header_timeout);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = end.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(builder.clone(), stream, service.clone(), end.clone()));
            }
            Err(error) => refused(&error).await,
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn refused(error: &io::Error) {
    tracing::warn!(%error, "a client's connection was not accepted");
    tokio::time::sleep(ACCEPT_AGAIN).await;
}

async fn connection<S>(
    builder: auto::Builder<TokioExecutor>,
    stream: TcpStream,
    service: S,
    end: CancellationToken,
) where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    // Small answers are not held back for more.
    let _ = stream.set_nodelay(true);
    let service = service.map_request(|request: Request<hyper::body::Incoming>| request.map(Body::new));
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = end.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection broke");
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    async fn started() -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, end) = (listener.local_addr().unwrap(), CancellationToken::new());
        let app = Router::new().route("/hello", get(|| async { "hello" }));
        let served = tokio::spawn(serve_within(listener, app, end.clone(), Duration::from_millis(200)));
        (addr, end, served)
    }

    async fn reply(mut stream: TcpStream) -> String {
        let mut reply = String::new();
        let reading = stream.read_to_string(&mut reply);
        tokio::time::timeout(Duration::from_secs(20), reading).await.expect("the connection ends").unwrap();
        reply
    }

    #[tokio::test]
    async fn a_client_that_never_ends_its_headers_is_let_go_and_others_are_answered() {
        let (addr, end, served) = started().await;
        let mut slow = TcpStream::connect(addr).await.unwrap();
        slow.write_all(&REQUEST[..30]).await.unwrap();
        let mut other = TcpStream::connect(addr).await.unwrap();
        other.write_all(REQUEST).await.unwrap();
        assert!(reply(other).await.ends_with("hello"));
        let said = reply(slow).await;
        assert!(!said.contains("200 OK"), "{said}");
        end.cancel();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn after_the_end_nobody_connects() {
        let (addr, end, served) = started().await;
        end.cancel();
        served.await.unwrap();
        assert!(TcpStream::connect(addr).await.is_err());
    }
}
