//! What operators ask through any dispatcher: check, pull, refs, a node's truth, a removal's dry run. The nodes are
//! real, where bytes matter.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::routing::{get, post};
use jobmaster::{HostConfig, Node, NodeOptions};
use process_kit::{ByteSize, Shutdown};
use records::nodes::{Register, register};
use records::packages::{CopyReport, Remove, present, remove};
use records::record::{Node as NodeRecord, Role};
use records::{Scope, UnitId, carry_out};
use serde_json::{Value, json};
use support::http::{Answer, Part};
use support::{Cluster, PATIENCE, multipart};

struct RealNode {
    _node: Node,
    shutdown: Shutdown,
    work_dir: PathBuf,
}

/// Dispatchers that leave the rows of dead nodes alone for the time of a test, and a directory for nodes.
async fn cluster(dispatchers: usize) -> (Cluster, tempfile::TempDir) {
    let mut cluster = Cluster::start(0).await;
    for _ in 0..dispatchers {
        let kv = Arc::new(cluster.kv.clone());
        cluster.add_dispatcher_with(kv, |options| options.icp_grace = Duration::from_secs(600)).await;
    }
    (cluster, tempfile::tempdir().unwrap())
}

async fn real_node(cluster: &Cluster, dir: &Path, name: &str) -> RealNode {
    let work_dir = dir.join(name);
    let options = NodeOptions {
        name: name.into(),
        slots: 2,
        host: HostConfig {
            work_dir: work_dir.clone(),
            listen_node: ([127, 0, 0, 1], 0).into(),
            java: "/no/such/java".into(),
            min_free: ByteSize(0),
            ..HostConfig::default()
        },
        ..NodeOptions::default()
    };
    let shutdown = Shutdown::new();
    let node = Node::start(Arc::new(cluster.kv.clone()), options, shutdown.clone()).await.unwrap();
    let mut session = node.session();
    tokio::time::timeout(PATIENCE, session.wait_for(Option::is_some)).await.unwrap().unwrap();
    RealNode { _node: node, shutdown, work_dir }
}

impl RealNode {
    fn package(&self) -> PathBuf {
        self.work_dir.join("icp/lib/1.0.0")
    }

    fn flip(&self, file: &str) {
        let at = self.package().join(file);
        let mut bytes = std::fs::read(&at).unwrap();
        bytes[0] ^= 1;
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::write(&at, bytes).unwrap();
    }

    async fn stop(&self) {
        self.shutdown.finish(PATIENCE).await;
    }
}

