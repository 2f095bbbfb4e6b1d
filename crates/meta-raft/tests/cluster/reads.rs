//! Linearizable reads from any replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::*;

/// While one writer counts up, every read on any replica sees at least what was acknowledged when it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_never_misses_what_was_acknowledged_before_it() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let writer = {
        let (handle, acknowledged) = (cluster.at(leader).clone(), acknowledged.clone());
        tokio::spawn(async move {
            for n in 1..=300u64 {
                write(&handle, "counter", &n.to_string()).await;
                acknowledged.store(n, Ordering::SeqCst);
            }
        })
    };
    let mut readers = Vec::new();
    for i in 0..3 {
        for _ in 0..3 {
            let (handle, acknowledged) = (cluster.at(i).clone(), acknowledged.clone());
            readers.push(tokio::spawn(async move {
                let mut reads = 0;
                while acknowledged.load(Ordering::SeqCst) < 300 {
                    let floor = acknowledged.load(Ordering::SeqCst);
                    let seen = read(&handle, "counter").await.map_or(0, |n| n.parse::<u64>().unwrap());
                    assert!(seen >= floor, "replica {i} showed {seen} after {floor} was acknowledged");
                    reads += 1;
                }
                reads
            }));
        }
    }
    tokio::time::timeout(SOON, writer).await.expect("the writer ends").unwrap();
    for reader in readers {
        let reads: u32 = tokio::time::timeout(SOON, reader).await.expect("no reader hangs").unwrap();
        assert!(reads > 0);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restarted_replica_serves_only_after_a_leader_confirmed() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    write(cluster.at(0), "k", "v").await;
    cluster.stop().await;
    cluster.nodes[0].start().await;
    // Alone it finds no leader: whatever it has in its log may be behind.
    let short = std::time::Duration::from_millis(500);
    assert!(cluster.at(0).read_index(short).await.is_err());
    assert!(!cluster.at(0).status().borrow().serving);
    cluster.nodes[1].start().await;
    wait_for(cluster.at(0), |status| status.serving).await;
    assert_eq!(read(cluster.at(0), "k").await.as_deref(), Some("v"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_survive_the_leader() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    write(cluster.at(leader), "k", "v").await;
    let follower = (leader + 1) % 3;
    cluster.nodes[leader].stop().await;
    assert_eq!(read(cluster.at(follower), "k").await.as_deref(), Some("v"));
    cluster.stop().await;
}
