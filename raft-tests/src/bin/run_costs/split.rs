//! A dispatcher whose JobMasters are processes of their own beside one that hosts them: the proposal's own claim.

use std::time::Duration;

use anyhow::Result;
use raft_tests::JobCluster;
use raft_tests::strike::children;

use crate::figures::{cpu, pss_mib, rss_mib};
use crate::many::{idle, running, submit_sleepers};

const JOBS: usize = 500;

/// Prints a dispatcher's CPU and memory for 500 jobs, both ways.
pub async fn measure() -> Result<()> {
    for (told, jobmasters) in [("split off", 1), ("hosted inside", 0)] {
        let slots = JOBS.to_string();
        let world = JobCluster::start(3, 1, jobmasters, |o| match jobmasters {
            0 => o.set("dispatcher.slots", slots),
            _ => o.set("node.slots", slots),
        });
        let (rest, jar) = (world.cluster.rest(0), world.upload().await);
        let dispatcher = world.cluster.pids["dispatcher-1"];
        let before = cpu(dispatcher);
        println!("JobMasters {told}:");
        submit_sleepers(&rest, &jar, 0..JOBS).await?;
        running(&rest, JOBS).await;
        let took = cpu(dispatcher).saturating_sub(before);
        println!("dispatcher: {:.2} s CPU to start them, {:.1} MiB", took.as_secs_f64(), rss_mib(dispatcher));
        let host = if jobmasters == 0 { dispatcher } else { world.cluster.pids["jobmaster-1"] };
        guards(host).await;
        idle(&world.cluster.pids).await;
    }
    Ok(())
}

/// What the guards of one process take together.
async fn guards(host: u32) {
    let guards = children(host);
    let total = || guards.iter().map(|pid| cpu(*pid)).sum::<Duration>();
    let before = total();
    // The length of what is measured, not a wait for something.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let took = total().saturating_sub(before).as_secs_f64();
    let memory: f64 = guards.iter().map(|pid| pss_mib(*pid)).sum();
    println!("{} guards: {:.1} % CPU, {memory:.1} MiB (Pss)", guards.len(), took * 10.0);
}
