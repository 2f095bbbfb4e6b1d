//! Restart strategies over REST: taken from the request, from this dispatcher's defaults otherwise, and resolved once.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::Cluster;

async fn until_over(cluster: &Cluster, job: &str) -> Value {
    cluster
        .until(|| async {
            let record: Value = serde_json::from_str(&cluster.record(&format!("/job/{job}"))).ok()?;
            record["exit"].is_object().then_some(record)
        })
        .await
}

/// The job of a run that is completed, or made of nothing.
async fn job_of(cluster: &Cluster, trigger: &str) -> String {
    let done = cluster.completed(0, trigger).await;
    done.json["operation"]["jobid"].as_str().unwrap_or_else(|| panic!("{}", done.text)).to_owned()
}

#[tokio::test]
async fn a_task_that_fails_is_started_again_after_each_pause() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let configuration = json!({
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "300 ms",
    });
    let body = json!({
        "triggerId": "T1", "jarId": jar, "entryClass": "FailTask", "flinkConfiguration": configuration
    });
    let started_at = Instant::now();
    assert_eq!(cluster.post(0, "/run-async", &body.to_string()).await.status, 200);
    let job = job_of(&cluster, "T1").await;
    let record = until_over(&cluster, &job).await;
    assert!(started_at.elapsed() >= Duration::from_millis(600), "two pauses");
    assert_eq!((record["state"].as_str(), record["attempt"].as_u64()), (Some("FAILED"), Some(3)), "{record}");
    assert_eq!((record["failures"].as_u64(), node.starts()), (Some(2), 3));
    let epochs: Vec<i64> =
        record["attempts"].as_array().unwrap().iter().map(|a| a["epoch"].as_i64().unwrap()).collect();
    assert!(epochs.is_sorted_by(|a, b| a < b), "each under an epoch of its own: {epochs:?}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_retry_through_a_dispatcher_with_other_defaults_is_the_same_run() {
    let mut cluster = Cluster::start(0).await;
    for strategy in ["fixed-delay", "none"] {
        let kv = Arc::new(cluster.kv.clone());
        let change = |options: &mut dispatcher::DispatcherOptions| {
            options.restart.strategy = strategy.into();
            options.restart.fixed_attempts = "7".into();
        };
        cluster.add_dispatcher_with(kv, change).await;
    }
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Forever" }).to_string();
    let first = cluster.post(0, "/run-async", &body).await;
    let job = job_of(&cluster, "T1").await;
    let second = cluster.post(1, "/run-async", &body).await;
    assert_eq!((second.status, &second.text), (200, &first.text));
    let record: Value = serde_json::from_str(&cluster.record(&format!("/job/{job}"))).unwrap();
    assert_eq!(
        record["spec"]["restart"],
        json!({ "fixed-delay": { "attempts": 7, "delay_ms": 1000 } }),
        "that of the first, whole"
    );
    assert_eq!((node.starts(), cluster.count("/job/")), (1, 1));
    let other = json!({ "triggerId": "T2", "jarId": jar, "entryClass": "Forever" }).to_string();
    assert_eq!(cluster.post(1, "/run-async", &other).await.status, 200);
    let job = job_of(&cluster, "T2").await;
    let record: Value = serde_json::from_str(&cluster.record(&format!("/job/{job}"))).unwrap();
    assert_eq!(record["spec"]["restart"], "none");
    cluster.stop().await;
}

#[tokio::test]
async fn a_strategy_that_is_none_is_refused_before_anything_is_stored() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    for (key, value, says) in [
        (
            "restart-strategy",
            "fixed-dealy",
            "wants none, fixed-delay, exponential-delay or on-container-loss",
        ),
        ("restart-strategy.type", "failure-rate", "restart-strategy.type = \"failure-rate\""),
        ("on-lost-store", "stay", "on-lost-store = \"stay\": wants kill or keep"),
    ] {
        let body = json!({ "triggerId": "T1", "jarId": jar, "flinkConfiguration": { key: value } });
        let answer = cluster.post(0, "/run-async", &body.to_string()).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.error().contains(says), "{}", answer.text);
    }
    let configuration = json!({
        "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "soon"
    });
    let request = json!({ "triggerId": "T1", "flinkConfiguration": configuration }).to_string();
    let hello = support::hello_jar();
    let parts =
        [support::http::Part::text("request", &request), support::http::Part::file("f", "h.jar", &hello)];
    let packages = cluster.count("/icp/unit/");
    let answer = cluster.post_multipart(0, "/run-async", &parts).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.error().contains("fixed-delay.delay = \"soon\""), "{}", answer.text);
    assert_eq!((cluster.count("/run/"), cluster.count("/icp/unit/")), (0, packages), "the JAR is not kept");
    cluster.stop().await;
}

#[tokio::test]
async fn defaults_that_cannot_be_are_refused_at_the_start() {
    let options = dispatcher::DispatcherOptions {
        listen_rest: ([127, 0, 0, 1], 0).into(),
        single_enable: true,
        restart: dispatcher::RestartDefaults { max_backoff: "1 ms".into(), ..Default::default() },
        ..Default::default()
    };
    let kv = Arc::new(meta_client::mem::MemKv::new());
    let started =
        dispatcher::Dispatcher::start(kv, options, Default::default(), process_kit::Shutdown::new()).await;
    let text = started.err().expect("refused").to_string();
    assert!(text.contains("exponential-delay.max-backoff = \"1 ms\""), "{text}");
}
