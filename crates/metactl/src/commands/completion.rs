//! `metactl completion`.

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use crate::{
    cli::Cli,
    exit::{Done, OK},
};

const EXAMPLES: &str = "Example:
  metactl completion bash > /etc/bash_completion.d/metactl";

/// Prints a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    /// Runs it.
    pub fn run(self) -> Done {
        generate(self.shell, &mut Cli::command(), "metactl", &mut std::io::stdout());
        Ok(OK)
    }
}
