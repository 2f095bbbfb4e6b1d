//! Registers across nodes: READY where every node has the same, and where it fails every file is as it was.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::flaky::{Fate, FlakyKv};
use common::{BOUND, Cluster, Picture, TestNode, picture, spec, unit};
use icp_store::peer;
use meta_client::TypedKey;
use records::keys::{CopyKey, NodeKey, UnitKey, below};
use records::packages::{coordinator_lost, dead_copy, ready, take_over};
use records::record::{CopyState, JobState, NodeRef, PackageRef, UnitState};
use records::{Scope, View, carry_out};
use serde_json::Value;

const FILES: [(&str, &str); 2] = [("app.jar", "not read"), ("lib/dep.jar", "dep")];

fn root(node: &TestNode) -> PathBuf {
    node.work_dir.join("icp/app/1.0.0")
}

/// Files as somebody would have copied them there.
fn put(root: &Path, files: &[(&str, &str)]) {
    for (path, bytes) in files {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    }
}

fn is_read_only(root: &Path) -> bool {
    picture(root).values().all(|(_, mode, _, _)| mode & 0o222 == 0)
}

fn descriptors(node: &TestNode) -> Vec<String> {
    let all = fs::read_dir(node.work_dir.join("icp-store/descriptors")).unwrap();
    all.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
}

async fn register(node: &TestNode, query: &str) -> (u16, Value) {
    let url = node.url(&format!("/packages/app/1.0.0/register?{query}"));
    let answer = peer::client().post(url).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

fn rows<'a>(body: &'a Value) -> Vec<(&'a str, &'a str, &'a str)> {
    let rows = body["rows"].as_array().unwrap_or_else(|| panic!("no rows: {body}"));
    let [node, file, state] = ["node", "file", "state"];
    let cells = |row: &'a Value| (row[node].as_str(), row[file].as_str(), row[state].as_str());
    let row = |row| match cells(row) {
        (Some(node), Some(file), Some(state)) => (node, file, state),
        other => panic!("{other:?}"),
    };
    rows.iter().map(row).collect()
}

async fn record_of(cluster: &Cluster) -> Option<records::record::Unit> {
    let app = unit("app");
    let view = cluster.view(Scope::package(&app)).await;
    view.get(&UnitKey::new(&app)).unwrap().map(|unit| unit.value)
}

