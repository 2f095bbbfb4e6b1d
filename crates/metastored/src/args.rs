//! The command line of metastored.

use clap::{Parser, Subcommand, ValueEnum};
use process_kit::BootArgs;

const EXAMPLES: &str = "Examples:
  metastored standalone                              everything in one process, to try it
  metastored replica --config conf/replica.toml
  metastored dispatcher --config conf/dispatcher.toml --set node.name=d1
  metastored jobmaster --config conf/jobmaster.toml --print-config

Order of config: --set, then METASTORED_ variables, then the file, then defaults.";

/// A Raft-replicated metastorage for code packages, asynchronous runs and JobMasters.
#[derive(Debug, Parser)]
#[command(name = "metastored", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// What this process is.
    #[command(subcommand)]
    pub role: Role,
}

/// What a process is.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// A member of the store: the Raft log, the state, etcd's API.
    Replica(BootArgs),
    /// The REST front.
    Dispatcher(BootArgs),
    /// A server node: holds packages and runs jobs.
    Jobmaster(BootArgs),
    /// All of it in one process on loopback.
    Standalone {
        /// The flags every role has.
        #[command(flatten)]
        boot: BootArgs,
        /// Which ports to listen on.
        #[arg(long, value_enum, default_value = "default")]
        ports: Ports,
    },
    /// Prints the annotated config file of a role.
    #[command(hide = true)]
    Conf {
        /// The role.
        role: ConfRole,
    },
    /// Prints the description of a dispatcher's REST API.
    #[command(hide = true)]
    Openapi,
}

/// Which ports standalone listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Ports {
    /// Those of its config: 2379, 2380, 8081, 8092.
    Default,
    /// Free ones.
    Free,
}

/// A role that has a config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfRole {
    /// conf/replica.toml
    Replica,
    /// conf/dispatcher.toml
    Dispatcher,
    /// conf/jobmaster.toml
    Jobmaster,
    /// conf/standalone.toml
    Standalone,
}
