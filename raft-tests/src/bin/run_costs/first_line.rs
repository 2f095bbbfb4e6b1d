//! From a POST that is sent to the first line of main(), beside a bare `java -cp` of the same class.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use raft_tests::run_request;
use testkit::{Cluster, ClusterOptions};

use crate::figures::{Lengths, ms, ratio};
use crate::trial;

const ROUNDS: usize = 40;
/// A main() that has not begun by then has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// A look at a file costs far less than the milliseconds that are measured.
const LOOK: Duration = Duration::from_millis(5);

/// Prints both and their ratio.
pub async fn measure() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let jar = trial::build(scratch.path())?;
    let cluster = Cluster::start(&ClusterOptions::new(3, 2, 2));
    let rest = cluster.rest(0);
    let id = rest.upload("trial.jar", std::fs::read(&jar)?).await;
    let (mut bare, mut ours) = (Lengths::default(), Lengths::default());
    for round in 0..ROUNDS {
        let file = scratch.path().join(format!("bare-{round}"));
        let sent = now();
        let mut java = Command::new("java")
            .arg("-cp")
            .arg(&jar)
            .args([trial::CLASS, "stamp"])
            .arg(&file)
            .spawn()
            .context("java cannot be started")?;
        let took = stamp_of(&file).await?.saturating_sub(sent);
        java.wait()?;
        let file = scratch.path().join(format!("ours-{round}"));
        let args = ["stamp", &file.display().to_string()];
        let request = run_request(&id, &format!("first-{round}"), trial::CLASS, &args);
        let sent = now();
        let (status, body) = rest.post("/run-async", &request).await?;
        ensure!(status == 200, "{status} {body}");
        let ours_took = stamp_of(&file).await?.saturating_sub(sent);
        // The first of each warms the page cache.
        if round > 0 {
            bare.push(took);
            ours.push(ours_took);
        }
        let job = raft_tests::job_of(&rest, &format!("first-{round}")).await;
        raft_tests::job_reaches(&rest, &job, "FINISHED").await;
    }
    println!("bare java -cp to its first line   {}", bare.told());
    println!("POST /run-async to the same line  {}", ours.told());
    let (bare, ours) = (bare.percentile(50), ours.percentile(50));
    let wanted = bare.mul_f64(1.3) + Duration::from_millis(20);
    println!("p50: {:.2}x; wanted at most 1.3x plus 20 ms = {}", ratio(ours, bare), ms(wanted));
    Ok(())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time that main() wrote, since 1970.
async fn stamp_of(file: &Path) -> Result<Duration> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            return Ok(Duration::from_micros(text.parse()?));
        }
        ensure!(tokio::time::Instant::now() < until, "no main() began within {PATIENCE:?}");
        tokio::time::sleep(LOOK).await;
    }
}
