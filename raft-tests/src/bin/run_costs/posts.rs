//! A POST's answer beside one guarded txn of the same client.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use meta_client::{EtcdKv, EtcdOptions, Kv};
use meta_types::{Compare, Op, PutRequest, Txn};
use raft_tests::{JobCluster, run_request};

use crate::figures::{Lengths, ratio};

const ROUNDS: usize = 1000;
/// About what the records of a run and its job take.
const VALUE_BYTES: usize = 600;

/// Prints both and their ratio: the runs wait, so that no main() is measured.
pub async fn measure() -> Result<()> {
    let world = JobCluster::start(3, 2, 1, |o| o.set("node.slots", "1"));
    let (rest, jar) = (world.cluster.rest(0), world.upload().await);
    let kv = EtcdKv::connect(&world.cluster.endpoints, EtcdOptions::default())?;
    let busy = run_request(&jar, "busy", "Forever", &[]);
    ensure!(rest.post("/run-async", &busy).await?.0 == 200);
    let job = raft_tests::job_of(&rest, "busy").await;
    raft_tests::job_reaches(&rest, &job, "RUNNING").await;
    let (mut txns, mut posts) = (Lengths::default(), Lengths::default());
    for round in 0..ROUNDS {
        let key = format!("costs/{round}");
        let txn = Txn {
            compare: vec![Compare::absent(key.clone())],
            success: vec![Op::Put(PutRequest {
                key: key.into(),
                value: vec![b'x'; VALUE_BYTES].into(),
                ..PutRequest::default()
            })],
            ..Txn::default()
        };
        let begun = Instant::now();
        let reply = kv.txn(txn).await?;
        txns.push(begun.elapsed());
        ensure!(reply.value.succeeded);
        let request = run_request(&jar, &format!("post-{round}"), "Hello", &[]);
        let begun = Instant::now();
        let (status, body) = rest.post("/run-async", &request).await?;
        posts.push(begun.elapsed());
        ensure!(status == 200, "{status} {body}");
        // What the POST set going, its placement, is over before the next txn.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("guarded txn      {}", txns.told());
    println!("POST /run-async  {}", posts.told());
    let at = |percent| ratio(posts.percentile(percent), txns.percentile(percent));
    println!("p50: {:.2}x; p99: {:.2}x, wanted under 3x", at(50), at(99));
    Ok(())
}
