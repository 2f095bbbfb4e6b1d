//! The front while main()s block, exit, throw and start very many processes.

use std::time::Instant;

use anyhow::{Result, ensure};
use raft_tests::{job_of, job_reaches, run_request};
use serde_json::Value;
use testkit::{Cluster, ClusterOptions, Rest};

use crate::figures::{Lengths, ms};
use crate::trial;

const BLOCKED: usize = 20;
const LOOKS: usize = 1000;

/// Prints how long `/overview` takes meanwhile, and fails if anything else was disturbed.
pub async fn measure() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let jar = trial::build(scratch.path())?;
    let cluster = Cluster::start(&ClusterOptions::new(3, 2, 1).set("node.slots", "32"));
    let rest = cluster.rest(0);
    let id = rest.upload("trial.jar", std::fs::read(&jar)?).await;
    let before = overviews(&rest).await?;
    let mut blocked = Vec::new();
    for number in 0..BLOCKED {
        blocked.push(submit(&rest, &id, &format!("block-{number}"), &["block"]).await?);
    }
    // Neither becomes a job: the run says why.
    for trigger in ["exit", "throw"] {
        post(&rest, &id, trigger, &[trigger]).await?;
        let ended = rest.get_ok(&format!("/run-async/{trigger}?wait=30s")).await;
        ensure!(ended["operation"]["failure-cause"].is_object(), "{trigger}: {ended}");
    }
    let forks = submit(&rest, &id, "forks", &["fork", "300"]).await?;
    job_reaches(&rest, &forks, "RUNNING").await;
    let meanwhile = overviews(&rest).await?;
    for job in &blocked {
        job_reaches(&rest, job, "RUNNING").await;
    }
    println!("GET /overview, nothing running  {}", before.told());
    println!("GET /overview meanwhile         {}", meanwhile.told());
    println!("p99 meanwhile: {}, wanted under 50 ms", ms(meanwhile.percentile(99)));
    Ok(())
}

async fn submit(rest: &Rest, jar: &str, trigger: &str, args: &[&str]) -> Result<String> {
    post(rest, jar, trigger, args).await?;
    Ok(job_of(rest, trigger).await)
}

async fn post(rest: &Rest, jar: &str, trigger: &str, args: &[&str]) -> Result<()> {
    let request = run_request(jar, trigger, trial::CLASS, args);
    let (status, body): (u16, Value) = rest.post("/run-async", &request).await?;
    ensure!(status == 200, "{trigger}: {status} {body}");
    Ok(())
}

async fn overviews(rest: &Rest) -> Result<Lengths> {
    let mut lengths = Lengths::default();
    for _ in 0..LOOKS {
        let begun = Instant::now();
        rest.get_ok("/overview").await;
        lengths.push(begun.elapsed());
    }
    Ok(lengths)
}
