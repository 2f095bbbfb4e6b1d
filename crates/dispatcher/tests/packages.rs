//! Runs and the packages they need: READY or refused, pinned while the job lives, one job id once.

mod support;

use futures_util::future::join_all;
use serde_json::json;
use support::http::Part;
use support::{Cluster, multipart};

async fn create(cluster: &Cluster, path: &str) {
    let (content_type, body) = multipart(&[Part::file("file", "a.txt", b"one")]);
    let answer = cluster.send(0, "PUT", path, &[("content-type", &content_type)], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn a_package_in_removal_is_kept_for_its_job_and_refused_to_others() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 4).await;
    create(&cluster, "/icp/lib/1.0.0").await;
    let jar = cluster.upload().await;
    let body = |trigger: &str| {
        json!({ "triggerId": trigger, "jarId": jar, "entryClass": "Forever", "packages": ["lib:1.0.0"] })
            .to_string()
    };
    cluster.post(0, "/run-async", &body("T1")).await;
    let job = cluster.completed(0, "T1").await.json["operation"]["jobid"].as_str().unwrap().to_owned();
    let removed = cluster.delete(1, "/icp/lib/1.0.0").await;
    assert_eq!((removed.status, &removed.json["status"]), (200, &json!("REMOVING")));
    let holders = removed.json["holders"].to_string();
    assert!(holders.contains(&job) && holders.contains("on n1"), "{holders}");

    let refused = cluster.post(1, "/run-async", &body("T2")).await;
    assert_eq!(refused.status, 409);
    assert!(
        refused.error().starts_with("UNIT_NOT_READY") && refused.error().contains("lib:1.0.0"),
        "{}",
        refused.text
    );
    assert_eq!(cluster.get(0, "/run-async/T2").await.status, 404, "no run record stays");
    assert_eq!(
        cluster.post(1, "/run-async", &body("T1")).await.status,
        200,
        "an equal retry is answered as before"
    );

    let status = cluster.get(0, "/icp/lib/1.0.0").await;
    assert_eq!((&status.json["status"], &status.json["jobs"]), (&json!("REMOVING"), &json!([job])));
    let node = &status.json["nodes"][0];
    assert_eq!((&node["node"], &node["usageCount"], &node["alive"]), (&json!("n1"), &json!(1), &json!(true)));
    cluster.stop().await;
}

#[tokio::test]
async fn an_icp_create_needs_a_form_and_known_parameters() {
    let cluster = Cluster::start(1).await;
    let (content_type, body) = multipart(&[Part::file("file", "a.txt", b"one")]);
    let headers = [("content-type", content_type.as_str())];
    let put = |path: &'static str| cluster.send(0, "PUT", path, &headers, body.clone());
    assert_eq!(put("/icp/lib/1.0.0").await.status, 503, "no server node");
    cluster.node("n1", 1).await;
    assert_eq!(put("/icp/lib/latest").await.status, 400);
    assert_eq!(put("/icp/con/1.0.0").await.status, 400);
    let unknown = put("/icp/lib/1.0.0?node=all").await;
    assert_eq!(unknown.error(), "unknown query parameter \"node\"; did you mean \"nodes\"?");
    assert_eq!(cluster.send(0, "PUT", "/icp/lib/1.0.0", &[], b"x".to_vec()).await.status, 415);
    assert_eq!(cluster.get(0, "/icp/lib").await.status, 404);
    assert_eq!(cluster.get(0, "/nodes/none/icp").await.status, 404);
    cluster.stop().await;
}

#[tokio::test]
async fn a_register_goes_to_a_node_and_its_rows_come_back() {
    let mut cluster = Cluster::start(1).await;
    let post = async |cluster: &Cluster, dispatcher: usize, query: &str| {
        cluster.post(dispatcher, &format!("/icp/lib/1.0.0/register{query}"), "").await
    };
    let nobody = post(&cluster, 0, "").await;
    assert_eq!(nobody.status, 503, "{}", nobody.text);
    cluster.node("n1", 1).await;
    let answer = post(&cluster, 0, "?nodes=n1,n2&from=/opt/my%20libs&expect=ab&timeout_ms=5000").await;
    assert_eq!((answer.status, &answer.json["reason"]), (409, &json!("NOT_EQUAL")), "{}", answer.text);
    let rows = json!([{ "node": "n1", "file": "lib@1.0.0", "state": "DIFFERENT" }]);
    assert_eq!(answer.json["rows"], rows);
    let asked = json!({ "nodes": "n1,n2", "from": "/opt/my libs", "expect": "ab", "timeout_ms": "5000" });
    assert_eq!(answer.json["asked"], asked);
    let unknown = post(&cluster, 0, "?form=/opt").await;
    assert_eq!(unknown.error(), "unknown query parameter \"form\"; did you mean \"from\"?");
    let never = post(&cluster, 0, "?timeout_ms=soon").await;
    assert_eq!((never.status, never.error().contains("milliseconds")), (400, true), "{}", never.text);
    assert_eq!(cluster.post(0, "/icp/con/1.0.0/register", "").await.status, 400);
    let kv = std::sync::Arc::new(cluster.kv.clone());
    cluster.add_dispatcher_with(kv, |options| options.web_submit = false).await;
    assert_eq!(post(&cluster, 1, "").await.status, 403, "it brings code to the cluster");
    cluster.stop().await;
}

/// C1: one job id, two requests at once.
#[tokio::test]
async fn a_job_id_runs_once_however_close_two_requests_are() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    for i in 0..20 {
        let body = json!({ "jobId": format!("{i:032x}"), "entryClass": "Finish" }).to_string();
        let path = format!("/jars/{jar}/run");
        let answers = join_all((0..2).map(|d| cluster.post(d, &path, &body))).await;
        let mut codes: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        codes.sort_unstable();
        assert_eq!(codes, [200, 400], "{answers:?}");
        let refused = answers.iter().find(|answer| answer.status == 400).unwrap();
        assert!(refused.text.contains("DuplicateJobSubmissionException"), "{}", refused.text);
    }
    assert_eq!((node.starts(), cluster.count("/job/")), (20, 20));
    cluster.stop().await;
}

#[tokio::test]
async fn a_trigger_id_may_hold_a_slash() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let answer =
        cluster.post(0, "/run-async", &json!({ "triggerId": "a/b%c", "jarId": jar }).to_string()).await;
    assert_eq!(answer.text, r#"{"request-id":"a/b%c"}"#);
    cluster.completed(0, "a%2Fb%25c").await;
    assert_eq!(cluster.delete(0, "/run-async/a%2Fb%25c").await.status, 200);
    assert_eq!(cluster.get(0, "/run-async/..%2Fx").await.status, 400);
    cluster.stop().await;
}

#[tokio::test]
async fn the_list_is_paged_by_a_link() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    for trigger in ["c", "a", "b/x"] {
        cluster.post(0, "/run-async", &json!({ "triggerId": trigger, "jarId": jar }).to_string()).await;
    }
    let first = cluster.get(0, "/run-async?limit=2").await;
    let ids = |json: &serde_json::Value| {
        json.as_array()
            .unwrap()
            .iter()
            .map(|row| row["request-id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&first.json), ["a", "b/x"]);
    let link = first.headers["link"].to_str().unwrap();
    let next = link.strip_prefix('<').unwrap().split('>').next().unwrap();
    let second = cluster.get(0, next).await;
    assert_eq!(ids(&second.json), ["c"]);
    assert!(!second.headers.contains_key("link"));
    assert_eq!(cluster.get(0, "/run-async?limit=0").await.status, 400);
    cluster.stop().await;
}