async fn create(cluster: &Cluster, query: &str) {
    let parts = [Part::file("f", "a.jar", b"one"), Part::file("f", "lib/b.jar", b"two")];
    let (content_type, body) = multipart(&parts);
    let path = format!("/icp/lib/1.0.0?{query}");
    let answer = cluster.send(0, "PUT", &path, &[("content-type", &content_type)], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

async fn check(cluster: &Cluster, dispatcher: usize, query: &str) -> Value {
    let answer = cluster.post(dispatcher, &format!("/icp/lib/1.0.0/check?{query}"), "").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json
}

/// A server node that is registered, says that it has the package, and answers at this address.
async fn pretender(cluster: &Cluster, address: String) {
    let lease = cluster.kv.grant(Duration::from_secs(600)).id;
    let node = NodeRecord {
        roles: vec![Role::Jobmaster],
        rest_address: None,
        node_address: Some(address),
        slots: 0,
        version: String::new(),
        java: None,
        single_enable: None,
        boot: "pretender".into(),
        started_at_ms: 0,
        work_dir: None,
        stopping: false,
        extra: Default::default(),
    };
    let request = Register { name: "zz".into(), node, lease };
    let me = carry_out(&cluster.kv, &Scope::nodes(), |view| register(view, &request)).await.unwrap().answer;
    let unit = UnitId::new("lib", "1.0.0").unwrap();
    let scope = Scope::package(&unit);
    let op = cluster.get(0, "/icp/lib/1.0.0").await.json["op"].as_str().unwrap().to_owned();
    let report = CopyReport { unit, op, me, for_job: None };
    carry_out(&cluster.kv, &scope, |view| present(view, &report, 6)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_the_damaged_file_on_its_node_and_a_repair_mends_it() {
    let (cluster, dir) = cluster(2).await;
    let (n1, n2) = (real_node(&cluster, dir.path(), "n1").await, real_node(&cluster, dir.path(), "n2").await);
    create(&cluster, "nodes=all").await;
    let clean = check(&cluster, 0, "").await;
    let fine = |node: &str| json!({ "node": node, "file": "*", "state": "OK" });
    assert_eq!((&clean["clean"], &clean["rows"]), (&json!(true), &json!([fine("n1"), fine("n2")])));
    assert_eq!((&clean["files"], &clean["bytes"], clean.get("repair")), (&json!(2), &json!(6), None));

    n2.flip("lib/b.jar");
    let found = check(&cluster, 1, "").await;
    let damaged = json!({ "node": "n2", "file": "lib/b.jar", "state": "CORRUPT" });
    assert_eq!((&found["clean"], &found["rows"]), (&json!(false), &json!([fine("n1"), damaged])));
    let status = cluster.get(0, "/icp/lib/1.0.0").await;
    assert_eq!(status.json["nodes"][1]["status"], "PRESENT", "a check writes nothing");

    let mending = check(&cluster, 1, "repair=true").await;
    assert_eq!(mending["clean"], false, "it tells what it found");
    assert_eq!(mending["repair"], json!([{ "node": "n2", "state": "BEGUN", "uses": 0 }]));
    cluster
        .until(|| async {
            let status = cluster.get(0, "/icp/lib/1.0.0").await;
            (status.json["nodes"][1]["status"] == "PRESENT").then_some(())
        })
        .await;
    assert_eq!(check(&cluster, 0, "").await["rows"], json!([fine("n1"), fine("n2")]));

    // A node that is gone, one that never answers.
    n1.stop().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    pretender(&cluster, silent.local_addr().unwrap().to_string()).await;
    let found = check(&cluster, 0, "timeout_ms=3000").await;
    let states: Vec<_> = found["rows"].as_array().unwrap().iter().map(|row| &row["state"]).collect();
    assert_eq!(states, ["UNREACHABLE", "OK", "UNREACHABLE"], "{found}");
    assert_eq!(found["rows"][0]["detail"], "the node is not alive");
    assert!(found["rows"][2]["detail"].as_str().unwrap().contains("gave no answer"), "{found}");
    n2.stop().await;
    cluster.stop().await;
}

/// The rows would be about a package that is being removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_that_changes_while_it_is_checked_has_no_rows() {
    let (cluster, dir) = cluster(1).await;
    let n1 = real_node(&cluster, dir.path(), "n1").await;
    create(&cluster, "nodes=all").await;
    let kv = cluster.kv.clone();
    let verify = move || async move {
        let unit = UnitId::new("lib", "1.0.0").unwrap();
        let wish = Remove { unit: unit.clone(), op: None, reason: "meanwhile".into() };
        carry_out(&kv, &Scope::package(&unit), |view| remove(view, &wish)).await.unwrap();
        Json(json!({ "op": "x", "files": 2, "rows": [], "left_off": 0, "repair": null }))
    };
    let app = axum::Router::new()
        .route("/packages/{name}/{version}/verify", post(verify))
        .route("/packages", get(|| async { Json(json!([])) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    pretender(&cluster, address).await;
    let answer = cluster.post(0, "/icp/lib/1.0.0/check", "").await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    assert!(answer.error().starts_with("CHANGED_DURING_CHECK: lib:1.0.0"), "{}", answer.text);
    // And from the start, one that is not READY.
    let answer = cluster.post(0, "/icp/lib/1.0.0/check", "").await;
    assert_eq!(answer.status, 409);
    assert!(answer.error().starts_with("UNIT_NOT_READY: "), "{}", answer.text);
    server.abort();
    n1.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_brings_a_package_to_a_node() {
    let (cluster, dir) = cluster(1).await;
    let n1 = real_node(&cluster, dir.path(), "n1").await;
    create(&cluster, "nodes=n1").await;
    let n2 = real_node(&cluster, dir.path(), "n2").await;
    let pulled = cluster.post(0, "/icp/lib/1.0.0/pull?node=n2", "{}").await;
    assert_eq!((pulled.status, &pulled.json["status"]), (200, &json!("PRESENT")), "{}", pulled.text);
    assert_eq!((&pulled.json["node"], &pulled.json["files"]), (&json!("n2"), &json!(2)));
    assert_eq!(std::fs::read(n2.package().join("lib/b.jar")).unwrap(), b"two");
    assert_eq!(check(&cluster, 0, "").await["rows"].as_array().unwrap().len(), 2);

    let asked = |path: &'static str| cluster.post(0, path, "");
    let is = |answer: &Answer, status: u16, text: &str| {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.error().contains(text), "{text}: {}", answer.text);
    };
    is(&asked("/icp/lib/1.0.0/pull?node=n3").await, 404, "no live node n3; live server nodes: n1, n2");
    is(&asked("/icp/lib/1.0.0/pull?node=d1").await, 400, "d1 is no server node");
    is(&asked("/icp/lib/1.0.0/pull").await, 400, "node is missing");
    is(&asked("/icp/lib/1.0.0/pull?node=").await, 400, "live server nodes: n1, n2");
    is(&asked("/icp/lib/1.0.0/pull?node=a%2Fb").await, 400, "a node name");
    is(&asked("/icp/lib/1.0.0/pull?nodes=n2").await, 400, "did you mean \"node\"?");
    is(&asked("/icp/lib/1.0.0/pull?node=n2&timeout_ms=0").await, 400, "timeout_ms");
    is(&asked("/icp/other/1.0.0/pull?node=n2").await, 404, "no package other:1.0.0");
    is(&asked("/icp/lib/latest/pull?node=n2").await, 400, "latest");
    n1.stop().await;
    n2.stop().await;
    cluster.stop().await;
}

/// Two synced copies need no warning; one does, however the package was made, and a repeat says the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_and_an_upload_say_when_one_node_alone_holds_the_bytes() {
    let (cluster, dir) = cluster(1).await;
    let n1 = real_node(&cluster, dir.path(), "n1").await;
    let parts = [Part::file("f", "a.jar", b"one")];
    let (content_type, body) = multipart(&parts);
    let headers = [("content-type", content_type.as_str())];
    let create = async |version: &str| {
        cluster.send(0, "PUT", &format!("/icp/lib/{version}?nodes=all"), &headers, body.clone()).await
    };
    let warning = |answer: &Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.headers.get("warning").map(|value| value.to_str().unwrap().to_owned())
    };
    let alone = "199 metastore \"only node n1 holds lib:1.0.0: ";
    for _ in 0..2 {
        assert!(warning(&create("1.0.0").await).unwrap().starts_with(alone));
    }
    let upload = async || {
        let (content_type, body) = multipart(&[Part::file("jarfile", "hello.jar", b"PK")]);
        cluster.send(0, "POST", "/jars/upload", &[("content-type", &content_type)], body).await
    };
    assert!(warning(&upload().await).unwrap().contains("only node n1 holds "));
    let n2 = real_node(&cluster, dir.path(), "n2").await;
    assert_eq!(warning(&create("2.0.0").await), None);
    assert_eq!(warning(&upload().await), None);
    n1.stop().await;
    n2.stop().await;
    cluster.stop().await;
}

/// D6, its last line: names are compared exactly, and two that differ in case only exclude each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_a_name_that_differs_in_case_is_another_one_and_refused() {
    let (cluster, dir) = cluster(1).await;
    let n1 = real_node(&cluster, dir.path(), "n1").await;
    create(&cluster, "").await;
    let (content_type, body) = multipart(&[Part::file("f", "a.jar", b"one")]);
    let headers = [("content-type", content_type.as_str())];
    let refused = cluster.send(0, "PUT", "/icp/LIB/2.0.0", &headers, body).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.error().contains("differs from it only in upper and lower case"), "{}", refused.text);
    assert_eq!(cluster.get(0, "/icp/LIB/1.0.0").await.status, 404);
    assert_eq!(cluster.get(0, "/icp/lib/1.0.0").await.status, 200);
    n1.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nodes_truth_is_its_records_beside_its_disk() {
    let (cluster, dir) = cluster(1).await;
    let n1 = real_node(&cluster, dir.path(), "n1").await;
    create(&cluster, "").await;
    std::fs::create_dir_all(n1.work_dir.join("icp/by-hand/2")).unwrap();
    let found = cluster.get(0, "/nodes/n1/icp").await.json;
    assert_eq!(
        (&found["node"], &found["status"], &found["disk-error"]),
        (&json!("n1"), &json!("ALIVE"), &Value::Null)
    );
    let (theirs, ours) = (&found["packages"][0], &found["packages"][1]);
    assert_eq!((&theirs["name"], &theirs["disk"]["state"]), (&json!("by-hand"), &json!("UNREGISTERED")));
    let mut keys: Vec<_> = ours.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let documented = [
        "alive",
        "bytes",
        "disk",
        "drift",
        "error",
        "holders",
        "name",
        "op",
        "package",
        "status",
        "usageCount",
        "version",
        "why",
    ];
    assert_eq!(keys, documented);
    assert_eq!(
        (&ours["status"], &ours["package"], &ours["drift"]),
        (&json!("PRESENT"), &json!("READY"), &json!(false))
    );
    assert_eq!((&ours["disk"]["bytes"], &ours["disk"]["files"]), (&json!(6), &json!(2)));
    assert_eq!(ours["disk"]["op"], ours["op"]);

    // Somebody took the files away.
    std::fs::set_permissions(n1.package(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(n1.package(), dir.path().join("aside")).unwrap();
    let found = cluster.get(0, "/nodes/n1/icp?stale=true").await.json;
    let ours = &found["packages"][1];
    assert_eq!((&ours["drift"], &ours["disk"]["state"]), (&json!(true), &json!("ABSENT")), "{found}");
    let row = &check(&cluster, 0, "").await["rows"][0];
    assert_eq!((&row["file"], &row["state"]), (&json!("*"), &json!("MISSING")));

    n1.stop().await;
    let found = cluster.get(0, "/nodes/n1/icp").await.json;
    assert_eq!(
        (&found["status"], &found["packages"][0]["disk"]["state"]),
        (&json!("OFFLINE"), &json!("UNKNOWN"))
    );
    assert_eq!(found["packages"].as_array().unwrap().len(), 1, "its records only: {found}");
    let unknown = cluster.get(0, "/nodes/n9/icp").await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.error(), "there is no node n9; no server node is alive");
    assert_eq!(cluster.get(0, "/nodes/d1/icp").await.status, 400, "a dispatcher has no packages");
    assert_eq!(cluster.get(0, "/nodes/a%20b/icp").await.status, 400);
    let misspelt = cluster.get(0, "/nodes/n1/icp?stael=true").await;
    assert_eq!(misspelt.error(), "unknown query parameter \"stael\"; did you mean \"stale\"?");
    cluster.stop().await;
}

#[tokio::test]
async fn refs_and_a_dry_run_say_what_the_removal_then_says() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 4).await;
    create(&cluster, "").await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Forever", "packages": ["lib:1.0.0"] });
    cluster.post(0, "/run-async", &body.to_string()).await;
    let job = cluster.completed(0, "T1").await.json["operation"]["jobid"].as_str().unwrap().to_owned();

    let refs = cluster.get(0, "/icp/lib/1.0.0/refs").await.json;
    assert_eq!(refs["jobs"], json!([{ "job": job, "run": "T1" }]));
    let using = &refs["uses"][0];
    assert_eq!((&using["node"], &using["holder"], &using["run"]), (&json!("n1"), &json!(job), &json!("T1")));
    assert_eq!(refs["nodes"], json!([{ "node": "n1", "status": "PRESENT", "alive": true }]));
    assert_eq!(refs["status"], "READY");

    let dry = cluster.delete(0, "/icp/lib/1.0.0?dry-run=true").await.json;
    assert_eq!(
        (&dry["from"], &dry["to"], &dry["deletes"]),
        (&json!("READY"), &json!("REMOVING"), &json!(["n1"]))
    );
    assert_eq!((&dry["refs"], &dry["waitsFor"][0]), (&refs, &json!(format!("job {job}"))));
    let forced = cluster.delete(0, "/icp/lib/1.0.0?mode=force&dry-run=true").await.json;
    assert_eq!((&forced["to"], &forced["ends"]), (&json!("PURGING"), &json!([format!("{job} on n1")])));
    assert_eq!(cluster.get(0, "/icp/lib/1.0.0/refs").await.json, refs, "nothing was changed");

    let removed = cluster.delete(0, "/icp/lib/1.0.0").await.json;
    assert_eq!((&removed["status"], &removed["holders"]), (&dry["to"], &dry["waitsFor"]));
    assert_eq!(removed["refs"]["jobs"], refs["jobs"]);

    for (method, path, status, text) in [
        ("GET", "/icp/lib/2.0.0/refs", 404, "no package lib:2.0.0"),
        ("GET", "/icp/lib/latest/refs", 400, "latest"),
        ("GET", "/icp/lib/1.0.0/refs?stal=1", 400, "did you mean \"stale\"?"),
        ("DELETE", "/icp/lib/1.0.0?dryrun=true", 400, "did you mean \"dry-run\"?"),
        ("DELETE", "/icp/lib/1.0.0?dry-run=perhaps", 400, "dry-run: expected true or false"),
        ("DELETE", "/icp/lib/2.0.0?dry-run", 404, "no package lib:2.0.0"),
        ("POST", "/icp/lib/2.0.0/check", 404, "no package lib:2.0.0"),
        ("POST", "/icp/con/2.0.0/check", 400, "device name"),
        ("POST", "/icp/lib/1.0.0/check?repare=true", 400, "did you mean \"repair\"?"),
        ("POST", "/icp/lib/1.0.0/check?repair=1", 400, "repair: expected true or false"),
        ("POST", "/icp/lib/1.0.0/check?timeout_ms=-1", 400, "timeout_ms: expected"),
    ] {
        let answer = cluster.send(0, method, path, &[], Vec::new()).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        assert!(answer.error().contains(text), "{method} {path}: {}", answer.text);
    }
    cluster.stop().await;
}