/// Nothing of the package is in the store, and the node's files are as they were.
async fn assert_untouched(cluster: &Cluster, nodes: &[(&TestNode, &Picture)]) {
    cluster.until_absent(&unit("app")).await;
    assert_eq!(cluster.kv.snapshot().scan(b"/icp/").count(), 0, "something of it is left in the store");
    for (node, before) in nodes {
        assert_eq!(&picture(&root(node)), *before, "node {}", node.name);
        assert_eq!(descriptors(node), Vec::<String>::new());
        // Still the user's to change.
        let file = root(node).join("app.jar");
        if file.is_file() {
            fs::File::options().append(true).open(file).unwrap();
        }
    }
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let give_up = tokio::time::Instant::now() + BOUND;
    while !is() {
        assert!(tokio::time::Instant::now() < give_up, "waited {BOUND:?} for {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_equal_on_three_nodes_is_ready_runs_and_is_removed_like_any_package() {
    let cluster = Cluster::new().await;
    let nodes = [cluster.node("a").await, cluster.node("b").await, cluster.node("c").await];
    nodes.iter().for_each(|node| put(&root(node), &FILES));
    let (status, body) = register(&nodes[0], "").await;
    assert_eq!((status, body["status"].as_str()), (200, Some("READY")), "{body}");
    assert_eq!(rows(&body), [("a", "*", "OK"), ("b", "*", "OK"), ("c", "*", "OK")]);
    assert!(nodes.iter().all(|node| is_read_only(&root(node))));
    let digest = body["digest"].as_str().unwrap().to_owned();

    // Again is fine, whatever node is asked; with another digest it is not.
    let (status, body) = register(&nodes[1], &format!("expect={digest}")).await;
    assert_eq!((status, body["status"].as_str()), (200, Some("READY")), "{body}");
    let (status, body) = register(&nodes[1], &format!("expect={}", "0".repeat(64))).await;
    assert_eq!((status, body["reason"].as_str()), (409, Some("EXISTS")), "{body}");

    // A job starts from it; a node that comes later fetches it from where it lies.
    let op = record_of(&cluster).await.unwrap().op;
    let program = PackageRef { unit: unit("app"), op };
    let mut options = cluster.options("late");
    options.slots = 40;
    let late = cluster.node_with(options).await;
    let mut jobs = Vec::new();
    for _ in 0..8 {
        jobs.push(cluster.admit(spec(&program, "finish", &[])).await);
    }
    for job in &jobs {
        let (state, exit, _) = cluster.until_over(job).await;
        assert_eq!(state, JobState::Finished, "{exit:?}");
    }
    assert_eq!(fs::read_to_string(root(&late).join("lib/dep.jar")).unwrap(), "dep");

    cluster.remove(&unit("app"), false).await;
    cluster.until_absent(&unit("app")).await;
    for node in nodes.iter().chain([&late]) {
        assert!(!root(node).exists(), "{}", node.name);
        until("an empty trash", || {
            fs::read_dir(node.work_dir.join("icp-store/trash")).unwrap().next().is_none()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_byte_on_one_of_three_nodes_fails_the_register_and_is_named() {
    let cluster = Cluster::new().await;
    let nodes = [cluster.node("a").await, cluster.node("b").await, cluster.node("c").await];
    nodes.iter().for_each(|node| put(&root(node), &FILES));
    fs::write(root(&nodes[1]).join("lib/dep.jar"), "deq").unwrap();
    let before: Vec<Picture> = nodes.iter().map(|node| picture(&root(node))).collect();
    let untouched: Vec<_> = nodes.iter().zip(&before).collect();
    for coordinator in &nodes {
        let (status, body) = register(coordinator, "nodes=all").await;
        assert_eq!((status, body["reason"].as_str()), (409, Some("NOT_EQUAL")), "{body}");
        assert_eq!(rows(&body), [("b", "lib/dep.jar", "DIFFERENT")]);
        assert_untouched(&cluster, &untouched).await;
    }

    // Those that are equal can be named; the other node's files stay what they are, removal or not.
    let (status, body) = register(&nodes[1], "nodes=c,a").await;
    assert_eq!((status, rows(&body)), (200, vec![("a", "*", "OK"), ("c", "*", "OK")]), "{body}");
    let digest = body["digest"].as_str().unwrap().to_owned();
    assert!(is_read_only(&root(&nodes[0])) && !is_read_only(&root(&nodes[1])));
    assert_eq!(picture(&root(&nodes[1])), before[1]);
    cluster.remove(&unit("app"), false).await;
    cluster.until_absent(&unit("app")).await;
    assert_eq!(picture(&root(&nodes[1])), before[1]);
    assert!(!root(&nodes[0]).exists());

    // Equal to each other is not enough where somebody knows better.
    nodes.iter().for_each(|node| put(&root(node), &[("app.jar", "other"), FILES[1]]));
    let (status, body) = register(&nodes[2], &format!("expect={digest}")).await;
    assert_eq!((status, body["reason"].as_str()), (409, Some("NOT_EQUAL")), "{body}");
    assert!(body["errors"][0].as_str().unwrap().contains(&digest), "{body}");
    assert_eq!(rows(&body).len(), 3);
    // Two of three are wrong: the expected digest says which.
    put(&root(&nodes[0]), &FILES);
    let (status, body) = register(&nodes[2], "").await;
    assert_eq!((status, rows(&body)), (409, vec![("a", "app.jar", "DIFFERENT")]), "{body}");
    let (_, body) = register(&nodes[2], &format!("expect={digest}")).await;
    assert_eq!(rows(&body), [("b", "app.jar", "DIFFERENT"), ("c", "app.jar", "DIFFERENT")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_to_register_and_what_cannot_be_registered_is_told_by_node_and_file() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    fs::create_dir_all(root(&b).join("lib")).unwrap();
    let (status, body) = register(&a, "").await;
    assert_eq!((status, body["reason"].as_str()), (404, Some("CONTENT_MISSING")), "{body}");
    assert_eq!(rows(&body), [("a", "*", "MISSING"), ("b", "*", "EMPTY")]);
    cluster.until_absent(&unit("app")).await;
    assert!(root(&b).join("lib").is_dir() && !root(&a).exists());

    put(&root(&a), &FILES);
    for (spoil, row) in [("", ("b", "*", "EMPTY")), ("lib/link", ("b", "lib/link", "REFUSED"))] {
        if !spoil.is_empty() {
            put(&root(&b), &FILES);
            std::os::unix::fs::symlink("/etc/passwd", root(&b).join(spoil)).unwrap();
        }
        let before = [picture(&root(&a)), picture(&root(&b))];
        let (status, body) = register(&b, "").await;
        assert_eq!((status, body["reason"].as_str()), (409, Some("UNUSABLE")), "{body}");
        assert_eq!(rows(&body), [row]);
        assert!(body["errors"][0].as_str().unwrap().starts_with("node b: "), "{body}");
        cluster.until_absent(&unit("app")).await;
        assert_eq!([picture(&root(&a)), picture(&root(&b))], before);
    }
    for query in
        ["nodes=majority", "nodes=nobody", "nodes=", "expect=abc", "from=libs", "from=/a/../b", "origin=icp"]
    {
        let (status, body) = register(&a, query).await;
        assert_eq!(status, 400, "{query}: {body}");
    }
    assert_eq!(record_of(&cluster).await, None);
    assert_eq!(a.get("/packages/app/1.0.0/inspection?op=none").await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_an_allowed_directory_the_files_are_copied_and_stay_the_users() {
    let cluster = Cluster::new().await;
    let libs = cluster.dir.path().join("libs");
    put(&libs.join("app"), &FILES);
    let before = picture(&libs);
    let closed = cluster.node("closed").await;
    let from = format!("from={}", libs.join("app").display());
    let (status, body) = register(&closed, &from).await;
    assert_eq!((status, body["reason"].as_str()), (400, Some("NOT_ALLOWED")), "{body}");
    assert!(body["errors"][0].as_str().unwrap().contains("icp.register-from"), "{body}");
    cluster.until_absent(&unit("app")).await;

    let open = |name: &str| {
        let mut options = cluster.options(name);
        options.host.register_from = vec![libs.display().to_string()];
        options
    };
    let (a, b) = (cluster.node_with(open("a")).await, cluster.node_with(open("b")).await);
    let (status, body) = register(&a, &from).await;
    assert_eq!((status, rows(&body)), (409, vec![("closed", "*", "NOT_ALLOWED")]), "{body}");
    cluster.until_absent(&unit("app")).await;
    let named = format!("nodes=a,b&{from}");
    let (status, body) = register(&closed, &named).await;
    assert_eq!((status, body["status"].as_str()), (200, Some("READY")), "{body}");
    assert!(is_read_only(&root(&a)) && is_read_only(&root(&b)));
    assert_eq!(picture(&libs), before);
    // The same directory again is fine; changed, it is other content, and does not reach the package.
    assert_eq!(register(&a, &named).await.0, 200);
    fs::write(libs.join("app/app.jar"), "changed").unwrap();
    let (status, body) = register(&a, &named).await;
    assert_eq!((status, body["reason"].as_str()), (409, Some("EXISTS")), "{body}");
    assert_eq!(fs::read_to_string(root(&b).join("app.jar")).unwrap(), "not read");
    cluster.remove(&unit("app"), true).await;
    cluster.until_absent(&unit("app")).await;
    assert!(!root(&a).exists() && libs.join("app/lib/dep.jar").exists());
}

/// Two nodes whose files are taken over, and a coordinator `a` that cannot say READY.
async fn stuck() -> (Cluster, Arc<FlakyKv>, TestNode, TestNode, [Picture; 2]) {
    let cluster = Cluster::new().await;
    let store = Arc::new(FlakyKv::new(cluster.kv.clone()));
    let a = cluster.node_over(store.clone(), cluster.options("a")).await;
    let b = cluster.node("b").await;
    put(&root(&a), &FILES);
    put(&root(&b), &FILES);
    let before = [picture(&root(&a)), picture(&root(&b))];
    *store.fate.lock() = Fate::NeverReady;
    let url = a.url("/packages/app/1.0.0/register?timeout_ms=600000");
    tokio::spawn(async move { peer::client().post(url).send().await });
    let all_here = |view: &View| {
        let rows = view.under::<CopyKey>(&below(CopyKey::PREFIX, &unit("app"))).unwrap();
        let here = rows.iter().filter(|(_, row)| row.state == CopyState::Present && row.digest.is_some());
        (here.count() == 2).then_some(())
    };
    cluster.until("both PRESENT", Scope::package(&unit("app")), all_here).await;
    assert!(is_read_only(&root(&a)) && is_read_only(&root(&b)));
    assert_eq!(record_of(&cluster).await.unwrap().state, UnitState::Creating);
    (cluster, store, a, b, before)
}

/// The node is cut off and its registration gone, as if it had died.
async fn lose(cluster: &Cluster, store: &FlakyKv, node: &str) {
    store.down.store(true, Ordering::SeqCst);
    let key = NodeKey { node: node.into() };
    let lease = cluster.view(Scope::nodes()).await.get(&key).unwrap().unwrap().lease;
    assert!(cluster.kv.revoke(lease));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_lost_after_the_files_were_taken_over_is_undone_and_every_file_goes_back() {
    let (cluster, store, a, b, before) = stuck().await;
    let op = record_of(&cluster).await.unwrap().op;
    lose(&cluster, &store, "a").await;
    // What a dispatcher does after the grace.
    let (app, scope) = (unit("app"), Scope::package(&unit("app")));
    carry_out(&*cluster.kv, &scope, |view| coordinator_lost(view, &app, &op)).await.unwrap();
    carry_out(&*cluster.kv, &scope, |view| dead_copy(view, &app, "a")).await.unwrap();
    cluster.until_absent(&app).await;
    assert_eq!(picture(&root(&b)), before[1]);
    // The node that was away finds its register forgotten: it gives back too.
    assert!(is_read_only(&root(&a)));
    *store.fate.lock() = Fate::Fine;
    store.down.store(false, Ordering::SeqCst);
    until("the files of a", || descriptors(&a).is_empty()).await;
    assert_untouched(&cluster, &[(&a, &before[0]), (&b, &before[1])]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_lost_after_the_files_were_taken_over_can_be_followed_by_another() {
    let (cluster, store, a, b, _) = stuck().await;
    let op = record_of(&cluster).await.unwrap().op;
    lose(&cluster, &store, "a").await;
    let (app, scope) = (unit("app"), Scope::package(&unit("app")));
    let key = NodeKey { node: "b".into() };
    let b_now = cluster.view(Scope::nodes()).await.get(&key).unwrap().unwrap().create_revision;
    let b_ref = NodeRef { node: "b".into(), incarnation: b_now };
    let epoch = carry_out(&*cluster.kv, &scope, |view| take_over(view, &app, &op, &b_ref)).await.unwrap();
    carry_out(&*cluster.kv, &scope, |view| ready(view, &app, &op, epoch.answer)).await.unwrap();
    *store.fate.lock() = Fate::Fine;
    store.down.store(false, Ordering::SeqCst);
    // Both know that it was READY: the files are the package's now.
    for node in [&a, &b] {
        until("the confirmation", || {
            descriptors(node).iter().all(|text| text.contains("\"tentative\":false"))
        })
        .await;
        assert!(is_read_only(&root(node)));
    }
    cluster.remove(&app, false).await;
    cluster.until_absent(&app).await;
    assert!(!root(&a).exists() && !root(&b).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_that_is_forced_away_gives_every_file_back() {
    let (cluster, store, a, b, before) = stuck().await;
    let app = unit("app");
    let (status, body) = register(&b, "").await;
    assert_eq!((status, body["reason"].as_str()), (409, Some("IN_PROGRESS")), "{body}");
    cluster.remove(&app, true).await;
    *store.fate.lock() = Fate::Fine;
    assert_untouched(&cluster, &[(&a, &before[0]), (&b, &before[1])]).await;
}

/// Targets that were away while the others registered: equal files are the package, other files stay the user's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_was_away_takes_part_if_its_files_are_equal() {
    let cluster = Cluster::new().await;
    let nodes = [cluster.node("a").await, cluster.node("b").await, cluster.node("c").await];
    nodes[..2].iter().for_each(|node| put(&root(node), &FILES));
    put(&root(&nodes[2]), &[FILES[0]]);
    let before = picture(&root(&nodes[2]));
    let (status, body) = register(&nodes[0], "nodes=a").await;
    assert_eq!(status, 200, "{body}");
    let (app, scope) = (unit("app"), Scope::package(&unit("app")));
    carry_out(&*cluster.kv, &scope, |view| {
        let key = UnitKey::new(&app);
        let found = view.get(&key)?.unwrap();
        let mut record = found.value.clone();
        record.targets = vec!["a".into(), "b".into(), "c".into()];
        Ok(records::Steps::new().unchanged(&key, &found).put(&key, &record).answer(()))
    })
    .await
    .unwrap();
    let row = |node: &str, state: CopyState| {
        let key = CopyKey::new(&app, &node.to_owned());
        move |view: &View| view.get(&key).unwrap().filter(|row| row.state == state)
    };
    cluster.until("b PRESENT", scope.clone(), row("b", CopyState::Present)).await;
    assert!(is_read_only(&root(&nodes[1])));
    let failed = cluster.until("c FAILED", scope.clone(), row("c", CopyState::Failed)).await;
    let why = failed.error.clone().unwrap();
    assert!(why.contains("not the registered files") && why.contains("move them away"), "{why}");
    cluster.remove(&app, false).await;
    cluster.until_absent(&app).await;
    assert_eq!(picture(&root(&nodes[2])), before);
    assert!(!root(&nodes[1]).exists());
}

/// A node that forgot to give back while it was down does so before anything else is registered in that place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_register_left_behind_is_given_back_before_the_next() {
    let (cluster, store, a, b, _) = stuck().await;
    let op = record_of(&cluster).await.unwrap().op;
    lose(&cluster, &store, "a").await;
    let (app, scope) = (unit("app"), Scope::package(&unit("app")));
    carry_out(&*cluster.kv, &scope, |view| coordinator_lost(view, &app, &op)).await.unwrap();
    carry_out(&*cluster.kv, &scope, |view| dead_copy(view, &app, "a")).await.unwrap();
    cluster.until_absent(&app).await;
    *store.fate.lock() = Fate::Fine;
    store.down.store(false, Ordering::SeqCst);
    cluster
        .until("a registered anew", Scope::nodes(), |view| {
            view.get(&NodeKey { node: "a".into() }).unwrap().map(|_| ())
        })
        .await;
    let (status, body) = register(&b, "nodes=a,b").await;
    assert_eq!(status, 200, "{body}");
    cluster.remove(&app, true).await;
    cluster.until_absent(&app).await;
    assert!(!root(&a).exists() && !root(&b).exists(), "it was READY");
}

/// It died after the files were taken over and before it heard that they are the package now, and they were damaged
/// meanwhile: the package was READY, so they are replaced like any copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_copy_that_was_not_confirmed_yet_is_replaced() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    [&a, &b].into_iter().for_each(|node| put(&root(node), &FILES));
    let (status, body) = register(&a, "nodes=a,b").await;
    assert_eq!(status, 200, "{body}");
    let (app, scope) = (unit("app"), Scope::package(&unit("app")));
    until("b's descriptor confirmed", || descriptors(&b).iter().all(|text| !text.contains(":true"))).await;
    b.stop().await;
    let descriptor = fs::read_dir(b.work_dir.join("icp-store/descriptors")).unwrap().next().unwrap().unwrap();
    let mut there: Value = serde_json::from_slice(&fs::read(descriptor.path()).unwrap()).unwrap();
    (there["v"], there["adopted"]["tentative"]) = (2.into(), true.into());
    fs::write(descriptor.path(), there.to_string()).unwrap();
    let damaged = root(&b).join("app.jar");
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&damaged, "not what it was").unwrap();
    let key = CopyKey::new(&app, &"b".to_owned());
    carry_out(&*cluster.kv, &scope, |view| {
        let row = view.get(&key)?.unwrap();
        Ok(records::Steps::new().unchanged(&key, &row).delete(&key).answer(()))
    })
    .await
    .unwrap();
    let _again = cluster.node("b").await;
    let present = |view: &View| view.get(&key).unwrap().filter(|row| row.state == CopyState::Present);
    cluster.until("b PRESENT again", scope, present).await;
    assert_eq!(fs::read_to_string(&damaged).unwrap(), FILES[0].1);
    assert!(is_read_only(&root(&b)));
}
