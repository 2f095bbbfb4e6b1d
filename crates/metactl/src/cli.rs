//! The command line: global flags and the tree of commands. Each command's own flags are in its file.

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::commands::{
    cluster, completion, del, doctor, endpoint, get, icp, job, lease, member, node, put, run, txn, watch,
};

const EXIT_CODES: &str = "\
Exit codes:
  0 ok   1 failed   2 usage   3 unavailable or timeout   4 conflict   5 not found
  run submit --wait: 0 finished, 10 failed, 11 cancelled

One replica's address is enough: everything else is found in the store.
  metactl --endpoints 127.0.0.1:2379 cluster status";

/// The operator's tool for a metastore.
#[derive(Debug, Parser)]
#[command(name = "metactl", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What is asked of whom.
    #[command(flatten)]
    pub globals: Globals,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
pub struct Globals {
    /// Client addresses of replicas, HOST:PORT; one is enough, the others are tried when it does not answer.
    #[arg(
        long,
        global = true,
        env = "METACTL_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:2379"
    )]
    pub endpoints: Vec<String>,
    /// Form of the output.
    #[arg(short, long, global = true, env = "METACTL_OUTPUT", value_enum)]
    pub output: Option<Output>,
    /// How long one call may take.
    #[arg(long, global = true, env = "METACTL_COMMAND_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub command_timeout: Duration,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns for people.
    Table,
    /// JSON for programs.
    Json,
}

impl Globals {
    /// True if the output is for programs.
    pub fn json(&self) -> bool {
        self.output == Some(Output::Json)
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(missing_docs)]
pub enum Command {
    Put(put::Put),
    Get(get::Get),
    Del(del::Del),
    Txn(txn::TxnCommand),
    Watch(watch::Watch),
    #[command(subcommand)]
    Lease(lease::Lease),
    #[command(subcommand)]
    Member(member::Member),
    #[command(subcommand)]
    Endpoint(endpoint::Endpoint),
    #[command(subcommand)]
    Icp(icp::Icp),
    #[command(subcommand)]
    Run(run::Run),
    #[command(subcommand)]
    Job(job::Job),
    #[command(subcommand)]
    Node(node::Node),
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    Doctor(doctor::Doctor),
    Completion(completion::Completion),
}

/// Reads `5s`, `500ms`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| format!("\"{text}\" is no duration; write 5s or 500ms"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        _ => Err(format!("\"{text}\" is no duration; write 5s or 500ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_of_the_tool_is_there() {
        let command = Cli::command();
        let names: Vec<_> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
        for name in
            ["put", "get", "del", "watch", "txn", "lease", "member", "endpoint", "icp", "run", "job", "node"]
        {
            assert!(names.iter().any(|it| it == name), "{name}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("5").is_err() && duration("s").is_err() && duration("5 weeks").is_err());
    }
}
