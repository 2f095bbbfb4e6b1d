//! Disks that lose power or fail, in memory.

use std::sync::Arc;
use std::time::Duration;

use meta_raft::{ProposeError, Timing};
use meta_store::{MemDisk, MemDiskFaults};
use parking_lot::Mutex;

use crate::common::*;

/// Elections of one alone need no patience.
fn alone() -> Timing {
    Timing {
        heartbeat: Duration::from_millis(10),
        election_min: Duration::from_millis(20),
        election_max: Duration::from_millis(40),
        ..Timing::default()
    }
}

/// Keeps eight writes of different sizes under way; notes what was acknowledged.
fn writers(
    handle: meta_raft::RaftHandle,
    round: u64,
    acknowledged: Arc<Mutex<Vec<String>>>,
) -> tokio::task::JoinSet<()> {
    let mut writers = tokio::task::JoinSet::new();
    for w in 0..8 {
        let (handle, acknowledged) = (handle.clone(), acknowledged.clone());
        writers.spawn(async move {
            for n in 0.. {
                let key = format!("c{round}w{w}n{n}");
                let value = "x".repeat((n * 37 * (w + 1)) % 5000);
                match handle.propose(put(&key, value), SOON).await {
                    Ok(outcome) => outcome.result.map(drop).expect("a put is not refused"),
                    Err(_) => return,
                }
                acknowledged.lock().push(key);
            }
        });
    }
    writers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn power_cuts_lose_nothing_acknowledged() {
    let mut cluster = Cluster::prepare(1, |options| {
        options.timing = alone();
        options.checkpoints.min_log_bytes = 100_000;
    })
    .await;
    let mut disk = MemDisk::new();
    on_mem_disk(&mut cluster.nodes[0], disk.clone());
    let acknowledged: Arc<Mutex<Vec<String>>> = Arc::default();
    for cut in 0..15u64 {
        cluster.nodes[0].start().await;
        cluster.serving().await;
        for key in acknowledged.lock().iter() {
            assert_eq!(version(cluster.at(0), key), 1, "{key} after cut {cut}");
        }
        let mut writing = writers(cluster.at(0).clone(), cut, acknowledged.clone());
        let enough = acknowledged.lock().len() + 50 + 7 * cut as usize;
        let reached = async {
            while acknowledged.lock().len() < enough {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, reached).await.expect("writes go on");
        // What was acknowledged by now, and the disk as it would be found.
        let known = acknowledged.lock().clone();
        let found = disk.power_off(cut);
        cluster.nodes[0].stop().await;
        writing.shutdown().await;
        *acknowledged.lock() = known;
        disk = found;
        on_mem_disk(&mut cluster.nodes[0], disk.clone());
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_member_whose_disk_fails_leaves_and_the_others_go_on() {
    let mut cluster = Cluster::prepare(3, |_| {}).await;
    let disk = MemDisk::new();
    on_mem_disk(&mut cluster.nodes[0], disk.clone());
    futures_util::future::join_all(cluster.nodes.iter_mut().map(Node::start)).await;
    cluster.serving().await;
    write(cluster.at(0), "before", "v").await;
    disk.set_faults(MemDiskFaults {
        fail_sync_at: Some(disk.syncs()),
        fail_syncs_after: true,
        ..MemDiskFaults::default()
    });
    // Its own clients hear that it stopped or do not know; it says so itself.
    let outcome = try_write(cluster.at(0), "on-a-dead-disk", Duration::from_secs(5)).await;
    if let Err(error) = &outcome {
        assert!(matches!(error, ProposeError::Unknown | ProposeError::Stopped), "{error:?}");
    }
    let status = wait_for(cluster.at(0), |status| status.failed.is_some()).await;
    assert!(!status.serving);
    assert!(cluster.at(0).read_index(Duration::from_secs(1)).await.is_err());
    write(cluster.at(1), "after", "v").await;
    assert_eq!(read(cluster.at(2), "after").await.as_deref(), Some("v"));
    assert_eq!(read(cluster.at(2), "before").await.as_deref(), Some("v"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_three_loses_power_again_and_again() {
    let mut cluster = Cluster::prepare(3, |options| options.checkpoints.min_log_bytes = 50_000).await;
    let mut disk = MemDisk::new();
    on_mem_disk(&mut cluster.nodes[0], disk.clone());
    futures_util::future::join_all(cluster.nodes.iter_mut().map(Node::start)).await;
    cluster.serving().await;
    let value = "y".repeat(500);
    for cut in 0..5u64 {
        for n in 0..30 {
            write(cluster.at(n % 3), &format!("c{cut}n{n}"), &value).await;
        }
        let found = disk.power_off(cut);
        cluster.nodes[0].stop().await;
        disk = found;
        on_mem_disk(&mut cluster.nodes[0], disk.clone());
        write(cluster.at(1), &format!("while-{cut}"), "v").await;
        cluster.nodes[0].start().await;
        cluster.serving().await;
        same_state(&cluster).await;
    }
    for cut in 0..5u64 {
        for n in 0..30 {
            assert_eq!(version(cluster.at(0), &format!("c{cut}n{n}")), 1);
        }
    }
    cluster.stop().await;
}
