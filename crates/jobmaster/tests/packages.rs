//! Packages across nodes: created everywhere or nowhere, removed only when nothing runs on them.

mod common;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use common::flaky::{Fate, FlakyKv};
use common::{Cluster, deploy, spec, unit};
use process_kit::ByteSize;
use records::Scope;
use records::keys::{CopyKey, UnitKey};
use records::packages::dead_copy;
use records::record::{CopyState, JobState, UnitState};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_ends_ready_and_present_on_both_nodes_with_the_same_tree() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let app = unit("app");
    let files: [(&str, &[u8]); 3] = [("a/b/c.jar", &[7; 100_000]), ("d.jar", b"d"), ("empty", b"")];
    let (status, body) = a.put(&app, "nodes=all", &files).await;
    assert_eq!((status, body["status"].as_str()), (200, Some("READY")), "{body}");
    let rows = body["nodes"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["status"] == "PRESENT" && row["alive"] == true), "{body}");
    assert_eq!(rows.len(), 2);
    for node in [&a, &b] {
        for (path, bytes) in files {
            let at = node.work_dir.join("icp/app/1.0.0").join(path);
            assert_eq!(std::fs::read(at).unwrap(), bytes, "{path} on {}", node.name);
        }
        let (_, listed) = node.get("/packages").await;
        assert!(listed.contains("PUBLISHED") && listed.contains("\"files\":3"), "{listed}");
    }
    let (_, manifest) = b.get("/packages/app/1.0.0/manifest").await;
    assert!(manifest.contains("a/b/c.jar"), "{manifest}");

    // The same once more is fine, through the other node too; other content is not.
    let (status, body) = b.put(&app, "", &files).await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = b.put(&app, "", &[("d.jar", b"other")]).await;
    assert_eq!((status, body["reason"].as_str()), (409, Some("EXISTS")), "{body}");
    assert_eq!(std::fs::read_dir(b.work_dir.join("icp-store/staging")).unwrap().count(), 0);

    cluster.remove(&app, false).await;
    cluster.until_absent(&app).await;
    assert!(!a.has(&app, "d.jar") && !b.has(&app, "d.jar"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_space_fails_the_create_with_its_reason_and_nothing_stays() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let mut full = cluster.options("full");
    full.host.min_free = ByteSize(u64::MAX);
    let full = cluster.node_with(full).await;
    let app = unit("app");
    let (status, body) = a.put(&app, "nodes=all", &[("d.jar", b"d")]).await;
    assert_eq!((status, body["reason"].as_str()), (507, Some("ENOSPC")), "{body}");
    let text = body["errors"][0].as_str().unwrap();
    assert!(text.contains("node full failed") && text.contains("not enough disk space"), "{text}");
    cluster.until_absent(&app).await;
    assert!(!a.has(&app, "d.jar") && !full.has(&app, "d.jar"));

    // As the coordinator it refuses too, and says why.
    let (status, body) = full.put(&app, "nodes=full", &[("d.jar", b"d")]).await;
    assert_eq!(status, 507, "{body}");
    assert!(body["errors"][0].as_str().unwrap().contains("not enough disk space"), "{body}");
    // One copy is enough if the policy says so, and the name is free.
    let (status, body) = a.put(&app, "copies=1", &[("d.jar", b"d")]).await;
    assert_eq!((status, body["status"].as_str()), (200, Some("READY")), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_uploads_are_refused_and_leave_nothing() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let app = unit("app");
    for (files, why) in [
        (&[("../x", &b"1"[..])][..], ".."),
        (&[("x", b"1"), ("X", b"2")], "case"),
        (&[("x", b"1"), ("x", b"2")], "twice"),
    ] {
        let (status, body) = a.put(&app, "", files).await;
        assert_eq!(status, 400, "{body}");
        assert!(body["errors"][0].as_str().unwrap().contains(why), "{body}");
        cluster.until_absent(&app).await;
    }
    for query in ["nodes=nobody", "copies=1&nodes=all", "origin=moon", "unknown=1"] {
        assert_eq!(a.put(&app, query, &[("x", b"1")]).await.0, 400, "{query}");
    }
    let peer = icp_store::peer::Peer::new(icp_store::peer::client(), a.node.address().to_string());
    let none: Vec<(String, futures_util::stream::Empty<Result<bytes::Bytes, std::io::Error>>)> = Vec::new();
    let (status, _) = peer.put_package("..%2F..", "1", "", none, common::BOUND).await.unwrap();
    assert_eq!(status, 400);
    assert_eq!(a.get("/blobs/../../etc/passwd").await.0, 404);
    assert_eq!(a.get("/blobs/xyz").await.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_leaves_no_create_behind() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let app = unit("app");
    let head = b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.jar\"\r\n\r\nhalf";
    let mut socket = tokio::net::TcpStream::connect(a.node.address()).await.unwrap();
    let request = "PUT /packages/app/1.0.0 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nContent-Type: \
                   multipart/form-data; boundary=x\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut socket, request.as_bytes()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, head).await.unwrap();
    let key = UnitKey::new(&app);
    cluster
        .until("CREATING", Scope::package(&app), |view| {
            view.get(&key).unwrap().filter(|unit| unit.state == UnitState::Creating)
        })
        .await;
    drop(socket);
    cluster.until_absent(&app).await;
    assert_eq!(std::fs::read_dir(a.work_dir.join("icp-store/staging")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_jobs_on_a_node_without_the_package_make_one_download() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "copies=1").await;
    let mut options = cluster.options("b");
    options.slots = 40;
    let b = cluster.node_with(options).await;
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(cluster.admit(spec(&program, "finish", &[])).await);
    }
    for job in &jobs {
        let (state, exit, _) = cluster.until_over(job).await;
        assert_eq!(state, JobState::Finished, "{exit:?}");
    }
    let (_, figures) = b.get("/metrics").await;
    assert!(figures.contains("metastore_icp_fetches_total{end=\"ok\"} 1\n"), "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_safe_removal_waits_for_the_running_job() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let program = deploy(&cluster, &a, "app", "").await;
    let job = cluster.admit(spec(&program, "forever", &[])).await;
    let running = cluster.until_running(&job).await;
    let owner = running.attempts.last().unwrap().owner.node.clone();
    cluster.remove(&program.unit, false).await;
    let row = CopyKey::new(&program.unit, &owner);
    cluster
        .until("DRAINING", Scope::package(&program.unit), |view| {
            view.get(&row).unwrap().filter(|row| row.state == CopyState::Draining && row.uses == 1)
        })
        .await;
    let node = if owner == "a" { &a } else { &b };
    assert!(node.has(&program.unit, "app.jar"), "its files were deleted under a running job");
    assert_eq!(cluster.job(&job).await.state, JobState::Running);
    // A new start on it is refused by the admission; the running one ends by itself.
    cluster.cancel(&job).await;
    assert_eq!(cluster.until_over(&job).await.0, JobState::Canceled);
    cluster.until_absent(&program.unit).await;
    assert!(!a.has(&program.unit, "app.jar") && !b.has(&program.unit, "app.jar"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_removal_ends_the_job_and_the_files() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    let job = cluster.admit(spec(&program, "stubborn", &[])).await;
    cluster.until_running(&job).await;
    cluster.remove(&program.unit, true).await;
    let (state, exit, _) = cluster.until_over(&job).await;
    assert_eq!((state, exit.class.as_deref()), (JobState::Failed, Some("PACKAGE_REMOVED")), "{exit:?}");
    cluster.until_absent(&program.unit).await;
    assert!(!a.has(&program.unit, "app.jar"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_the_cluster_forgot_go_and_strangers_stay() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    a.stop().await;
    // While the node is away its row is swept and the package removed.
    cluster.remove(&program.unit, true).await;
    let row = CopyKey::new(&program.unit, &"a".to_owned());
    records::carry_out(&*cluster.kv, &Scope::package(&program.unit), |view| {
        records::packages::dead_copy(view, &program.unit, &row.node)
    })
    .await
    .unwrap();
    cluster.until_absent(&program.unit).await;
    let stranger = a.work_dir.join("icp/by-hand/1.0.0");
    std::fs::create_dir_all(&stranger).unwrap();
    std::fs::write(stranger.join("x.jar"), "x").unwrap();
    assert!(a.has(&program.unit, "app.jar"));

    let again = cluster.node("a").await;
    let give_up = tokio::time::Instant::now() + common::BOUND;
    while again.has(&program.unit, "app.jar") {
        assert!(tokio::time::Instant::now() < give_up, "the forgotten package is still there");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (_, listed) = again.get("/packages").await;
    assert!(listed.contains("by-hand") && listed.contains("UNREGISTERED"), "{listed}");
    assert!(std::fs::metadata(stranger.join("x.jar")).unwrap().size() == 1);
}

/// A package that nobody carries any more would stay CREATING as long as its coordinator lives (P6).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_whose_reservation_was_not_answered_is_undone_by_its_node() {
    let cluster = Cluster::new().await;
    let store = Arc::new(FlakyKv::new(cluster.kv.clone()));
    let a = cluster.node_over(store.clone(), cluster.options("a")).await;
    let app = unit("app");
    for fate in [Fate::AnswerLost, Fate::Late] {
        *store.fate.lock() = fate;
        let (status, body) = a.put(&app, "nodes=all", &[("d.jar", b"d")]).await;
        assert!(status >= 500, "{fate:?}: {status} {body}");
        *store.fate.lock() = Fate::Fine;
        if fate == Fate::Late {
            assert_eq!(store.arrive(), 1);
        }
        cluster.until_absent(&app).await;
    }
    let (status, body) = a.put(&app, "nodes=all", &[("d.jar", b"d")]).await;
    assert_eq!((status, body["status"].as_str()), (200, Some("READY")), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undoing_that_ran_out_of_time_is_done_when_the_store_is_back() {
    let cluster = Cluster::new().await;
    let store = Arc::new(FlakyKv::new(cluster.kv.clone()));
    let a = cluster.node_over(store.clone(), cluster.options("a")).await;
    let mut full = cluster.options("full");
    full.host.min_free = ByteSize(u64::MAX);
    let _full = cluster.node_with(full).await;
    let (app, key) = (unit("app"), UnitKey::new(&unit("app")));
    let files: [(&str, &[u8]); 1] = [("d.jar", b"d")];
    let upload = a.put(&app, "nodes=all", &files);
    let cut_off = async {
        // Announced: the next writes of its record are READY or the undoing.
        let announced = |view: &records::View| view.get(&key).unwrap()?.manifest.clone();
        cluster.until("the manifest", Scope::package(&app), announced).await;
        *store.fate.lock() = Fate::Refused;
    };
    let ((status, body), ()) = tokio::join!(upload, cut_off);
    assert_eq!(status, 507, "{body}");
    let left = cluster.view(Scope::package(&app)).await.get(&key).unwrap();
    assert_eq!(left.map(|unit| unit.state), Some(UnitState::Creating), "the undoing got through");
    *store.fate.lock() = Fate::Fine;
    cluster.until_absent(&app).await;
}

/// A copy that is lost with its node is made good by one of the others, when the node's row is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_copy_is_made_good_elsewhere() {
    let cluster = Cluster::new().await;
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(cluster.node(name).await);
    }
    let app = unit("app");
    let (status, body) = nodes[0].put(&app, "copies=2", &[("d.jar", b"d")]).await;
    assert_eq!(status, 200, "{body}");
    let (with, without): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.has(&app, "d.jar"));
    assert_eq!((with.len(), without.len()), (2, 1));
    let gone = with.iter().find(|node| node.name != "n1").unwrap();
    gone.stop().await;
    cluster
        .until("the node's end", Scope::nodes(), |view| {
            let there = records::nodes::current(view, &gone.name).unwrap();
            there.is_none().then_some(())
        })
        .await;
    assert!(!without[0].has(&app, "d.jar"), "its row counts until it is given up");
    records::carry_out(&*cluster.kv, &Scope::package(&app), |view| dead_copy(view, &app, &gone.name))
        .await
        .unwrap();
    let row = CopyKey::new(&app, &without[0].name);
    cluster
        .until("the copy", Scope::package(&app), |view| {
            view.get(&row).unwrap().filter(|row| row.state == CopyState::Present)
        })
        .await;
    assert!(without[0].has(&app, "d.jar"));
}
