//! Pages and states while 10,000 runs are there, 500 of whose jobs run; and what idle processes take.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use meta_client::{EtcdKv, EtcdOptions, Kv};
use meta_types::RangeRequest;
use raft_tests::{JobCluster, run_request};
use testkit::{Rest, eventually_async};

use crate::figures::{Lengths, cpu, ms, rss_mib};

const RUNS: usize = 10_000;
const SLEEPING: usize = 500;
const CLIENTS: usize = 8;
const LOOKS: usize = 1000;
/// Without a write for so long it is at rest.
const REST: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(200);
/// Of answers that look at every job.
const WHOLE_LOOKS: usize = 100;
const IDLE: Duration = Duration::from_secs(30);
/// Until all that can run runs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Prints pages, states, memory and idle CPU.
pub async fn measure() -> Result<()> {
    let world = JobCluster::start(3, 2, 1, |o| o.set("node.slots", SLEEPING.to_string()));
    let (rest, jar) = (world.cluster.rest(0), world.upload().await);
    submit_sleepers(&rest, &jar, 0..RUNS).await?;
    running(&rest, SLEEPING).await;
    at_rest(&world.cluster.endpoints).await?;
    println!("GET /run-async?limit=100   {}", pages(&rest).await?.told());
    println!("    wanted p99 under 50 ms");
    let status = |n: usize| format!("/run-async/sleeps-{}", n * 7919 % RUNS);
    println!("GET /run-async/TRIGGER     {}", looks(&rest, status, LOOKS).await.told());
    println!("    wanted p99 under 10 ms");
    idle(&world.cluster.pids).await;
    for path in ["/overview", "/nodes", "/jobs/overview"] {
        println!("GET {path:<23}{}", looks(&rest, |_| path.to_owned(), WHOLE_LOOKS).await.told());
    }
    Ok(())
}

/// Submits runs whose jobs sleep for ever.
pub async fn submit_sleepers(rest: &Rest, jar: &str, numbers: std::ops::Range<usize>) -> Result<()> {
    let begun = Instant::now();
    let count = numbers.len();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (rest, jar, numbers) = (rest.clone(), jar.to_owned(), numbers.clone());
        clients.spawn(async move {
            for number in numbers.skip(client).step_by(CLIENTS) {
                let request = run_request(&jar, &format!("sleeps-{number}"), "Forever", &[]);
                let (status, body) = rest.post("/run-async", &request).await?;
                ensure!(status == 200, "{status} {body}");
            }
            Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    println!("{count} runs submitted in {:.1} s by {CLIENTS} clients", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Waits until no slot is free.
pub async fn running(rest: &Rest, slots: usize) {
    let begun = Instant::now();
    eventually_async(PATIENCE, "every slot is taken", || async {
        let (_, body) = rest.get("/overview").await.map_err(|e| e.to_string())?;
        if body["slots-available"] == 0 { Ok(()) } else { Err(body.to_string()) }
    })
    .await;
    println!("{slots} of them run {:.1} s later", begun.elapsed().as_secs_f64());
}

/// Waits until nothing is written any more: each job that waits is told why, once.
pub async fn at_rest(endpoints: &[String]) -> Result<()> {
    let kv = EtcdKv::connect(endpoints, EtcdOptions::default())?;
    let begun = Instant::now();
    let (mut last, mut since) = (0, Instant::now());
    while since.elapsed() < REST {
        ensure!(begun.elapsed() < PATIENCE, "something is written all the time");
        let revision = kv.range(RangeRequest::get("costs/none")).await?.revision;
        if revision != last {
            (last, since) = (revision, Instant::now());
        }
        // Between two looks at a condition.
        tokio::time::sleep(LOOK).await;
    }
    println!("nothing is written any more {:.1} s later", (begun.elapsed() - since.elapsed()).as_secs_f64());
    Ok(())
}

/// Every page of 100, three times.
async fn pages(rest: &Rest) -> Result<Lengths> {
    let mut lengths = Lengths::default();
    for _ in 0..3 {
        let mut path = "/run-async?limit=100".to_owned();
        let mut seen = 0;
        loop {
            let begun = Instant::now();
            let (runs, next) = rest.page(&path).await?;
            lengths.push(begun.elapsed());
            seen += runs;
            match next {
                Some(next) => path = next,
                None => break,
            }
        }
        ensure!(seen == RUNS, "{seen} runs in the pages");
    }
    Ok(lengths)
}

async fn looks(rest: &Rest, path: impl Fn(usize) -> String, times: usize) -> Lengths {
    let mut lengths = Lengths::default();
    for number in 0..times {
        let path = path(number);
        let begun = Instant::now();
        rest.get_ok(&path).await;
        lengths.push(begun.elapsed());
    }
    lengths
}

/// What each process takes while nobody asks for anything.
pub async fn idle(pids: &BTreeMap<String, u32>) {
    let before: Vec<Duration> = pids.values().map(|pid| cpu(*pid)).collect();
    // The length of what is measured, not a wait for something.
    tokio::time::sleep(IDLE).await;
    for ((name, pid), before) in pids.iter().zip(before) {
        let took = cpu(*pid).saturating_sub(before);
        println!(
            "idle {:<13} {:>5.2} % CPU ({} in {} s), {:>6.1} MiB",
            name,
            100.0 * took.as_secs_f64() / IDLE.as_secs_f64(),
            ms(took),
            IDLE.as_secs(),
            rss_mib(*pid)
        );
    }
}
