//! What nobody needs any more on a node's disk goes while the node runs; what somebody needs stays.

mod common;

use std::path::{Path, PathBuf};

use common::{BOUND, Cluster, TestNode, deploy, unit};
use icp_store::Digest;
use icp_store::peer;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// A directory in staging or in the trash as an operation leaves it.
fn leave(node: &TestNode, parent: &str, op: &str) -> PathBuf {
    let dir = node.work_dir.join("icp-store").join(parent).join(op);
    std::fs::create_dir_all(dir.join("tree/lib")).unwrap();
    std::fs::write(dir.join("tree/lib/a.jar"), op).unwrap();
    std::fs::write(dir.join("op"), op).unwrap();
    dir
}

fn blob_path(node: &TestNode, bytes: &[u8]) -> PathBuf {
    let hex = Digest::of(bytes).to_string();
    node.work_dir.join("icp-store/blobs").join(&hex[..2]).join(hex)
}

fn leave_blob(node: &TestNode, bytes: &[u8]) -> PathBuf {
    let blob = blob_path(node, bytes);
    std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
    std::fs::write(&blob, bytes).unwrap();
    blob
}

async fn until_gone(paths: &[&Path]) {
    let give_up = Instant::now() + BOUND;
    while let Some(left) = paths.iter().find(|path| path.exists()) {
        assert!(Instant::now() < give_up, "{} is still there", left.display());
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn counted(node: &TestNode) -> Value {
    let (_, answer) = node.get("/reconcilers").await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let rows = answer["reconcilers"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == "leftovers").unwrap()["did"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_operation_needs_goes_without_a_restart() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let kept = deploy(&cluster, &a, "kept", "").await;
    let b = cluster.node("b").await;
    let going = deploy(&cluster, &b, "going", "copies=1").await;
    // An upload that goes on: reserved, one file sent, the other not.
    let file = |path: &str, bytes: &[u8]| json!({ "path": path, "size": bytes.len(), "blake3": Digest::of(bytes).to_string() });
    let list = json!({ "files": [file("a", b"sent"), file("b", b"not yet")] });
    let begun = peer::client().post(a.url("/packages/slow/1.0.0?nodes=a")).json(&list).send().await.unwrap();
    assert_eq!(begun.status(), 202);
    let slow: Value = serde_json::from_str(&begun.text().await.unwrap()).unwrap();
    let slow_op = slow["op"].as_str().unwrap();
    let put = format!("/packages/slow/1.0.0/files/{}?op={slow_op}&offset=0", Digest::of(b"sent"));
    assert_eq!(peer::client().put(a.url(&put)).body("sent").send().await.unwrap().status(), 200);

    let (staged, trashed) = (leave(&a, "staging", "dead-op"), leave(&a, "trash", "dead-op-2"));
    let orphan = leave_blob(&a, b"nobody's");
    // The operation of a READY package, and a directory that does not carry our mark.
    let known = leave(&a, "staging", &kept.op);
    let strange = a.work_dir.join("icp-store/staging/strange");
    std::fs::create_dir_all(&strange).unwrap();
    let note = a.work_dir.join("icp-store/blobs/README");
    std::fs::write(&note, "somebody's").unwrap();

    // A package that this node never had goes: the agent sees it, and wakes the collection.
    cluster.remove(&going.unit, false).await;
    cluster.until_absent(&going.unit).await;
    until_gone(&[&staged, &trashed, &orphan]).await;
    let give_up = Instant::now() + BOUND;
    while counted(&a).await != json!({ "blobs-collected": 1, "operations-cleared": 2 }) {
        assert!(Instant::now() < give_up, "{}", counted(&a).await);
        sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(known.exists() && strange.exists() && note.exists());
    assert!(a.has(&kept.unit, "app.jar") && blob_path(&a, b"not read").exists());
    let upload = a.work_dir.join("icp-store/staging").join(slow_op);
    assert!(upload.exists() && blob_path(&a, b"sent").exists(), "it is being received");

    // Its second file comes: nothing that was received was lost.
    let put = format!("/packages/slow/1.0.0/files/{}?op={slow_op}&offset=0", Digest::of(b"not yet"));
    assert_eq!(peer::client().put(a.url(&put)).body("not yet").send().await.unwrap().status(), 200);
    let ready = |view: &records::View| {
        let found = view.get(&records::keys::UnitKey::new(&unit("slow"))).unwrap()?;
        (found.state == records::record::UnitState::Ready).then_some(())
    };
    cluster.until("slow READY", records::Scope::package(&unit("slow")), ready).await;
    assert!(a.has(&unit("slow"), "a") && a.has(&unit("slow"), "b"));
    a.stop().await;
    b.stop().await;
}
