//! `/run-async` over the store in memory: idempotence from any dispatcher, refusals, deletion, unknown outcomes.

mod support;

use futures_util::future::join_all;
use serde_json::json;
use support::http::Part;
use support::{Cluster, hello_jar};

#[tokio::test]
async fn a_run_goes_from_post_to_finished_job() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    let answer = cluster.post(0, "/run-async", &body).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, r#"{"request-id":"T1"}"#));
    let done = cluster.completed(1, "T1").await;
    let job = done.json["operation"]["jobid"].as_str().unwrap().to_owned();
    assert_eq!(done.json["run"]["phase"], "COMPLETED");
    cluster
        .until(|| async {
            let status = cluster.get(1, &format!("/jobs/{job}/status")).await;
            (status.json["status"] == "FINISHED").then_some(())
        })
        .await;
    let again = cluster.post(1, "/run-async", &body).await;
    assert_eq!((again.status, again.text), (200, answer.text));
    assert_eq!(node.starts(), 1);
    let output = cluster.get(1, &format!("/jobs/{job}/attempts/latest/stdout")).await;
    assert_eq!(output.text, format!("stdout of attempt 1 of {job}\n"));
    let list = cluster.get(0, "/run-async").await;
    assert_eq!(list.json, json!([{ "request-id": "T1", "status": { "id": "COMPLETED" } }]));
    cluster.stop().await;
}

