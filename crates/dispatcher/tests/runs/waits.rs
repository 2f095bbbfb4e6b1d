//! `GET /run-async/T?wait=`: the answer comes when there is something to say.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::support::{Answer, Cluster};

async fn blocked() -> (Cluster, String) {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Block" }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body).await.status, 200);
    cluster.until(|| async { (node.starts() == 1).then_some(()) }).await;
    (cluster, jar)
}

fn revision(answer: &Answer) -> i64 {
    answer.json["run"]["revision"].as_i64().unwrap_or_else(|| panic!("{}", answer.text))
}

#[tokio::test]
async fn it_answers_when_the_run_is_completed() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Finish" }).to_string();
    cluster.post(0, "/run-async", &body).await;
    let waiting = cluster.get(1, "/run-async/T1?wait=60s");
    let mut waiting = Box::pin(waiting);
    // Nothing can run it yet: there is nothing to say.
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err());
    cluster.node("n2", 1).await;
    let done = tokio::time::timeout(crate::support::PATIENCE, waiting).await.expect("woken");
    assert_eq!((done.status, &done.json["status"]["id"]), (200, &json!("COMPLETED")), "{}", done.text);
    // Completed before: at once.
    let again =
        tokio::time::timeout(crate::support::PATIENCE, cluster.get(0, "/run-async/T1?wait=60s")).await;
    assert_eq!(again.expect("at once").json["status"]["id"], "COMPLETED");
    let unknown =
        tokio::time::timeout(crate::support::PATIENCE, cluster.get(0, "/run-async/none?wait=60s")).await;
    assert_eq!(unknown.expect("at once").status, 404);
    cluster.stop().await;
}

#[tokio::test]
async fn past_its_time_it_answers_how_far_the_run_is() {
    let (cluster, _) = blocked().await;
    let asked = Instant::now();
    let answer = cluster.get(1, "/run-async/T1?wait=300ms").await;
    assert_eq!(
        (answer.status, &answer.json["status"]["id"]),
        (200, &json!("IN_PROGRESS")),
        "{}",
        answer.text
    );
    assert!(asked.elapsed() >= Duration::from_millis(300));
    cluster.stop().await;
}

/// With the revision of an earlier answer, every change of the run or its job behind it is told, one not before it.
#[tokio::test]
async fn with_a_revision_it_answers_at_the_next_change() {
    let (cluster, jar) = blocked().await;
    let launching = || async {
        let answer = cluster.get(0, "/run-async/T1").await;
        (answer.json["run"]["phase"] == "LAUNCHING").then_some(answer)
    };
    let known = revision(&cluster.until(launching).await);
    // Other runs are no change of this one.
    let other = json!({ "triggerId": "T2", "jarId": jar, "entryClass": "Block" }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &other).await.status, 200);
    let quiet = cluster.get(1, &format!("/run-async/T1?wait=300ms&revision={known}")).await;
    assert!(revision(&quiet) > known, "{}", quiet.text);
    let path = format!("/run-async/T1?wait=60s&revision={}", revision(&quiet));
    let mut waiting = Box::pin(cluster.get(1, &path));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err(), "nothing changed");
    // A wish to cancel is a change of the job.
    let job = quiet.json["run"]["jobid"].as_str().unwrap();
    assert_eq!(cluster.send(0, "PATCH", &format!("/jobs/{job}"), &[], vec![]).await.status, 202);
    let changed = tokio::time::timeout(crate::support::PATIENCE, waiting).await.expect("woken");
    assert_eq!(changed.status, 200, "{}", changed.text);
    // What is missed between two questions is told by the second.
    let path = format!("/run-async/T1?wait=60s&revision={known}");
    let missed =
        tokio::time::timeout(crate::support::PATIENCE, cluster.get(0, &path)).await.expect("at once");
    assert_eq!(missed.status, 200);
    cluster.stop().await;
}

#[tokio::test]
async fn a_run_that_is_deleted_meanwhile_ends_the_wait() {
    let (cluster, _) = blocked().await;
    let mut waiting = Box::pin(cluster.get(1, "/run-async/T1?wait=60s"));
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err());
    assert_eq!(cluster.delete(0, "/run-async/T1").await.status, 200);
    let gone = tokio::time::timeout(crate::support::PATIENCE, waiting).await.expect("woken");
    assert_eq!((gone.status, gone.error().contains("deleted")), (404, true), "{}", gone.text);
    cluster.stop().await;
}
