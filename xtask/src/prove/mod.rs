//! `cargo xtask prove`: puts known bugs into the simulation, one after the other, each of which must be caught; then
//! runs many seeds without any, each in a process of its own, and says what they came to.

mod controls;
mod seed;
mod table;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

use crate::tools;
use table::Table;

/// The profile of `Cargo.toml` that simulations are built with.
const PROFILE: &str = "sim";
/// Violations of a seed that are shown; its event log has the rest.
const SHOWN: usize = 5;
/// Seeds of `cargo xtask check`.
const CHECKED: u64 = 300;

/// How many seeds, and which.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask prove                  every known bug, then 300 seeds: what every change must pass\n  \
    cargo xtask prove --seeds 5000     more of them\n  \
    cargo xtask prove --seed 4711      one seed again, with its events in target/prove/4711.log if it fails\n  \
    cargo xtask prove --controls       only the known bugs")]
pub struct Prove {
    /// How many seeds; 300 if no first one is given, else that one alone.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first of them; no known bugs are put in then.
    #[arg(long)]
    seed: Option<u64>,
    /// Begins no seed but the first after this time, the build and the known bugs included.
    #[arg(long)]
    minutes: Option<u64>,
    /// Only the known bugs.
    #[arg(long)]
    controls: bool,
    /// Of them, only this one.
    #[arg(long, value_name = "NAME", requires = "controls")]
    control: Option<String>,
    /// How many at a time; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: Option<u64>,
}

impl Prove {
    fn range(&self) -> Range<u64> {
        match self.seed {
            Some(seed) => seed..seed.saturating_add(self.seeds.unwrap_or(1)),
            None => 1..self.seeds.unwrap_or(CHECKED).saturating_add(1),
        }
    }

    fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(2, Into::into);
        self.jobs.map_or_else(cores, |jobs| jobs as usize)
    }
}

/// What every change must pass: every known bug caught, and seeds without a finding.
pub fn check() -> anyhow::Result<()> {
    run(&Prove::default())
}

/// Runs what was asked for; an error if a known bug was not caught or a seed failed.
pub fn run(prove: &Prove) -> anyhow::Result<()> {
    let asked = Instant::now();
    let binary = build()?;
    let started = Instant::now();
    let mut summary = Vec::new();
    if prove.controls || prove.seed.is_none() {
        let first = prove.seed.unwrap_or(1);
        let caught = controls::run(&binary, first, prove.control.as_deref(), prove.jobs())?;
        summary.push(format!("known bugs caught: {caught} of {caught}"));
    }
    if !prove.controls {
        let table = seeds(prove, &binary, asked)?;
        summary.push(format!("seeds that failed: 0 of {}", table.seeds()));
    }
    println!("{}; {:.0} s", summary.join(", "), started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs seeds. With `--minutes` the time since `asked` counts.
fn seeds(prove: &Prove, binary: &Path, asked: Instant) -> anyhow::Result<Table> {
    let logs = tools::root().join("target/prove");
    std::fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
    let seeds = Seeds::new(prove, asked);
    let table = Mutex::new(Table::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..prove.jobs() {
            scope.spawn(|| {
                while let Some(seed) = seeds.next() {
                    let report = one(binary, &logs, seed);
                    let mut table = table.lock().expect("no worker panicked");
                    table.add(seed, report);
                    table.progress(began.elapsed());
                }
            });
        }
    });
    let table = table.into_inner().expect("no worker panicked");
    println!("{}", table.render(began.elapsed()));
    table.verdict()?;
    Ok(table)
}

/// Which seed is next, if there is time for one.
struct Seeds {
    next: AtomicU64,
    first: u64,
    end: u64,
    until: Option<Instant>,
}

impl Seeds {
    fn new(prove: &Prove, asked: Instant) -> Self {
        let Range { start: first, end } = prove.range();
        let until = prove.minutes.map(|minutes| asked + Duration::from_secs(60 * minutes));
        Self { next: AtomicU64::new(first), first, end, until }
    }

    fn next(&self) -> Option<u64> {
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        // One at least: a run that checked nothing shows nothing.
        let in_time = seed == self.first || self.until.is_none_or(|until| Instant::now() < until);
        (seed < self.end && in_time).then_some(seed)
    }
}

/// Builds the simulation and finds it. One build for everything: the known bugs are in it, and off unless a run turns
/// one on.
fn build() -> anyhow::Result<PathBuf> {
    let args = ["build", "--quiet", "--package", "raft-tests", "--bin", "prove", "--profile", PROFILE];
    tools::run(tools::cargo(&args).args(["--features", "raft-tests/positive-controls"]))?;
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(tools::root()).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf().join(PROFILE).join("prove"))
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
            Ok(report) => {
                seed::violations(report).iter().take(SHOWN).for_each(|text| eprintln!("  {}", short(text)));
            }
            Err(why) => eprintln!("  {why}"),
        }
        if seed::trace(&again) != seed::trace(&report) {
            eprintln!("  and the second run of it went another way: it is not a function of its seed");
        }
    }
    report
}

/// The beginning of a violation, on one line of a table: what was seen in it can be long.
fn short(text: &str) -> String {
    text.chars().take(200).collect::<String>().replace(['|', '\n'], "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_up_leaves_one_seed() {
        let asked = Instant::now();
        let given = |minutes, asked| {
            let seeds = Seeds::new(&Prove { minutes, seeds: Some(3), ..Prove::default() }, asked);
            std::iter::from_fn(|| seeds.next()).collect::<Vec<_>>()
        };
        assert_eq!(given(None, asked), [1, 2, 3]);
        assert_eq!(given(Some(1), asked), [1, 2, 3]);
        assert_eq!(given(Some(0), asked), [1], "the build took it all");
    }
}
