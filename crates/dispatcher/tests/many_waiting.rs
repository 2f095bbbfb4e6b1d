//! Many runs that wait for one slot: each time it becomes free the next is placed, and all come to their end.

mod support;

use std::time::Duration;

use serde_json::json;
use support::Cluster;
use tokio::time::sleep;

async fn post(cluster: &Cluster, jar: &str, trigger: &str, class: &str) {
    let body = json!({ "triggerId": trigger, "jarId": jar, "entryClass": class }).to_string();
    let answer = cluster.post(0, "/run-async", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Longer than any reconciler pauses before it writes.
const QUIET: Duration = Duration::from_millis(1_500);

/// Until no reconciler has anything left to write.
async fn until_quiet(cluster: &Cluster) {
    let mut before = cluster.kv.snapshot().revision();
    for _ in 0..40 {
        sleep(QUIET).await;
        let now = cluster.kv.snapshot().revision();
        if now == before {
            return;
        }
        before = now;
    }
    panic!("the reconcilers still write after {:?}", 40 * QUIET);
}

/// The slot is often free and taken again between two looks of a dispatcher: it must not be taken for unchanged.
#[tokio::test]
async fn a_free_slot_takes_the_oldest_that_waits_and_then_all_come_to_their_end() {
    let cluster = Cluster::start(2).await;
    let _node = cluster.node("n", 1).await;
    let jar = cluster.upload().await;
    post(&cluster, &jar, "hold", "Forever").await;
    let held = cluster.completed(0, "hold").await;
    for number in 0..30 {
        post(&cluster, &jar, &format!("w{number}"), "Hello").await;
    }
    until_quiet(&cluster).await;
    let job = held.json["operation"]["jobid"].as_str().unwrap();
    let cancelled = cluster.send(0, "PATCH", &format!("/jobs/{job}"), &[], Vec::new()).await;
    assert_eq!(cancelled.status, 202, "{}", cancelled.text);
    for number in 0..30 {
        cluster.completed(1, &format!("w{number}")).await;
    }
    cluster.stop().await;
}
