//! `cargo xtask prove`: runs many seeds of the simulation, each in a process of its own, and says what they came to.

mod controls;
mod seed;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::tools;
use table::Table;

/// Seeds of `cargo xtask check`.
const CHECKED: u64 = 300;

/// How many seeds, and which.
#[derive(Debug, Clone, clap::Args)]
pub struct Prove {
    /// How many seeds; 300 if no first one is given, else that one.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them.
    #[arg(long)]
    seed: Option<u64>,
    /// Ends after this time, whatever seeds are left.
    #[arg(long)]
    minutes: Option<u64>,
    /// Instead: each known bug, put back on purpose, until it is caught.
    #[arg(long)]
    controls: bool,
    /// Of them, only this one.
    #[arg(long, value_name = "NAME", requires = "controls")]
    control: Option<String>,
    /// How many at a time; as many as there are cores if not given.
    #[arg(long)]
    jobs: Option<usize>,
}

impl Prove {
    fn range(&self) -> std::ops::Range<u64> {
        match self.seed {
            Some(seed) => seed..seed + self.seeds.unwrap_or(1),
            None => 1..1 + self.seeds.unwrap_or(CHECKED),
        }
    }

    fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, Into::into))
    }
}

/// Runs the seeds; an error if one of them failed.
pub fn run(prove: &Prove) -> anyhow::Result<()> {
    let binary = build()?;
    if prove.controls {
        return controls::run(&binary, prove.seed.unwrap_or(1), prove.control.as_deref(), prove.jobs());
    }
    seeds(prove, &binary)
}

/// What every change must pass: seeds without a finding, and every known bug caught.
pub fn check() -> anyhow::Result<()> {
    let prove =
        Prove { seeds: Some(CHECKED), seed: None, minutes: None, controls: false, control: None, jobs: None };
    let binary = build()?;
    seeds(&prove, &binary)?;
    controls::run(&binary, 1, None, prove.jobs())
}

fn seeds(prove: &Prove, binary: &Path) -> anyhow::Result<()> {
    let logs = tools::root().join("target/prove");
    std::fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
    let started = Instant::now();
    let seeds = Seeds::new(prove, started);
    let table = Mutex::new(Table::default());
    std::thread::scope(|scope| {
        for _ in 0..prove.jobs() {
            scope.spawn(|| {
                while let Some(seed) = seeds.next() {
                    let report = one(binary, &logs, seed);
                    let mut table = table.lock().expect("no worker panicked");
                    table.add(seed, report);
                    table.progress(started.elapsed());
                }
            });
        }
    });
    let table = table.into_inner().expect("no worker panicked");
    println!("{}", table.render(started.elapsed()));
    if table.failed() {
        bail!("seeds failed; each is repeated by the command printed with it");
    }
    Ok(())
}

/// Which seed is next, if there is time for one.
struct Seeds {
    next: AtomicU64,
    end: u64,
    until: Option<Instant>,
    over: AtomicBool,
}

impl Seeds {
    fn new(prove: &Prove, started: Instant) -> Self {
        let range = prove.range();
        let until = prove.minutes.map(|minutes| started + Duration::from_secs(60 * minutes));
        Self { next: AtomicU64::new(range.start), end: range.end, until, over: AtomicBool::new(false) }
    }

    fn next(&self) -> Option<u64> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            self.over.store(true, Ordering::Relaxed);
        }
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        (seed < self.end && !self.over.load(Ordering::Relaxed)).then_some(seed)
    }
}

/// Builds the simulation and finds it. One build for everything: the known bugs are in it, and off unless a run turns
/// one on.
fn build() -> anyhow::Result<PathBuf> {
    let args = ["build", "--quiet", "--package", "raft-tests", "--bin", "prove"];
    tools::run(tools::cargo(&args).args(["--features", "raft-tests/positive-controls"]))?;
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(tools::root()).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf().join("debug/prove"))
}

/// Runs a seed. One that failed runs again with its event log on.
fn one(binary: &Path, logs: &Path, seed: u64) -> Result<Value, String> {
    let report = seed::run(binary, seed, None);
    let failed = report.as_ref().map_or(true, |report| !seed::violations(report).is_empty());
    if failed {
        let log = logs.join(format!("{seed}.log"));
        let again = seed::run(binary, seed, Some(&log));
        eprintln!("\nseed {seed} failed; its events: {}", log.display());
        eprintln!("  again: cargo xtask prove --seed {seed}");
        match &report {
            Ok(report) => seed::violations(report).iter().for_each(|text| eprintln!("  {text}")),
            Err(why) => eprintln!("  {why}"),
        }
        if seed::trace(&again) != seed::trace(&report) {
            eprintln!("  and the second run of it went another way: it is not a function of its seed");
        }
    }
    report
}
