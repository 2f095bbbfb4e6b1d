//! `cargo xtask prove --controls`: known bugs, put back on purpose. Each must be caught, by one of the checkers that
//! are named for it and within the seeds that are stated for it: else the net is torn.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::{seed, short};
use crate::tools;

/// One known bug, as the worker lists it.
struct Control {
    name: String,
    by: Vec<String>,
    within: u64,
}

/// How a bug was caught.
struct Caught {
    /// Seeds that it took.
    seeds: u64,
    seed: u64,
    what: String,
}

/// Runs every bug, or one, from seed `first` on, `jobs` at a time. How many were caught; an error if one was not.
pub fn run(binary: &Path, first: u64, only: Option<&str>, jobs: usize) -> anyhow::Result<usize> {
    let mut controls = list(binary)?;
    controls.retain(|control| only.is_none_or(|only| control.name == only));
    if controls.is_empty() {
        bail!("there is no such control");
    }
    println!("| known bug | caught at seed | seeds it took, of | by |\n|---|---|---|---|");
    let started = Instant::now();
    let missed = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(control) = controls.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Control { name, within, .. } = control;
                    match catch(binary, first, control) {
                        Ok(Caught { seeds, seed, what }) => {
                            println!("| {name} | {seed} | {seeds}, {within} | {what} |");
                        }
                        Err(why) => {
                            println!("| {name} | not caught | {within} | {why} |");
                            missed.lock().expect("no worker panicked").push(name.as_str());
                        }
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("no worker panicked");
    let caught = controls.len() - missed.len();
    println!(
        "\nknown bugs caught: {caught} of {}, {:.0} s\n",
        controls.len(),
        started.elapsed().as_secs_f64()
    );
    if !missed.is_empty() {
        bail!("not caught: {}", missed.join(", "));
    }
    Ok(caught)
}

fn list(binary: &Path) -> anyhow::Result<Vec<Control>> {
    let text = tools::output(std::process::Command::new(binary).arg("--controls"))?;
    text.lines().map(read).collect()
}

fn read(line: &str) -> anyhow::Result<Control> {
    let value: Value = serde_json::from_str(line).context("the worker lists its controls")?;
    let by = value["by"].as_array().context("a control has judges")?;
    Ok(Control {
        name: value["name"].as_str().context("a control has a name")?.to_owned(),
        by: by.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        within: value["within"].as_u64().context("a control has a number of seeds")?,
    })
}

fn catch(binary: &Path, first: u64, control: &Control) -> Result<Caught, String> {
    let mut passed = 0;
    let mut others = Vec::new();
    for seeds in 1..=control.within {
        let seed = first + seeds - 1;
        let report = match seed::run_with(binary, seed, None, Some(&control.name)) {
            Ok(report) => report,
            Err(why) => {
                others.push(format!("seed {seed}: {why}"));
                continue;
            }
        };
        passed += report["control_passed"].as_u64().unwrap_or(0);
        let violations = seed::violations(&report);
        if let Some(what) = violations.iter().find(|violation| is_by(violation, &control.by)) {
            return Ok(Caught { seeds, seed, what: short(what) });
        }
        others.extend(violations.into_iter().map(|violation| format!("seed {seed}: {violation}")));
    }
    let first = others.first().map_or_else(String::new, |text| short(text));
    Err(format!("its place was passed {passed} times; otherwise seen: {} ({first})", others.len()))
}

/// A violation is told as `NAME at TIME: TEXT`.
fn is_by(violation: &str, names: &[String]) -> bool {
    violation.split_once(" at ").is_some_and(|(name, _)| names.iter().any(|by| by == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_named_judge_counts() {
        let names = ["equal-state".to_owned()];
        assert!(is_by("equal-state at 1.5s: differs", &names));
        assert!(!is_by("panic: at equal-state at", &names));
    }
}
