//! metastored, the server binary: one program, four roles. Parse, load the config, start the log, run the role.

mod args;
mod conf;
mod roles;

use std::process::ExitCode;

use clap::Parser as _;
use process_kit::ConfigError;

use crate::args::{Cli, Role};

/// The config or the command line is wrong: nothing was started.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    // The guard of a job comes first: it must start no thread before it has forked.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "guard") {
        return jobmaster::guard::main(arguments);
    }
    let role = Cli::parse().role;
    match run(role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("metastored: {error:#}");
            ExitCode::from(if error.is::<ConfigError>() { EXIT_USAGE } else { 1 })
        }
    }
}

fn run(role: Role) -> anyhow::Result<()> {
    match role {
        Role::Conf { role } => print!("{}", conf::text(role)),
        Role::Openapi => print!("{}", dispatcher::openapi::text()),
        role => return serve(role),
    }
    Ok(())
}

fn serve(role: Role) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match role {
            Role::Replica(boot) => roles::replica::run(&boot).await,
            Role::Dispatcher(boot) => roles::dispatcher::run(&boot).await,
            Role::Jobmaster(boot) => roles::jobmaster::run(&boot).await,
            Role::Standalone { boot, ports } => roles::standalone::run(&boot, ports).await,
            Role::Conf { .. } | Role::Openapi => Ok(()),
        }
    });
    // A task that blocks must not keep a process that was told to stop.
    runtime.shutdown_background();
    done
}
