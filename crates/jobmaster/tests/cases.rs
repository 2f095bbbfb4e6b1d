//! Faults that users of such systems reported in public, as cases. `D1` and the like are their numbers.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use common::{BOUND, Cluster, TestNode, deploy, picture, spec, unit};
use futures_util::future::join_all;
use icp_store::peer;
use jobmaster::NodeOptions;
use records::keys::{CopyKey, NodeDrainKey};
use records::record::{CopyState, JobState, NodeDrain, PackageRef};
use records::{Scope, Steps, carry_out};
use serde_json::{Value, json};

/// From now on no job is placed there.
async fn drain(cluster: &Cluster, node: &str) {
    let key = NodeDrainKey::new(&node.to_owned());
    let record: NodeDrain = serde_json::from_value(json!({ "since_ms": 0 })).unwrap();
    let scope = Scope::default().and_key(&key);
    carry_out(&*cluster.kv, &scope, |_| Ok(Steps::new().absent(&key).put(&key, &record).answer(())))
        .await
        .unwrap();
}

/// D1: several jobs at once need a package that is not here. Twenty jobs start on a node that does not have their
/// package: one transfer, all succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_twenty_jobs_make_one_transfer() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "copies=1").await;
    drain(&cluster, "a").await;
    let b = cluster.node_with(NodeOptions { slots: 20, ..cluster.options("b") }).await;
    let jobs = join_all((0..20).map(|_| cluster.admit(spec(&program, "finish", &[])))).await;
    for job in &jobs {
        let (state, exit, ended) = cluster.until_over(job).await;
        assert_eq!((state, ended.attempt), (JobState::Finished, 1), "{exit:?}");
    }
    let (_, figures) = b.get("/metrics").await;
    assert!(figures.contains("metastore_icp_fetches_total{end=\"ok\"} 1\n"), "{figures}");
    assert!(!figures.contains("metastore_icp_fetches_total{end=\"failed\"}"), "{figures}");
    let (_, figures) = a.get("/metrics").await;
    let sent = format!("metastore_icp_blob_bytes_total {}\n", "not read".len() + "dep".len());
    assert!(figures.contains(&sent), "each file was given once: {figures}");
    a.stop().await;
    b.stop().await;
}

/// Paths and bytes of a node's copy, by the disk.
fn tree(node: &TestNode, name: &str) -> BTreeMap<String, Vec<u8>> {
    let root = node.work_dir.join("icp").join(name).join("1.0.0");
    let files = picture(&root).into_iter().filter(|(path, _)| path.is_file());
    files
        .map(|(path, (_, _, _, bytes))| (path.strip_prefix(&root).unwrap().display().to_string(), bytes))
        .collect()
}

/// D3: nested directories are lost. The same tree lies on every node, with equal lists of files and checksums, also on
/// one that fetched it later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_nested_directories_arrive_as_they_were_sent() {
    let cluster = Cluster::new().await;
    let mut nodes = vec![cluster.node("a").await, cluster.node("b").await];
    let files: [(&str, &[u8]); 3] =
        [("a/b/c.jar", b"nested"), ("d.jar", b"top"), ("a/b/d.jar", b"same name")];
    let (status, body) = nodes[0].put(&unit("tree"), "nodes=all", &files).await;
    assert_eq!(status, 200, "{body}");
    nodes.push(cluster.node("c").await);
    let pulled = peer::client().post(nodes[2].url("/packages/tree/1.0.0/pull")).send().await.unwrap();
    assert_eq!(pulled.status(), 200);
    let sent: BTreeMap<String, Vec<u8>> =
        files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
    let mut manifests = Vec::new();
    for node in &nodes {
        assert_eq!(tree(node, "tree"), sent, "on {}", node.name);
        let (_, text) = node.get("/packages/tree/1.0.0/manifest").await;
        manifests.push(serde_json::from_str::<Value>(&text).unwrap());
    }
    let nested =
        json!({ "path": "a/b/c.jar", "size": 6, "blake3": icp_store::Digest::of(b"nested").to_string() });
    let listed = manifests[0].as_array().unwrap();
    assert!(listed.len() == 3 && listed.contains(&nested), "{listed:?}");
    assert!(manifests.iter().all(|manifest| *manifest == manifests[0]), "{manifests:?}");
    for node in nodes {
        node.stop().await;
    }
}

async fn row(cluster: &Cluster, package: &PackageRef, node: &TestNode) -> CopyState {
    let key = CopyKey::new(&package.unit, &node.name);
    cluster.view(Scope::package(&package.unit)).await.get(&key).unwrap().unwrap().state
}

/// D5: a class that cannot be loaded brings the node down. The job fails with what the JVM said, the node lives on
/// under the same registration. A copy that is damaged on disk stays until a check: nobody runs on it from then on, and
/// it is replaced by a verified one from another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_corrupt_jar_fails_the_job_and_the_node_lives() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let program = deploy(&cluster, &a, "app", "").await;
    drain(&cluster, "a").await;
    let boot = b.node.session().borrow().as_ref().unwrap().me.clone();
    let damaged = b.work_dir.join("icp/app/1.0.0/app.jar");
    std::fs::set_permissions(&damaged, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&damaged, b"n0t read").unwrap();

    let job = cluster.admit(spec(&program, "Broken", &[])).await;
    let (state, exit, _) = cluster.until_over(&job).await;
    assert_eq!(state, JobState::Failed);
    assert!(exit.text.contains("no class Broken"), "{exit:?}");
    assert_eq!((b.get("/livez").await.0, b.get("/readyz").await.0), (200, 200));
    assert_eq!(b.node.session().borrow().as_ref().unwrap().me, boot, "the same registration");
    let next = cluster.admit(spec(&program, "finish", &[])).await;
    assert_eq!(cluster.until_over(&next).await.0, JobState::Finished, "it still runs jobs");

    // A start does not read the whole package again: what was verified counts until a check says otherwise.
    assert_eq!(row(&cluster, &program, &b).await, CopyState::Present);
    let verify = format!("/packages/app/1.0.0/verify?op={}&repair=true", program.op);
    let found = peer::client().post(b.url(&verify)).send().await.unwrap().text().await.unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["rows"], json!([{ "file": "app.jar", "state": "CORRUPT" }]));
    let give_up = tokio::time::Instant::now() + BOUND;
    while row(&cluster, &program, &b).await != CopyState::Present {
        assert!(tokio::time::Instant::now() < give_up, "not repaired");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(tree(&b, "app"), tree(&a, "app"));
    assert_eq!(tree(&b, "app")["app.jar"], b"not read");
    a.stop().await;
    b.stop().await;
}
