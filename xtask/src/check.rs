//! `cargo xtask check`: the one command that a change must pass, cheapest steps first.

use std::time::Instant;

use crate::{conf, prove, tidy, tools};

type Step = (&'static str, fn() -> anyhow::Result<()>);

const STEPS: [Step; 8] = [
    ("fmt", || tools::run(&mut tools::cargo(&["fmt", "--all", "--check"]))),
    ("tidy", tidy::run),
    ("scripts", scripts),
    ("clippy", clippy),
    ("conf", || conf::run(true)),
    ("docs", docs),
    ("tests", || tools::run(&mut tools::cargo(&["test", "--workspace", "--no-fail-fast"]))),
    ("prove", prove::check),
];

/// Runs every step and stops at the first that fails.
pub fn run() -> anyhow::Result<()> {
    for (name, step) in STEPS {
        eprintln!("== {name}");
        let start = Instant::now();
        step()?;
        eprintln!("== {name} ok, {:.0} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn clippy() -> anyhow::Result<()> {
    let args = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    tools::run(&mut tools::cargo(&args))
}

fn docs() -> anyhow::Result<()> {
    let args = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    tools::run(tools::cargo(&args).env("RUSTDOCFLAGS", "--deny warnings"))
}

/// Every shell script at least parses.
fn scripts() -> anyhow::Result<()> {
    for file in tidy::files()? {
        let text = std::fs::read_to_string(tools::root().join(&file)).unwrap_or_default();
        if file.ends_with(".sh") || text.starts_with("#!/usr/bin/env bash") {
            tools::run(&mut tools::program("bash", &["-n", &file]))?;
        }
    }
    Ok(())
}
