//! How many runs are taken: in progress at all, and at once by one dispatcher.

use std::sync::Arc;

use dispatcher::DispatcherOptions;
use serde_json::json;

use crate::support::{Cluster, PATIENCE};

async fn limited(change: impl Fn(&mut DispatcherOptions)) -> Cluster {
    let mut cluster = Cluster::start(0).await;
    for _ in 0..2 {
        let kv = Arc::new(cluster.kv.clone());
        cluster.add_dispatcher_with(kv, &change).await;
    }
    cluster
}

#[tokio::test]
async fn a_full_queue_is_429_for_new_runs_only_and_until_one_ends() {
    let cluster = limited(|options| options.run_queue_max = 2).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body =
        |trigger: &str| json!({ "triggerId": trigger, "jarId": jar, "entryClass": "Block" }).to_string();
    for (dispatcher, trigger) in [(0, "T1"), (1, "T2")] {
        assert_eq!(cluster.post(dispatcher, "/run-async", &body(trigger)).await.status, 200);
    }
    cluster.until(|| async { (node.starts() == 2).then_some(()) }).await;
    for dispatcher in [0, 1] {
        let full = cluster.post(dispatcher, "/run-async", &body("T3")).await;
        assert_eq!((full.status, full.headers["retry-after"].to_str().unwrap()), (429, "1"));
        assert!(
            full.error().contains("2 runs are in progress, as many as run.queue.max allows"),
            "{}",
            full.text
        );
        // A retry asks for nothing new.
        assert_eq!(cluster.post(dispatcher, "/run-async", &body("T1")).await.status, 200);
    }
    let sync = cluster.post(0, &format!("/jars/{jar}/run"), "{}").await;
    assert_eq!((sync.status, sync.headers.contains_key("retry-after")), (429, true), "{}", sync.text);
    assert_eq!(cluster.get(0, "/run-async/T3").await.status, 404);
    let metrics = cluster.get(0, "/metrics").await.text;
    assert!(metrics.contains("run_requests_total{outcome=\"limited\"} 2"), "{metrics}");
    assert_eq!(cluster.delete(1, "/run-async/T1").await.status, 200);
    assert_eq!(cluster.post(0, "/run-async", &body("T3")).await.status, 200);
    cluster.stop().await;
}

#[tokio::test]
async fn runs_beyond_what_a_dispatcher_takes_at_once_are_503() {
    let cluster = limited(|options| options.run_submit_concurrent = 1).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    // One that sends its first half and then waits for the test.
    let (half, rest) = body.split_at(10);
    let (more, stream) = tokio::sync::mpsc::channel::<String>(1);
    more.send(half.to_owned()).await.unwrap();
    let slow = crate::support::http::send_stream(&cluster.dispatchers[0].service, "/run-async", stream);
    let slow = tokio::spawn(slow);
    // Once there is room for the second half, the first is being read.
    let rest_goes = tokio::time::timeout(PATIENCE, more.reserve()).await.expect("it is read").unwrap();
    let other = json!({ "triggerId": "T2", "jarId": jar }).to_string();
    let refused = cluster.post(0, "/run-async", &other).await;
    assert_eq!(
        (refused.status, refused.headers["retry-after"].to_str().unwrap()),
        (503, "1"),
        "{}",
        refused.text
    );
    assert!(refused.error().contains("run.submit.concurrent"), "{}", refused.text);
    assert_eq!(cluster.post(1, "/run-async", &other).await.status, 200, "another dispatcher has room");
    rest_goes.send(rest.to_owned());
    drop(more);
    assert_eq!(slow.await.unwrap().status, 200);
    // There is room again, also after runs that were refused; waiting for main() takes none.
    for _ in 0..3 {
        assert_eq!(cluster.post(0, "/run-async", "nonsense").await.status, 400);
    }
    let path = format!("/jars/{jar}/run");
    let waiting = cluster.post(0, &path, r#"{"entryClass":"Block"}"#);
    tokio::select! {
        answer = waiting => panic!("{}", answer.text),
        () = cluster.until(|| async { (node.starts() == 3).then_some(()) }) => {}
    }
    let third = json!({ "triggerId": "T3", "jarId": jar }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &third).await.status, 200);
    cluster.stop().await;
}