#[tokio::test]
async fn fifty_equal_posts_on_two_dispatchers_make_one_job() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "parallelism": 2 }).to_string();
    let posts = (0..50).map(|i| cluster.post(i % 2, "/v1/run-async", &body));
    for answer in join_all(posts).await {
        assert_eq!((answer.status, answer.text.as_str()), (200, r#"{"request-id":"T1"}"#));
    }
    cluster.completed(0, "T1").await;
    assert_eq!((node.starts(), cluster.count("/job/"), cluster.count("/run/")), (1, 1, 1));
    cluster.stop().await;
}

#[tokio::test]
async fn fifty_posts_with_the_same_jar_sent_along_keep_one_package() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 2).await;
    let jar = hello_jar();
    let parts =
        || [Part::text("request", r#"{"triggerId":"T1"}"#), Part::file("anything", "hello.jar", &jar)];
    let parts: Vec<_> = (0..50).map(|_| parts()).collect();
    let posts = parts.iter().enumerate().map(|(i, parts)| cluster.post_multipart(i % 2, "/run-async", parts));
    for answer in join_all(posts).await {
        assert_eq!((answer.status, answer.text.as_str()), (200, r#"{"request-id":"T1"}"#));
    }
    cluster.completed(1, "T1").await;
    assert_eq!(node.starts(), 1);
    // The losers' packages go at once, the winner's after its job is over.
    cluster
        .until(|| async {
            let list = cluster.get(0, "/icp").await;
            let left = list.json["packages"].as_array().unwrap().clone();
            left.iter().all(|package| package["status"] == "REMOVING").then_some(())
        })
        .await;
    // A retry is answered though the package is gone.
    let again = cluster.post_multipart(0, "/run-async", &parts[0]).await;
    assert_eq!(again.status, 200, "{}", again.text);
    cluster.stop().await;
}

#[tokio::test]
async fn a_different_request_is_409_and_names_the_fields() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let first = json!({ "triggerId": "T1", "jarId": jar, "parallelism": 1 }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &first).await.status, 200);
    let other = json!({ "triggerId": "T1", "jarId": jar, "parallelism": 2, "entryClass": "X" }).to_string();
    let answer = cluster.post(1, "/run-async", &other).await;
    assert_eq!(answer.status, 409);
    assert!(
        answer.error().contains("parallelism") && answer.error().contains("entryClass"),
        "{}",
        answer.text
    );
    assert!(!answer.error().contains("programArgs"), "{}", answer.text);
    // Query and header forms of the first request are equal to it.
    let query = format!("/run-async?triggerId=T1&jarId={jar}&parallelism=1");
    assert_eq!(cluster.post(1, &query, "").await.status, 200);
    let query = format!("/run-async?jarId={jar}&parallelism=1");
    let answer = cluster.send(1, "POST", &query, &[("idempotency-key", "\"T1\"")], Vec::new()).await;
    assert_eq!(answer.text, r#"{"request-id":"T1"}"#);
    // So is the same JAR sent along.
    let jar = hello_jar();
    let parts =
        [Part::text("triggerId", "T1"), Part::text("parallelism", "1"), Part::file("f", "h.jar", &jar)];
    let answer = cluster.post_multipart(0, "/run-async", &parts).await;
    assert_eq!(answer.text, r#"{"request-id":"T1"}"#);
    assert_eq!(cluster.count("/run/"), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_and_leave_nothing() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let id = cluster.upload().await;
    let jar = hello_jar();
    let long = "t".repeat(65);
    for trigger in [long.as_str(), "", "\u{f6}", "../x", "a b", ".."] {
        let answer =
            cluster.post(0, "/run-async", &json!({ "triggerId": trigger, "jarId": id }).to_string()).await;
        assert_eq!(answer.status, 400, "{trigger:?}: {}", answer.text);
    }
    let named = json!({ "jarId": id }).to_string();
    let both = [Part::text("request", &named), Part::file("f", "h.jar", &jar)];
    assert_eq!(cluster.post_multipart(0, "/run-async", &both).await.status, 400);
    let two = [Part::file("a", "a.jar", &jar), Part::file("b", "b.jar", &jar)];
    assert_eq!(cluster.post_multipart(0, "/run-async", &two).await.status, 400);
    let not_a_jar = [Part::file("a", "a.jar", b"not a jar")];
    assert_eq!(cluster.post_multipart(0, "/run-async", &not_a_jar).await.status, 400);
    for (body, status, says) in [
        (json!({ "triggerId": "T" }), 400, "neither a JAR nor a jarId"),
        (json!({ "jarId": "none.jar" }), 404, "there is no JAR \"none.jar\""),
        (json!({ "jarId": id, "paralelism": 1 }), 400, "did you mean \"parallelism\""),
        (json!({ "jarId": id, "parallelism": 0 }), 400, "at least 1"),
        (json!({ "jarId": id, "jobId": "xyz" }), 400, "32 hexadecimal digits"),
        (json!({ "jarId": id, "packages": ["lib:1.0"] }), 404, "there is no package lib:1.0"),
        (json!({ "jarId": id, "restoreMode": "X" }), 400, "CLAIM, NO_CLAIM or LEGACY"),
    ] {
        let answer = cluster.post(0, "/run-async", &body.to_string()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        assert!(answer.error().contains(says), "{body}: {}", answer.text);
    }
    let conflict = format!("/run-async?triggerId=A&jarId={id}");
    assert_eq!(cluster.post(0, &conflict, r#"{"triggerId":"B"}"#).await.status, 400);
    let headers = [("idempotency-key", "C")];
    assert_eq!(cluster.send(0, "POST", &conflict, &headers, Vec::new()).await.status, 400);
    assert_eq!((cluster.count("/run/"), cluster.count("/job/")), (0, 0));
    cluster.stop().await;
}

#[tokio::test]
async fn one_job_id_is_one_job() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let job = "A424E6C44DE5FA6353759A9FC574B8B8";
    let body = |trigger: &str| json!({ "triggerId": trigger, "jarId": jar, "jobId": job }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body("T1")).await.status, 200);
    let answer = cluster.post(1, "/run-async", &body("T2")).await;
    assert_eq!(answer.status, 409);
    assert!(answer.error().contains("T1"), "{}", answer.text);
    assert_eq!(cluster.get(0, "/run-async/T2").await.status, 404);
    assert_eq!(cluster.completed(0, "T1").await.json["operation"]["jobid"], job.to_lowercase());
    cluster.stop().await;
}

#[tokio::test]
async fn a_failing_main_is_a_failure_cause() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Throw" }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body).await.status, 200);
    let done = cluster.completed(0, "T1").await;
    let cause = &done.json["operation"]["failure-cause"];
    assert!(cause["stack-trace"].as_str().unwrap().contains("boom: main threw"), "{}", done.text);
    let sync = cluster.post(0, &format!("/jars/{jar}/run"), r#"{"entryClass":"Throw"}"#).await;
    assert_eq!(sync.status, 400);
    assert!(sync.error().contains("Could not execute application."), "{}", sync.text);
    // One line a text: why, and where the rest is.
    let cause = sync.json["errors"][1].as_str().unwrap();
    assert!(cause.starts_with("Caused by: MAIN_FAILED: exit code 1: boom: main threw"), "{}", sync.text);
    assert!(cause.contains("/execution-result") && !sync.text.contains("\\n"), "{}", sync.text);
    assert_eq!(
        cluster.get(0, "/run-async").await.json.as_array().unwrap().len(),
        1,
        "inner runs are not listed"
    );
    cluster.stop().await;
}

/// C13: DELETE while in progress kills, 404 afterwards, the id stays taken.
#[tokio::test]
async fn a_deleted_run_is_killed_and_cannot_be_revived() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T9", "jarId": jar, "entryClass": "Block" }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body).await.status, 200);
    cluster.until(|| async { (node.starts() == 1).then_some(()) }).await;
    let answer = cluster.delete(1, "/run-async/T9").await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "{}"));
    assert_eq!(cluster.get(0, "/run-async/T9").await.status, 404);
    assert_eq!(cluster.count("/job-owner/"), 0, "nothing of it runs");
    assert_eq!(cluster.get(0, "/jobs").await.json["jobs"][0]["status"], "CANCELED");
    let revived = cluster.post(0, "/run-async", &body).await;
    assert_eq!(revived.status, 409);
    assert!(revived.error().contains("deleted"), "{}", revived.text);
    assert_eq!(cluster.delete(0, "/run-async/T9").await.status, 200, "repeated while the tombstone lives");
    assert_eq!(cluster.delete(0, "/run-async/unknown").await.status, 404);
    cluster.stop().await;
}

#[tokio::test]
async fn a_kill_that_takes_too_long_is_202_until_the_lease_of_its_node_is_over() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Stuck" }).to_string();
    cluster.post(0, "/run-async", &body).await;
    cluster.until(|| async { (node.starts() == 1).then_some(()) }).await;
    let answer = cluster.delete(0, "/run-async/T1?timeout_ms=100").await;
    assert_eq!((answer.status, &answer.json["status"]), (202, &json!("cancelling")), "{}", answer.text);
    assert_eq!(cluster.get(1, "/run-async/T1").await.status, 404);
    node.die();
    assert_eq!(cluster.delete(1, "/run-async/T1").await.status, 200);
    cluster
        .until(|| async {
            let jobs = cluster.get(0, "/jobs").await;
            (jobs.json["jobs"][0]["status"] == "CANCELED").then_some(())
        })
        .await;
    cluster.stop().await;
}

/// Either the job exists and the run is completed, or there is no job of it that runs.
#[tokio::test]
async fn a_delete_that_races_with_the_end_gives_one_of_two_answers() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 4).await;
    let jar = cluster.upload().await;
    for i in 0..20 {
        let trigger = format!("T{i}");
        let body = json!({ "triggerId": trigger, "jarId": jar, "entryClass": "Finish" }).to_string();
        cluster.post(0, "/run-async", &body).await;
        tokio::time::sleep(std::time::Duration::from_millis(i * 5)).await;
        let path = format!("/run-async/{trigger}");
        assert_eq!(cluster.delete(i as usize % 2, &path).await.status, 200);
        assert_eq!(cluster.get(0, &path).await.status, 404);
    }
    assert_eq!(cluster.count("/job-owner/"), 0);
    let jobs = cluster.get(0, "/jobs").await;
    for job in jobs.json["jobs"].as_array().unwrap() {
        assert!(["FINISHED", "CANCELED"].contains(&job["status"].as_str().unwrap()), "{job}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn deleting_a_completed_run_keeps_its_job() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Forever" }).to_string();
    cluster.post(0, "/run-async", &body).await;
    let job = cluster.completed(0, "T1").await.json["operation"]["jobid"].as_str().unwrap().to_owned();
    assert_eq!(cluster.delete(0, "/run-async/T1").await.status, 200);
    assert_eq!(cluster.get(0, &format!("/jobs/{job}/status")).await.json["status"], "RUNNING");
    assert_eq!(cluster.send(0, "PATCH", &format!("/jobs/{job}?mode=cancel"), &[], vec![]).await.status, 202);
    cluster
        .until(|| async {
            let status = cluster.get(0, &format!("/jobs/{job}/status")).await;
            (status.json["status"] == "CANCELED").then_some(())
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn without_a_free_slot_the_run_waits_and_says_why() {
    let cluster = Cluster::start(2).await;
    let jar = {
        let node = cluster.node("small", 1).await;
        let jar = cluster.upload().await;
        let body = json!({ "triggerId": "hold", "jarId": jar, "entryClass": "Forever" }).to_string();
        cluster.post(0, "/run-async", &body).await;
        cluster.completed(0, "hold").await;
        assert_eq!(node.starts(), 1);
        jar
    };
    let waiting = |trigger: &'static str| {
        let cluster = &cluster;
        move || async move {
            let run = cluster.get(1, &format!("/run-async/{trigger}")).await;
            assert_eq!(run.json["status"]["id"], "IN_PROGRESS");
            assert_eq!(run.json["operation"], serde_json::Value::Null);
            run.json["run"]["waiting"].as_str().map(str::to_owned)
        }
    };
    let body =
        |trigger: &str, p: u32| json!({ "triggerId": trigger, "jarId": jar, "parallelism": p }).to_string();
    cluster.post(0, "/run-async", &body("one", 1)).await;
    cluster.post(0, "/run-async", &body("eight", 8)).await;
    assert!(cluster.until(waiting("one")).await.contains("free slots"));
    assert!(cluster.until(waiting("eight")).await.contains("needs 8 slots, largest node has 1"));
    cluster.node("big", 8).await;
    cluster.completed(0, "eight").await;
    cluster.completed(0, "one").await;
    cluster.stop().await;
}
