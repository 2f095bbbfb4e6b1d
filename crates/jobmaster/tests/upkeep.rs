//! Copies that are read again, repaired, and fetched on demand, on real nodes.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use common::{BOUND, Cluster, TestNode, deploy, spec, unit};
use futures_util::future::join_all;
use icp_store::peer;
use meta_client::Stored;
use records::keys::CopyKey;
use records::nodes::{Register, register};
use records::packages::{CopyReport, dead_copy, present};
use records::record::{Copy, CopyState, JobState, Node as NodeRecord, PackageRef, Role};
use records::{Scope, UnitId, View, carry_out};
use serde_json::{Value, json};

async fn post(node: &TestNode, path: &str) -> (u16, Value) {
    let answer = peer::client().post(node.url(path)).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
}

async fn verify(node: &TestNode, package: &PackageRef, repair: bool) -> Value {
    let UnitId { name, version } = &package.unit;
    let path = format!("/packages/{name}/{version}/verify?op={}&repair={repair}", package.op);
    let (status, body) = post(node, &path).await;
    assert_eq!(status, 200, "{body}");
    body
}

fn file(node: &TestNode, path: &str) -> PathBuf {
    node.work_dir.join("icp/app/1.0.0").join(path)
}

/// Flips one bit of a published file, in place: its blob is the same file.
fn flip(node: &TestNode, path: &str) {
    let at = file(node, path);
    let mut bytes = std::fs::read(&at).unwrap();
    bytes[0] ^= 1;
    std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&at, bytes).unwrap();
}

fn row_in(view: &View, package: &PackageRef, node: &TestNode) -> Option<Stored<Copy>> {
    view.get(&CopyKey::new(&package.unit, &node.name)).unwrap()
}

async fn until_row(
    cluster: &Cluster,
    package: &PackageRef,
    node: &TestNode,
    state: CopyState,
) -> Stored<Copy> {
    let now = node.node.session().borrow().as_ref().unwrap().me.incarnation;
    let is = |row: &Stored<Copy>| row.state == state && row.incarnation == now;
    cluster
        .until(&format!("{state:?} on {}", node.name), Scope::package(&package.unit), |view| {
            row_in(view, package, node).filter(is)
        })
        .await
}

