//! A replica that is cut off and comes back.

use std::time::Duration;

use meta_raft::{ProposeError, RaftOptions};

use crate::catch_up::write_until_purged;
use crate::common::*;
use crate::cut_net::CutNet;

/// Three replicas, each behind a network of its own that can be cut.
async fn start_cut(adjust: impl Fn(&mut RaftOptions)) -> (Cluster, Vec<CutNet>) {
    let mut cluster = Cluster::prepare(3, adjust).await;
    let mut nets = Vec::new();
    for node in &mut cluster.nodes {
        nets.push(node.behind_cut_net().await);
    }
    futures_util::future::join_all(cluster.nodes.iter_mut().map(Node::start)).await;
    cluster.serving().await;
    (cluster, nets)
}

/// Waits until the two others have a leader among them.
async fn new_leader(cluster: &Cluster, cut: usize) -> usize {
    let old = cluster.at(cut).status().borrow().member_id;
    let other = (cut + 1) % 3;
    let status =
        wait_for(cluster.at(other), |status| status.leader.is_some_and(|leader| leader != old)).await;
    let ids: Vec<u64> = (0..3).map(|i| cluster.at(i).status().borrow().member_id).collect();
    ids.iter().position(|id| Some(*id) == status.leader).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_cut_off_leader_appended_is_discarded_and_proposed_again_once() {
    let (mut cluster, nets) = start_cut(|_| {}).await;
    let old = cluster.leader().await;
    let handle = cluster.at(old).clone();
    write(&handle, "before", "v").await;
    nets[old].set_cut(true);
    // At once: it still believes that it leads, and appends to its own log.
    let proposals: Vec<_> = (0..20)
        .map(|i| {
            let handle = handle.clone();
            tokio::spawn(async move { try_write(&handle, &format!("k{i}"), SOON).await })
        })
        .collect();
    let new = new_leader(&cluster, old).await;
    write(cluster.at(new), "meanwhile", "v").await;
    nets[old].set_cut(false);
    for proposal in proposals {
        let outcome =
            tokio::time::timeout(Duration::from_secs(15), proposal).await.expect("it does not hang").unwrap();
        outcome.expect("proposed again under the same number").result.unwrap();
    }
    for i in 0..20 {
        assert_eq!(version(&handle, &format!("k{i}")), 1);
    }
    same_state(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cut_off_leader_serves_no_stale_read() {
    let (mut cluster, nets) = start_cut(|_| {}).await;
    let old = cluster.leader().await;
    write(cluster.at(old), "k", "old").await;
    nets[old].set_cut(true);
    let new = new_leader(&cluster, old).await;
    write(cluster.at(new), "k", "new").await;
    assert_eq!(local(cluster.at(old), "k").as_deref(), Some("old"), "it cannot know");
    assert!(cluster.at(old).read_index(Duration::from_secs(1)).await.is_err(), "so it must not answer");
    let waiting = {
        let handle = cluster.at(old).clone();
        tokio::spawn(async move { read(&handle, "k").await })
    };
    nets[old].set_cut(false);
    assert_eq!(waiting.await.unwrap().as_deref(), Some("new"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_that_a_checkpoint_passed_by_is_unknown_before_its_deadline() {
    let (mut cluster, nets) = start_cut(tiny).await;
    let away = (cluster.leader().await + 1) % 3;
    let other = (away + 1) % 3;
    let handle = cluster.at(away).clone();
    let mut ended = 0;
    for round in 0..3 {
        let last = cluster.at(other).status().borrow().last_log;
        let proposals: Vec<_> = (0..50)
            .map(|i| {
                let (handle, key) = (handle.clone(), format!("r{round}k{i}"));
                tokio::spawn(async move { (try_write(&handle, &key, Duration::from_secs(60)).await, key) })
            })
            .collect();
        // Some are on their way: the leader commits them, this replica does not see it.
        wait_for(cluster.at(other), |status| status.last_log > last).await;
        nets[away].set_cut(true);
        let last = cluster.at(other).status().borrow().last_log;
        let wait = cluster.at(away).clone();
        cluster.nodes[away].handle = None;
        write_until_purged(&cluster, other, last + 5).await;
        cluster.nodes[away].handle = Some(wait);
        nets[away].set_cut(false);
        for proposal in proposals {
            let (outcome, key) =
                tokio::time::timeout(Duration::from_secs(20), proposal).await.expect("it ends").unwrap();
            match outcome {
                Ok(outcome) => assert!(outcome.result.is_ok()),
                Err(error) => assert_eq!(error, ProposeError::Unknown, "{key}"),
            }
            ended += 1;
        }
        same_state(&cluster).await;
        for i in 0..50 {
            assert!(version(&handle, &format!("r{round}k{i}")) <= 1);
        }
    }
    assert_eq!(ended, 150);
    cluster.stop().await;
}
