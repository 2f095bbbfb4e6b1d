//! metactl, the operator's tool: one binary, one replica's address, everything else is found in the store.
//!
//! stdout is data, stderr is talk. Exit codes are in `exit`; each command has a file of its own in `commands`.

mod changes;
mod cli;
mod commands;
mod exit;
mod rest;
mod show;
mod store;
mod txn_text;
mod view;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; what is wrong goes to stderr. A closed pipe is no error of ours.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("metactl: cannot start: {error}");
            return ExitCode::from(exit::FAILED);
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("metactl: {error}");
            ExitCode::from(error.code)
        }
    }
}
