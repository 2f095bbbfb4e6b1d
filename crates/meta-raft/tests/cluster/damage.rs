//! Damaged checkpoints: the one before, or a peer's.

use std::path::{Path, PathBuf};

use meta_raft::StartError;

use crate::catch_up::write_until_purged;
use crate::common::*;

/// Flips a bit in the middle of every file of a checkpoint.
fn damage(generation: &Path) {
    let mut files = vec![generation.to_owned()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        if path.file_name().is_some_and(|name| name == "DESCRIPTION") || bytes.is_empty() {
            continue;
        }
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
}

/// A replica's checkpoints, newest first.
fn generations(cluster: &Cluster, i: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cluster.nodes[i].path("checkpoints")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_newest_checkpoint_is_damaged_and_the_one_before_serves() {
    let mut cluster = Cluster::start(1, tiny).await;
    write(cluster.at(0), "first", "v").await;
    write_until_purged(&cluster, 0, 20).await;
    write(cluster.at(0), "last", "v").await;
    let revision = cluster.at(0).core().read().revision();
    cluster.nodes[0].stop().await;
    let found = generations(&cluster, 0);
    assert!(found.len() >= 2, "{found:?}");
    damage(&found[0]);
    // Alone, without a peer to help: what it has must be enough.
    cluster.nodes[0].start().await;
    cluster.serving().await;
    assert_eq!(cluster.at(0).core().read().revision(), revision);
    assert_eq!(read(cluster.at(0), "first").await.as_deref(), Some("v"));
    assert_eq!(read(cluster.at(0), "last").await.as_deref(), Some("v"));
    write_until_purged(&cluster, 0, 60).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_checkpoints_are_damaged_and_a_peer_helps() {
    let mut cluster = Cluster::start(3, tiny).await;
    write(cluster.at(0), "first", "v").await;
    write_until_purged(&cluster, 0, 20).await;
    let broken = (cluster.leader().await + 1) % 3;
    cluster.nodes[broken].stop().await;
    write(cluster.at((broken + 1) % 3), "last", "v").await;
    // What the peer gives is of a later term than any this replica has heard of.
    let (leader, other) = (cluster.leader().await, 3 - broken - cluster.leader().await);
    let successor = cluster.at(other).status().borrow().member_id;
    let term = cluster.at(other).status().borrow().term;
    cluster.at(leader).transfer_leader(successor).await;
    wait_for(cluster.at(leader), |status| status.term > term && status.leader.is_some()).await;
    let last = cluster.at(other).status().borrow().last_log;
    write_until_purged(&cluster, other, last).await;
    generations(&cluster, broken).iter().for_each(|generation| damage(generation));
    cluster.nodes[broken].start().await;
    cluster.serving().await;
    assert_eq!(read(cluster.at(broken), "first").await.as_deref(), Some("v"));
    assert_eq!(read(cluster.at(broken), "last").await.as_deref(), Some("v"));
    write(cluster.at(broken), "from-it", "v").await;
    same_state(&cluster).await;
    // And once more, from what it fetched.
    cluster.nodes[broken].stop().await;
    cluster.nodes[broken].start().await;
    cluster.serving().await;
    same_state(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_checkpoints_are_damaged_and_there_is_no_peer() {
    let mut cluster = Cluster::start(1, tiny).await;
    write_until_purged(&cluster, 0, 20).await;
    cluster.nodes[0].stop().await;
    generations(&cluster, 0).iter().for_each(|generation| damage(generation));
    let error = cluster.nodes[0].try_start().await.unwrap_err();
    assert!(matches!(&error, StartError::Recovery(why) if why.contains("restore a backup")), "{error}");
}
