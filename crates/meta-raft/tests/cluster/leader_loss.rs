//! Leaders that die under writes: nothing acknowledged is lost, nothing is carried out twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use meta_raft::{NotSent, ProposeError};
use tokio::sync::oneshot;

use crate::common::*;

/// What a writer knows of its writes.
#[derive(Default)]
struct Journal {
    acknowledged: Vec<String>,
    unknown: Vec<String>,
    refused: Vec<String>,
}

/// Writes keys of its own, one after the other, each once, until told to stop. Tells when the first is acknowledged.
async fn writer(
    handle: meta_raft::RaftHandle,
    name: String,
    stop: Arc<AtomicBool>,
    mut began: Option<oneshot::Sender<()>>,
) -> Journal {
    let mut journal = Journal::default();
    for i in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{name}-{i}");
        match try_write(&handle, &key, Duration::from_secs(10)).await {
            Ok(outcome) => {
                outcome.result.expect("a put is not refused");
                journal.acknowledged.push(key);
                if let Some(began) = began.take() {
                    let _ = began.send(());
                }
            }
            Err(ProposeError::Unknown | ProposeError::Stopped) => journal.unknown.push(key),
            Err(ProposeError::NotSent(_)) => journal.refused.push(key),
        }
        if handle.status().borrow().failed.is_some() || journal.unknown.len() > 3 {
            break;
        }
    }
    journal
}

fn check(handle: &meta_raft::RaftHandle, journal: &Journal) {
    for key in &journal.acknowledged {
        assert_eq!(version(handle, key), 1, "{key} was acknowledged once");
    }
    for key in &journal.unknown {
        assert!(version(handle, key) <= 1, "{key} was carried out twice");
    }
    for key in &journal.refused {
        assert_eq!(version(handle, key), 0, "{key} was said not to be carried out");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_leader_dies_under_writes() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (mut writers, mut beginnings) = (Vec::new(), Vec::new());
    for i in 0..3 {
        for w in 0..4 {
            let handle = cluster.at(i).clone();
            let (began, beginning) = oneshot::channel();
            writers.push((i, tokio::spawn(writer(handle, format!("n{i}w{w}"), stop.clone(), Some(began)))));
            beginnings.push(beginning);
        }
    }
    // Each is at work before anything happens: a writer of a replica that is stopped earlier would have written nothing.
    for beginning in beginnings {
        tokio::time::timeout(SOON, beginning).await.expect("each writer begins").unwrap();
    }
    // A stopped replica's writers stop with it; after two there is still one whose writers saw it all.
    let mut killed = Vec::new();
    for _ in 0..2 {
        let before = committed(&cluster).await;
        progress(&cluster, before + 50).await;
        let leader = cluster.leader().await;
        cluster.nodes[leader].stop().await;
        killed.push(leader);
        let before = committed(&cluster).await;
        progress(&cluster, before + 50).await;
        cluster.nodes[leader].start().await;
        cluster.serving().await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut journals = Vec::new();
    for (i, writer) in writers {
        let journal = tokio::time::timeout(SOON, writer).await.expect("no writer hangs").unwrap();
        assert!(!journal.acknowledged.is_empty());
        if !killed.contains(&i) {
            assert!(
                journal.unknown.is_empty() && journal.refused.is_empty(),
                "a survivor's writers see nothing of it"
            );
        }
        journals.push(journal);
    }
    for i in 0..3 {
        cluster.at(i).read_index(SOON).await.unwrap();
        journals.iter().for_each(|journal| check(cluster.at(i), journal));
    }
    same_state(&cluster).await;
    cluster.stop().await;
}

async fn committed(cluster: &Cluster) -> u64 {
    running(cluster).map(|handle| handle.status().borrow().committed).max().unwrap()
}

async fn progress(cluster: &Cluster, beyond: u64) {
    let handle = running(cluster).next().unwrap();
    wait_for(handle, |status| status.committed >= beyond).await;
}

fn running(cluster: &Cluster) -> impl Iterator<Item = &meta_raft::RaftHandle> {
    cluster.nodes.iter().filter_map(|node| node.handle.as_ref())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_followers_proposals_survive_the_leader() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let handle = cluster.at(follower).clone();
    let mut proposals = Vec::new();
    for i in 0..200 {
        let handle = handle.clone();
        proposals.push(tokio::spawn(async move { try_write(&handle, &format!("k{i}"), SOON).await }));
        if i == 100 {
            // In the middle of them; they are proposed again to whoever leads next.
            cluster.nodes[leader].stop().await;
        }
    }
    for proposal in proposals {
        proposal.await.unwrap().expect("proposed again").result.unwrap();
    }
    for i in 0..200 {
        assert_eq!(version(&handle, &format!("k{i}")), 1);
    }
    cluster.nodes[leader].start().await;
    same_state(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_a_quorum_a_write_ends_at_its_deadline_and_says_which_way() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    write(cluster.at(leader), "before", "v").await;
    let others: Vec<usize> = (0..3).filter(|i| *i != leader).collect();
    for i in &others {
        cluster.nodes[*i].stop().await;
    }
    // The first may have been appended here before the quorum was missed.
    let deadline = Duration::from_millis(300);
    let first = try_write(cluster.at(leader), "lost", deadline).await.unwrap_err();
    assert!(matches!(first, ProposeError::Unknown | ProposeError::NotSent(NotSent::NoLeader)), "{first:?}");
    assert!(cluster.at(leader).read_index(deadline).await.is_err(), "no quorum, no linearizable read");
    for i in &others {
        cluster.nodes[*i].start().await;
    }
    write(cluster.at(leader), "after", "v").await;
    assert_eq!(read(cluster.at(others[0]), "before").await.as_deref(), Some("v"));
    assert!(version(cluster.at(leader), "lost") <= 1);
    if first == ProposeError::NotSent(NotSent::NoLeader) {
        assert_eq!(version(cluster.at(leader), "lost"), 0);
    }
    same_state(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leadership_is_handed_over_on_request() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let to = cluster.at((leader + 1) % 3).status().borrow().member_id;
    write(cluster.at(leader), "k", "v").await;
    same_state(&cluster).await;
    cluster.at(leader).transfer_leader(to).await;
    wait_for(cluster.at(leader), |status| status.leader == Some(to)).await;
    write(cluster.at(leader), "k", "w").await;
    let leader = cluster.leader().await;
    assert!(cluster.at(leader).hand_over(SOON).await, "another leads before a planned stop");
    assert!(!cluster.at(leader).hand_over(SOON).await, "it does not lead any more");
    cluster.nodes[leader].stop().await;
    write(cluster.at((leader + 1) % 3), "k", "x").await;
    cluster.stop().await;
}