/// Starts a node of the same directory anew.
async fn restart(cluster: &Cluster, node: TestNode) -> TestNode {
    node.stop().await;
    cluster.node(&node.name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_is_found_where_it_is_and_repaired_from_another_node() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let program = deploy(&cluster, &a, "app", "").await;
    let before = cluster.kv.snapshot().revision();
    flip(&b, "app.jar");
    let kept = std::fs::metadata(file(&b, "lib/dep.jar")).unwrap().ino();
    assert_eq!(verify(&a, &program, false).await["rows"], json!([]));
    let found = verify(&b, &program, false).await;
    assert_eq!(found["rows"], json!([{ "file": "app.jar", "state": "CORRUPT" }]));
    assert_eq!((&found["files"], &found["repair"]), (&json!(2), &Value::Null));
    assert_eq!(cluster.kv.snapshot().revision(), before, "a verification writes nothing");

    let found = verify(&b, &program, true).await;
    assert_eq!(found["repair"], json!({ "state": "BEGUN", "uses": 0 }));
    until_row(&cluster, &program, &b, CopyState::Present).await;
    assert_eq!(verify(&b, &program, true).await["rows"], json!([]));
    assert_eq!(std::fs::read(file(&b, "app.jar")).unwrap(), b"not read");
    assert_eq!(std::fs::metadata(file(&b, "lib/dep.jar")).unwrap().ino(), kept, "what was good is kept");
    for left in ["staging", "trash"] {
        assert_eq!(std::fs::read_dir(b.work_dir.join("icp-store").join(left)).unwrap().count(), 0, "{left}");
    }
    // The good one was not touched, and a repair that is not needed does nothing.
    assert_eq!(verify(&a, &program, true).await["repair"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_and_additional_files_are_damage_too() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let program = deploy(&cluster, &a, "app", "").await;
    for dir in ["", "lib"] {
        std::fs::set_permissions(file(&b, dir), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::remove_file(file(&b, "lib/dep.jar")).unwrap();
    std::fs::write(file(&b, "stray"), "x").unwrap();
    let found = verify(&b, &program, true).await;
    assert_eq!(
        found["rows"],
        json!([{ "file": "lib/dep.jar", "state": "MISSING" }, { "file": "stray", "state": "EXTRA" }])
    );
    until_row(&cluster, &program, &b, CopyState::Present).await;
    assert_eq!(verify(&b, &program, false).await["rows"], json!([]));

    // All of it: the record said PRESENT.
    std::fs::set_permissions(file(&b, ""), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(file(&b, ""), b.work_dir.join("aside")).unwrap();
    let found = verify(&b, &program, true).await;
    assert_eq!(
        (&found["rows"][0]["file"], &found["rows"][0]["state"], found["rows"].as_array().unwrap().len()),
        (&json!("*"), &json!("MISSING"), 1)
    );
    until_row(&cluster, &program, &b, CopyState::Present).await;
    assert!(b.has(&program.unit, "lib/dep.jar") && a.has(&program.unit, "lib/dep.jar"));
}

/// It must not be "repaired" from its own damaged blob, not be said to be PRESENT by a restart, and not be deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_copy_is_reported_and_kept() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    flip(&a, "app.jar");
    assert_eq!(verify(&a, &program, true).await["repair"]["state"], "BEGUN");
    let row = until_row(&cluster, &program, &a, CopyState::Failed).await;
    let why = row.error.clone().unwrap();
    assert!(why.contains("app.jar CORRUPT") && why.contains("no live node holds"), "{why}");
    assert_eq!(std::fs::read(file(&a, "app.jar")).unwrap(), b"oot read", "damaged, and kept");
    assert_eq!(std::fs::read(file(&a, "lib/dep.jar")).unwrap(), b"dep", "good, and kept");
    assert_eq!(verify(&a, &program, true).await["repair"]["state"], "NONE", "it is known by now");

    let a = restart(&cluster, a).await;
    let row = until_row(&cluster, &program, &a, CopyState::Failed).await;
    assert!(row.error.as_ref().unwrap().contains("app.jar CORRUPT"), "{row:?}");
    // Somebody brings the right bytes back.
    a.stop().await;
    flip(&a, "app.jar");
    let a = cluster.node("a").await;
    until_row(&cluster, &program, &a, CopyState::Present).await;
    assert_eq!(verify(&a, &program, false).await["rows"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_whose_record_was_swept_proves_itself_before_it_is_present() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let program = deploy(&cluster, &a, "app", "").await;
    b.stop().await;
    flip(&b, "lib/dep.jar");
    let scope = Scope::package(&program.unit);
    carry_out(&*cluster.kv, &scope, |view| dead_copy(view, &program.unit, "b")).await.unwrap();
    let b = cluster.node("b").await;
    until_row(&cluster, &program, &b, CopyState::Present).await;
    assert_eq!(std::fs::read(file(&b, "lib/dep.jar")).unwrap(), b"dep");
    assert_eq!(verify(&b, &program, false).await["rows"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_copy_is_replaced_only_when_nothing_runs_on_it() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let program = deploy(&cluster, &a, "app", "").await;
    let job = cluster.admit(spec(&program, "forever", &[])).await;
    let owner = cluster.until_running(&job).await.attempts.last().unwrap().owner.node.clone();
    let (node, other) = if owner == "a" { (&a, &b) } else { (&b, &a) };
    flip(node, "lib/dep.jar");
    let damaged = std::fs::metadata(file(node, "lib/dep.jar")).unwrap().ino();
    let found = verify(node, &program, true).await;
    assert_eq!(found["repair"], json!({ "state": "WAITING", "uses": 1 }));
    let row = until_row(&cluster, &program, node, CopyState::Corrupt).await;
    assert_eq!(row.error.as_deref(), Some("lib/dep.jar CORRUPT"));

    // Another job does not start on it: it starts elsewhere, or here later, but does not fail.
    let second = cluster.admit(spec(&program, "finish", &[])).await;
    let (state, exit, done) = cluster.until_over(&second).await;
    assert_eq!(state, JobState::Finished, "{exit:?}");
    assert_eq!(done.attempts.last().unwrap().owner.node, other.name);
    assert_eq!(std::fs::metadata(file(node, "lib/dep.jar")).unwrap().ino(), damaged, "swapped under a job");
    assert_eq!(cluster.job(&job).await.state, JobState::Running);

    cluster.cancel(&job).await;
    cluster.until_over(&job).await;
    until_row(&cluster, &program, node, CopyState::Present).await;
    assert_eq!(verify(node, &program, false).await["rows"], json!([]));
}

/// D1, with pulls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_pulls_of_one_package_make_one_transfer() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "copies=1").await;
    let b = cluster.node("b").await;
    let pulls = join_all((0..20).map(|_| post(&b, "/packages/app/1.0.0/pull"))).await;
    for (status, body) in pulls {
        assert_eq!((status, &body["status"], &body["node"]), (200, &json!("PRESENT"), &json!("b")), "{body}");
        assert_eq!((&body["op"], &body["files"]), (&json!(program.op), &json!(2)));
    }
    let (_, figures) = b.get("/metrics").await;
    assert!(figures.contains("metastore_icp_fetches_total{end=\"ok\"} 1\n"), "{figures}");
    assert!(b.has(&program.unit, "lib/dep.jar"));
    until_row(&cluster, &program, &b, CopyState::Present).await;
    // Where it is already, it is there at once.
    assert_eq!(post(&a, "/packages/app/1.0.0/pull").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_with_its_reason() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    let good = &program.op;
    for (path, status, reason) in [
        ("nosuch/1.0.0/pull", 404, "NOT_FOUND"),
        ("app/latest/pull", 400, "BAD_REQUEST"),
        ("con/1.0.0/pull", 400, "BAD_REQUEST"),
        ("app/1.0.0/pull?timeout_ms=0", 400, "BAD_REQUEST"),
        ("app/1.0.0/pull?timeout_ms=soon", 400, "BAD_REQUEST"),
        ("app/1.0.0/pull?node=a", 400, "BAD_REQUEST"),
        ("app/1.0.0/verify", 400, "BAD_REQUEST"),
        ("app/1.0.0/verify?op=", 400, "BAD_REQUEST"),
        ("app/1.0.0/verify?op=other", 409, "FENCED"),
        ("nosuch/1.0.0/verify?op=x", 404, "NOT_FOUND"),
        (&format!("app/1.0.0/verify?op={good}&repair=maybe"), 400, "BAD_REQUEST"),
        (&format!("app/1.0.0/verify?op={good}&repare=true"), 400, "BAD_REQUEST"),
        (&format!("..%2Fapp/1.0.0/verify?op={good}"), 400, "BAD_REQUEST"),
    ] {
        let (found, body) = post(&a, &format!("/packages/{path}")).await;
        assert_eq!((found, body["reason"].as_str()), (status, Some(reason)), "{path}: {body}");
        assert!(!body["errors"][0].as_str().unwrap().is_empty());
    }
    cluster.remove(&program.unit, false).await;
    cluster.until_absent(&program.unit).await;
    assert_eq!(post(&a, "/packages/app/1.0.0/pull").await.0, 404);
}

/// A node that says it has the package and never answers.
async fn ghost(cluster: &Cluster, package: &PackageRef) -> std::net::TcpListener {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let lease = cluster.kv.grant(Duration::from_secs(3600)).id;
    let node = NodeRecord {
        roles: vec![Role::Jobmaster],
        rest_address: None,
        node_address: Some(silent.local_addr().unwrap().to_string()),
        slots: 0,
        version: String::new(),
        java: None,
        single_enable: None,
        boot: "ghost".into(),
        started_at_ms: 0,
        work_dir: None,
        stopping: false,
        extra: Default::default(),
    };
    let request = Register { name: "ghost".into(), node, lease };
    let me = carry_out(&*cluster.kv, &Scope::nodes(), |view| register(view, &request)).await.unwrap().answer;
    let report = CopyReport { unit: package.unit.clone(), op: package.op.clone(), me, for_job: None };
    let scope = Scope::package(&package.unit);
    carry_out(&*cluster.kv, &scope, |view| present(view, &report, 11)).await.unwrap();
    silent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_without_a_source_says_so_and_one_that_takes_too_long_ends() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "copies=1").await;
    let b = cluster.node("b").await;
    a.stop().await;
    let (status, body) = post(&b, "/packages/app/1.0.0/pull").await;
    assert_eq!((status, body["reason"].as_str()), (502, Some("NO_SOURCE")), "{body}");
    assert!(body["errors"][0].as_str().unwrap().contains("no live node holds"), "{body}");

    let _silent = ghost(&cluster, &program).await;
    let (status, body) = post(&b, "/packages/app/1.0.0/pull?timeout_ms=200").await;
    assert_eq!((status, body["reason"].as_str()), (504, Some("TIMEOUT")), "{body}");

    cluster.remove(&unit("app"), false).await;
    let asked = post(&b, "/packages/app/1.0.0/pull").await;
    assert_eq!((asked.0, asked.1["reason"].as_str()), (409, Some("UNIT_NOT_READY")), "{}", asked.1);
    assert!(tokio::time::timeout(BOUND, b.stop()).await.is_ok());
}
