//! The project's own build commands: `cargo xtask check` is what CI runs and what a contributor runs.

mod check;
mod conf;
mod dist;
mod prove;
mod tidy;
mod tools;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

/// Build commands of this workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
enum Xtask {
    /// Everything a change must pass: format, tidy, lints, conf, docs, tests.
    Check,
    /// Taste that the compiler does not know: crate arrows, file heads and lengths.
    Tidy,
    /// Writes conf/*.toml from the config structs.
    Conf {
        /// Only says whether the files are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Writes metastore-VERSION-linux-ARCH.tar.gz.
    Dist {
        /// Where to.
        #[arg(long, value_name = "DIR", default_value = "dist")]
        out: PathBuf,
    },
    /// Runs seeds of the simulated cluster and prints what they came to.
    Prove(prove::Prove),
}

fn main() -> ExitCode {
    let done = match Xtask::parse() {
        Xtask::Check => check::run(),
        Xtask::Tidy => tidy::run(),
        Xtask::Conf { check } => conf::run(check),
        Xtask::Dist { out } => dist::run(&out),
        Xtask::Prove(prove) => prove::run(&prove),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
