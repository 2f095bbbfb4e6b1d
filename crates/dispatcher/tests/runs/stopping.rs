//! A dispatcher that is told to stop: what came before is answered, what it drives goes on elsewhere at once.

use std::sync::Arc;
use std::time::Duration;

use dispatcher::DispatcherOptions;
use process_kit::Shutdown;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Cluster, PATIENCE};

/// How long a process that stops may take on a slow machine.
const GRACE: Duration = Duration::from_secs(30);

/// Two dispatchers; the first one takes one run at once and can be stopped alone.
async fn two() -> (Cluster, Shutdown) {
    let mut cluster = Cluster::start(0).await;
    let (all, first) = (cluster.shutdown.clone(), Shutdown::new());
    cluster.shutdown = first.clone();
    let kv = Arc::new(cluster.kv.clone());
    cluster.add_dispatcher_with(kv, first_options).await;
    cluster.shutdown = all;
    cluster.add_dispatcher(Arc::new(cluster.kv.clone())).await;
    (cluster, first)
}

/// The same, and the first one hosts JobMasters in a directory of its own.
async fn two_the_first_hosting() -> (Cluster, Shutdown, tempfile::TempDir) {
    let mut cluster = Cluster::start(0).await;
    let (all, first) = (cluster.shutdown.clone(), Shutdown::new());
    cluster.shutdown = first.clone();
    let directory = cluster.host_with("d1", first_options).await;
    cluster.shutdown = all;
    cluster.add_dispatcher(Arc::new(cluster.kv.clone())).await;
    (cluster, first, directory)
}

fn first_options(options: &mut DispatcherOptions) {
    options.run_submit_concurrent = 1;
    // No lease runs out in these tests: what goes on was given back.
    options.lease = Duration::from_secs(120);
}

/// Sends the head and the first half of a request.
async fn begin(cluster: &Cluster, head: &str, half: &str) -> TcpStream {
    let mut stream = TcpStream::connect(cluster.dispatchers[0].rest_address).await.unwrap();
    stream.write_all(format!("{head}\r\nhost: d1\r\n\r\n{half}").as_bytes()).await.unwrap();
    stream
}

/// Returns when the first dispatcher reads the run that was begun: then it has no room for another.
async fn until_taken(cluster: &Cluster) {
    let full = || async { (cluster.post(0, "/run-async", "nonsense").await.status == 503).then_some(()) };
    cluster.until(full).await;
}

/// A run T1 whose POST is half sent to the first dispatcher and taken by it, and the other half.
async fn half_sent(cluster: &Cluster) -> (TcpStream, String) {
    cluster.node("n1", 1).await;
    half_sent_to_those(cluster).await
}

/// The same with the nodes that are there.
async fn half_sent_to_those(cluster: &Cluster) -> (TcpStream, String) {
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    let (half, rest) = body.split_at(20);
    let head = format!("POST /run-async HTTP/1.1\r\ncontent-length: {}", body.len());
    let stream = begin(cluster, &head, half).await;
    until_taken(cluster).await;
    (stream, rest.to_owned())
}

async fn read_all(mut stream: TcpStream) -> String {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("it answers and closes").unwrap();
    text
}

async fn refuses_connections(cluster: &Cluster) {
    let address = cluster.dispatchers[0].rest_address;
    cluster.until(|| async { TcpStream::connect(address).await.is_err().then_some(()) }).await;
}

/// O3: a run whose POST was under way is taken under the registration it came under, and another dispatcher goes on.
#[tokio::test]
async fn a_request_that_came_before_is_answered_and_its_run_goes_on_elsewhere() {
    let (cluster, first) = two().await;
    let sent = half_sent(&cluster).await;
    is_answered_under_its_registration(&cluster, first, sent).await;
    goes_on_elsewhere(cluster).await;
}

