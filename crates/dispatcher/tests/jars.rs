//! `/jars` and what is around it: which node takes an upload, what is left behind, what is turned off.

mod support;

use std::sync::Arc;

use records::keys::UnitKey;
use records::{Scope, UnitId};
use serde_json::json;
use support::http::Part;
use support::{Cluster, hello_jar};

#[tokio::test]
async fn without_a_server_node_an_upload_is_503_and_says_what_to_do() {
    let cluster = Cluster::start(1).await;
    let jar = hello_jar();
    let answer = cluster.post_multipart(0, "/jars/upload", &[Part::file("f", "x.jar", &jar)]).await;
    assert_eq!(answer.status, 503);
    assert!(answer.error().contains("start a jobmaster or set single.enable=false"), "{}", answer.text);
    let parts = [Part::text("triggerId", "T1"), Part::file("f", "x.jar", &jar)];
    assert_eq!(cluster.post_multipart(0, "/run-async", &parts).await.status, 503);
    assert_eq!((cluster.count("/jar/"), cluster.count("/run/")), (0, 0));
    cluster.stop().await;
}

#[tokio::test]
async fn an_upload_goes_to_the_next_node_if_one_cannot_take_it() {
    let cluster = Cluster::start(1).await;
    let (one, two) = (cluster.node("n1", 1).await, cluster.node("n2", 1).await);
    one.refuse_next(507, "no space left");
    two.refuse_next(507, "no space left");
    let jar = hello_jar();
    let parts = [Part::file("f", "x.jar", &jar)];
    let full = cluster.post_multipart(0, "/jars/upload", &parts).await;
    assert_eq!(full.status, 507);
    assert!(full.error().contains("no space left"), "{}", full.text);
    one.refuse_next(507, "no space left");
    for _ in 0..4 {
        cluster.upload().await;
    }
    // Two refusals at first, then four packages, and one more refusal if the first node was asked.
    assert!((6..=7).contains(&(one.puts() + two.puts())));
    cluster.stop().await;
}

/// C7: a JAR is usable from every dispatcher, also after the one that took it is gone.
#[tokio::test]
async fn a_jar_is_usable_from_every_dispatcher() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 2).await;
    let jar = cluster.upload_as("my job%20x.jar", &hello_jar()).await;
    let list = cluster.get(1, "/v1/jars/").await;
    let file = &list.json["files"][0];
    assert_eq!((&file["id"], &file["name"]), (&json!(jar), &json!("my job%20x.jar")));
    assert_eq!(file["entry"], json!([{ "name": "Hello", "description": null }]));
    let path = format!("/jars/{}/run", records::keys::encode_segment(&jar));
    let run = cluster.post(1, &path, r#"{"entryClass":"Finish"}"#).await;
    assert_eq!(run.status, 200, "{}", run.text);
    assert_eq!(run.json.as_object().unwrap().len(), 1, "only the job id: {}", run.text);
    cluster.stop().await;
}

/// C7: somebody's cleaner takes the spool directory away under the server.
#[tokio::test]
async fn uploads_go_on_when_the_spool_directory_is_gone() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 2).await;
    std::fs::remove_dir_all(cluster.spool_of(0)).unwrap();
    let jar = cluster.upload().await;
    let list = cluster.get(0, "/jars").await;
    assert_eq!((list.status, &list.json["files"][0]["id"]), (200, &json!(jar)));
    let left = std::fs::read_dir(cluster.spool_of(0)).unwrap().count();
    assert_eq!(left, 0, "and are taken away when a node has them");
    cluster.stop().await;
}

#[tokio::test]
async fn a_package_that_no_jar_id_names_is_swept() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let kept = cluster.upload().await;
    // As if the dispatcher had died before it put the id.
    let key = format!("/jar/{}", records::keys::encode_segment(&jar));
    let txn = meta_types::Txn { success: vec![meta_types::Op::delete(key)], ..Default::default() };
    cluster.kv.apply_txn(&txn).unwrap();
    let state = |jar: &str| {
        let unit = UnitId::new(&format!("jar-{}", jar.split('_').next().unwrap()), "1").unwrap();
        let cluster = &cluster;
        async move {
            let scope = Scope::package(&unit);
            let view = records::View::load(&cluster.kv, scope).await.unwrap();
            let found = view.get(&UnitKey::new(&unit)).unwrap();
            found.map(|found| format!("{:?}", found.state))
        }
    };
    cluster.until(|| async { (state(&jar).await.as_deref() == Some("Removing")).then_some(()) }).await;
    assert_eq!(state(&kept).await.as_deref(), Some("Ready"));
    cluster.stop().await;
}

#[tokio::test]
async fn submission_can_be_turned_off() {
    let mut cluster = Cluster::start(0).await;
    let kv = Arc::new(cluster.kv.clone());
    cluster.add_dispatcher_with(kv, |options| options.web_submit = false).await;
    cluster.node("n1", 1).await;
    let jar = hello_jar();
    let upload = cluster.post_multipart(0, "/jars/upload", &[Part::file("f", "x.jar", &jar)]).await;
    assert_eq!(upload.status, 403);
    assert!(upload.error().contains("web.submit.enable"), "{}", upload.text);
    assert_eq!(cluster.post(0, "/run-async?jarId=x", "").await.status, 403);
    assert_eq!(cluster.post(0, "/jars/x/run", "").await.status, 403);
    assert_eq!(cluster.get(0, "/config").await.json["features"]["web-submit"], false);
    assert_eq!(cluster.get(0, "/jars").await.status, 200);
    cluster.stop().await;
}

#[tokio::test]
async fn an_upload_above_the_limit_is_413() {
    let mut cluster = Cluster::start(0).await;
    let kv = Arc::new(cluster.kv.clone());
    cluster.add_dispatcher_with(kv, |options| options.upload_max_bytes = process_kit::ByteSize(1000)).await;
    cluster.node("n1", 1).await;
    let answer = cluster.post_multipart(0, "/jars/upload", &[Part::file("f", "x.jar", &[0; 2000])]).await;
    assert_eq!(answer.status, 413, "{}", answer.text);
    assert!(answer.error().contains("web.upload.max-bytes"), "{}", answer.text);
    let spool = std::fs::read_dir(cluster.spool_of(0)).unwrap().count();
    assert_eq!(spool, 0, "nothing is left on the disk");
    cluster.stop().await;
}

#[tokio::test]
async fn head_is_no_route_and_figures_are_served() {
    let cluster = Cluster::start(1).await;
    assert_eq!(cluster.send(0, "HEAD", "/overview", &[], vec![]).await.status, 404);
    let metrics = cluster.get(0, "/metrics").await;
    assert!(metrics.text.contains("metastore_dispatcher_run_requests"), "{}", metrics.text);
    cluster.stop().await;
}
