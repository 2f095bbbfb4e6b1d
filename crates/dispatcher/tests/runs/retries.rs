//! Retries: what an equal one gets, what a different one is told, whatever has changed meanwhile.

use std::sync::Arc;

use serde_json::json;

use crate::support::http::Part;
use crate::support::{Cluster, hello_jar};

#[tokio::test]
async fn an_equal_retry_says_that_it_is_one() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    let first = cluster.post(0, "/run-async", &body).await;
    assert_eq!((first.status, first.headers.get("idempotency-replayed")), (200, None), "{}", first.text);
    for dispatcher in [0, 1] {
        let again = cluster.post(dispatcher, "/run-async", &body).await;
        assert_eq!((again.status, &again.text), (200, &first.text));
        assert_eq!(again.headers["idempotency-replayed"], "true");
    }
    // One without an id is never a retry.
    let other = cluster.post(0, "/run-async", &json!({ "jarId": jar }).to_string()).await;
    assert_eq!((other.status, other.headers.get("idempotency-replayed")), (200, None));
    cluster.stop().await;
}

#[tokio::test]
async fn a_different_one_is_told_what_differs_and_where_and_when_the_first_was_taken() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    let first = json!({ "triggerId": "T1", "jarId": jar, "parallelism": 1 }).to_string();
    assert_eq!(cluster.post(1, "/run-async", &first).await.status, 200);
    let run = cluster.get(0, "/run-async/T1").await;
    assert_eq!(run.json["run"]["accepted-by"], "d2");
    let at = records::time::rfc3339(run.json["run"]["accepted-at"].as_u64().unwrap());
    let other = json!({ "triggerId": "T1", "jarId": jar, "parallelism": 2, "programArgs": "x" }).to_string();
    let refused = cluster.post(0, "/run-async", &other).await;
    assert_eq!((refused.status, refused.headers.get("retry-after")), (409, None));
    assert_eq!(
        refused.error(),
        format!(
            "DIFFERENT: triggerId T1 was used for a different request that d2 took at {at}; these fields differ: \
             programArgs, parallelism"
        )
    );
    cluster.stop().await;
}

/// T6: what was stated is compared, before defaults, and by an id or a digest that outlive the JAR.
#[tokio::test]
async fn a_retry_is_equal_though_the_jar_is_deleted_and_the_defaults_are_others() {
    let mut cluster = Cluster::start(1).await;
    let kv = Arc::new(cluster.kv.clone());
    cluster.add_dispatcher_with(kv, |options| options.parallelism = 3).await;
    cluster.node("n1", 8).await;
    let jar = cluster.upload().await;
    let body =
        |trigger: &str| json!({ "triggerId": trigger, "jarId": jar, "entryClass": "Forever" }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body("T1")).await.status, 200);
    cluster.completed(0, "T1").await;
    let parallelism = |trigger: &'static str| {
        let cluster = &cluster;
        async move {
            let run = cluster.get(0, &format!("/run-async/{trigger}")).await;
            let record = cluster.record(&format!("/job/{}", run.json["run"]["jobid"].as_str().unwrap()));
            serde_json::from_str::<serde_json::Value>(&record).unwrap()["spec"]["parallelism"].as_u64()
        }
    };
    let again = cluster.post(1, "/run-async", &body("T1")).await;
    assert_eq!((again.status, &again.headers["idempotency-replayed"]), (200, &"true".parse().unwrap()));
    assert_eq!(parallelism("T1").await, Some(1), "it keeps what it got");
    assert_eq!(cluster.post(1, "/run-async", &body("T2")).await.status, 200);
    assert_eq!(parallelism("T2").await, Some(3));
    // Who states what the default is asks for something else.
    let stated =
        json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Forever", "parallelism": 1 }).to_string();
    let refused = cluster.post(0, "/run-async", &stated).await;
    assert_eq!(
        (refused.status, refused.error().ends_with("differ: parallelism")),
        (409, true),
        "{}",
        refused.text
    );

    assert_eq!(cluster.delete(0, &format!("/jars/{jar}")).await.status, 200);
    assert_eq!(cluster.post(0, "/run-async", &body("T3")).await.status, 404, "nothing new can run on it");
    let again = cluster.post(1, "/run-async", &body("T1")).await;
    assert_eq!(again.headers["idempotency-replayed"], "true", "{}", again.text);
    let bytes = hello_jar();
    let along = [
        Part::text("triggerId", "T1"),
        Part::text("entryClass", "Forever"),
        Part::file("f", "h.jar", &bytes),
    ];
    let again = cluster.post_multipart(1, "/run-async", &along).await;
    assert_eq!(again.headers["idempotency-replayed"], "true", "{}", again.text);
    cluster.stop().await;
}

#[tokio::test]
async fn a_setting_of_the_job_that_cannot_be_is_refused_before_anything_is_stored() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let configuration = json!({ "engine.process.created": "maybe" });
    let body = json!({ "triggerId": "T1", "jarId": jar, "flinkConfiguration": configuration }).to_string();
    let refused = cluster.post(0, "/run-async", &body).await;
    assert_eq!((refused.status, cluster.count("/run/")), (400, 0), "{}", refused.text);
    assert!(refused.error().contains("wants \"started\" or \"signal\""), "{}", refused.text);
    // The same in the query, where an object is JSON.
    let query = format!(
        "/run-async?jarId={jar}&flinkConfiguration=%7B%22engine.process.created%22%3A%22signal%22%7D"
    );
    assert_eq!(cluster.post(0, &query, "").await.status, 200);
    cluster.stop().await;
}