/// The same where JobMasters are hosted: the node's registration is the dispatcher's.
#[tokio::test]
async fn a_request_that_came_before_to_a_dispatcher_that_hosts_is_answered_too() {
    let (cluster, first, _directory) = two_the_first_hosting().await;
    // Its own node takes the JAR: one that is not real never would.
    let sent = half_sent_to_those(&cluster).await;
    is_answered_under_its_registration(&cluster, first, sent).await;
    cluster.node("n1", 1).await;
    goes_on_elsewhere(cluster).await;
}

async fn is_answered_under_its_registration(
    cluster: &Cluster,
    first: Shutdown,
    (mut stream, rest): (TcpStream, String),
) {
    let stopping = tokio::spawn({
        let first = first.clone();
        async move { first.finish(GRACE).await }
    });
    refuses_connections(cluster).await;
    let session = cluster.dispatchers[0].session.borrow().clone().expect("still registered");
    // It keeps what the request came under.
    let given_back = cluster.until(|| async { (!cluster.kv.keep_alive(session.lease)).then_some(()) });
    assert!(timeout(Duration::from_millis(300), given_back).await.is_err());
    stream.write_all(rest.as_bytes()).await.unwrap();
    let answer = read_all(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains(r#"{"request-id":"T1"}"#), "{answer}");
    assert_eq!(stopping.await.unwrap(), [""; 0], "nobody is late");
    assert!(!cluster.kv.keep_alive(session.lease), "the lease is given back");
}

async fn goes_on_elsewhere(cluster: Cluster) {
    assert_eq!(cluster.completed(1, "T1").await.json["run"]["accepted-by"], "d1");
    cluster.stop().await;
}

/// A request that takes longer than a stopping process may is told to go elsewhere, and nothing of it is stored.
#[tokio::test]
async fn what_comes_too_late_is_sent_elsewhere() {
    let (cluster, first) = two().await;
    let (mut stream, rest) = half_sent(&cluster).await;
    let session = cluster.dispatchers[0].session.borrow().clone().expect("registered");
    first.begin();
    cluster.until(|| async { (!cluster.kv.keep_alive(session.lease)).then_some(()) }).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    let answer = read_all(stream).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    assert_eq!(cluster.get(1, "/run-async/T1").await.status, 404);
    cluster.stop().await;
}

/// C9: the run of a stopping dispatcher is somebody's at once, not when a lease has run out, and its end is told.
#[tokio::test]
async fn its_runs_are_adopted_at_once_and_their_end_is_found() {
    let (cluster, first) = two().await;
    cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Finish" }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body).await.status, 200);
    assert_eq!(cluster.get(1, "/run-async/T1").await.json["run"]["owner"], "d1");
    assert_eq!(first.finish(GRACE).await, [""; 0]);
    let owner = || async {
        let run = cluster.get(1, "/run-async/T1").await;
        (run.json["run"]["owner"] == "d2").then_some(())
    };
    cluster.until(owner).await;
    cluster.node("n2", 1).await;
    cluster.completed(1, "T1").await;
    cluster.stop().await;
}

/// Who waits is told what is known; the process does not wait for them.
#[tokio::test]
async fn waits_end_with_it() {
    let (cluster, first) = two().await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Stuck" }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body).await.status, 200);
    let close = "HTTP/1.1\r\nconnection: close";
    let poll = begin(&cluster, &format!("GET /run-async/T1?wait=60s {close}"), "").await;
    let body = r#"{"entryClass":"Block"}"#;
    let head = format!("POST /jars/{jar}/run {close}\r\ncontent-length: {}", body.len());
    let sync = begin(&cluster, &head, body).await;
    cluster.until(|| async { (node.starts() == 2).then_some(()) }).await;
    first.begin();
    let poll = read_all(poll).await;
    assert!(poll.starts_with("HTTP/1.1 200 OK") && poll.contains("IN_PROGRESS"), "{poll}");
    let sync = read_all(sync).await;
    assert!(sync.starts_with("HTTP/1.1 504") && sync.contains("it goes on"), "{sync}");
    assert_eq!(first.finish(GRACE).await, [""; 0]);
    cluster.stop().await;
}
