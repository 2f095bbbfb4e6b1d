//! Replicas that were away while the log went on, and was purged meanwhile.

use std::sync::Arc;
use std::time::Duration;

use meta_raft::{AppliedBatch, ApplyHook};
use meta_types::Revision;
use parking_lot::Mutex;

use crate::common::*;

/// Bytes of one value: a few of them make a checkpoint due.
const VALUE: usize = 1000;

/// Writes through replica `i` until those that run have purged their log beyond `beyond`.
pub async fn write_until_purged(cluster: &Cluster, i: usize, beyond: u64) {
    let value = "x".repeat(VALUE);
    for n in 0..2000 {
        write(cluster.at(i), &format!("fill{}", n % 20), &value).await;
        let mut running = cluster.nodes.iter().filter_map(|node| node.handle.as_ref());
        if running.all(|handle| handle.status().borrow().purged > Some(beyond)) {
            return;
        }
    }
    panic!("the log was never purged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lagging_replica_gets_a_checkpoint_and_then_restarts_from_it() {
    let mut cluster = Cluster::start(3, tiny).await;
    write(cluster.at(0), "old", "v").await;
    same_state(&cluster).await;
    let away = (cluster.leader().await + 1) % 3;
    let last = cluster.at(away).status().borrow().last_log;
    cluster.nodes[away].stop().await;
    let other = (away + 1) % 3;
    write_until_purged(&cluster, other, last + 10).await;
    write(cluster.at(other), "new", "v").await;

    cluster.nodes[away].start().await;
    cluster.serving().await;
    same_state(&cluster).await;
    assert_eq!(read(cluster.at(away), "old").await.as_deref(), Some("v"));
    assert_eq!(read(cluster.at(away), "new").await.as_deref(), Some("v"));
    let got = cluster.at(away).status().borrow().checkpoint;
    assert!(got > Some(last), "it came by a checkpoint, not by entries");

    // A second restart: from the received checkpoint and the log after it.
    write(cluster.at(other), "newer", "v").await;
    same_state(&cluster).await;
    cluster.nodes[away].stop().await;
    write(cluster.at(other), "newest", "v").await;
    cluster.nodes[away].start().await;
    cluster.serving().await;
    assert_eq!(read(cluster.at(away), "newest").await.as_deref(), Some("v"));
    write(cluster.at(away), "from-it", "v").await;
    same_state(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_many_checkpoints_all_restart_with_everything() {
    let mut cluster = Cluster::start(3, tiny).await;
    for i in 0..30 {
        write(cluster.at(i % 3), &format!("k{i}"), "v").await;
    }
    write_until_purged(&cluster, 0, 60).await;
    same_state(&cluster).await;
    let hash = cluster.at(0).core().read().state_hash();
    cluster.stop().await;
    futures_util::future::join_all(cluster.nodes.iter_mut().map(Node::start)).await;
    cluster.serving().await;
    same_state(&cluster).await;
    for i in 0..30 {
        assert_eq!(read(cluster.at(i % 3), &format!("k{i}")).await.as_deref(), Some("v"));
    }
    // New boots registered themselves, so the hash moved on; the walk over everything agrees with it.
    let hashes = |core: &meta_core::Core| (core.state_hash(), core.recompute_hash());
    let (running, walked) = hashes(&cluster.at(1).core().read());
    assert_ne!(running, hash);
    assert_eq!(running, walked);
    cluster.stop().await;
}

/// Follows revisions as a watch hub does.
#[derive(Default)]
struct Follower(Mutex<Vec<Seen>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Revision(Revision),
    Jumped { to: Revision, compact: Revision },
}

impl ApplyHook for Follower {
    fn applied(&self, batches: Vec<AppliedBatch>) {
        let revisions =
            batches.iter().flat_map(|batch| &batch.events).map(|events| Seen::Revision(events.revision));
        self.0.lock().extend(revisions);
    }

    fn jumped(&self, to: Revision, compact: Revision) {
        self.0.lock().push(Seen::Jumped { to, compact });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_hook_sees_every_revision_or_hears_that_it_jumped() {
    let mut cluster = Cluster::start(3, tiny).await;
    let away = (cluster.leader().await + 1) % 3;
    let other = (away + 1) % 3;
    cluster.nodes[away].stop().await;
    let last = cluster.at(other).status().borrow().last_log;
    write_until_purged(&cluster, other, last + 10).await;
    let follower = Arc::new(Follower::default());
    cluster.nodes[away].start_with(follower.clone()).await;
    cluster.serving().await;
    for _ in 0..10 {
        write(cluster.at(away), "k", "v").await;
    }
    let seen = follower.0.lock().clone();
    let jumps = seen.iter().filter(|seen| matches!(seen, Seen::Jumped { .. })).count();
    assert!(jumps >= 1, "{seen:?}");
    let mut at = None;
    for seen in &seen {
        match seen {
            Seen::Revision(revision) => {
                assert!(at.is_none_or(|at| at + 1 == *revision), "a gap before {revision}: {seen:?}");
                at = Some(*revision);
            }
            Seen::Jumped { to, .. } => {
                assert!(at.is_none_or(|at| at <= *to), "a jump back");
                at = Some(*to);
            }
        }
    }
    assert_eq!(at, Some(cluster.at(away).core().read().revision()));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_whose_entry_a_checkpoint_skipped_is_unknown_not_hung() {
    // A proposal at a replica that is then passed by: it must end, one way or the other, before its deadline.
    let mut cluster = Cluster::start(3, tiny).await;
    let away = (cluster.leader().await + 1) % 3;
    let other = (away + 1) % 3;
    cluster.nodes[away].stop().await;
    write_until_purged(&cluster, other, 30).await;
    cluster.nodes[away].start().await;
    let handle = cluster.at(away).clone();
    let proposals: Vec<_> = (0..20)
        .map(|i| {
            let handle = handle.clone();
            tokio::spawn(async move { (i, try_write(&handle, &format!("early{i}"), SOON).await) })
        })
        .collect();
    for proposal in proposals {
        let (i, outcome) =
            tokio::time::timeout(Duration::from_secs(20), proposal).await.expect("it ends").unwrap();
        if outcome.is_ok() {
            assert_eq!(version(&handle, &format!("early{i}")), 1);
        }
    }
    cluster.serving().await;
    same_state(&cluster).await;
    cluster.stop().await;
}
