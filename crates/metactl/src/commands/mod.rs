//! The commands, a file each: its flags with examples, and what it does.

pub mod cluster;
pub mod completion;
pub mod del;
pub mod doctor;
pub mod endpoint;
pub mod get;
pub mod icp;
pub mod job;
pub mod lease;
pub mod logs;
pub mod member;
pub mod node;
pub mod put;
pub mod run;
pub mod txn;
pub mod watch;

use crate::{
    cli::{Cli, Command},
    exit::Done,
};

/// Runs a command.
pub async fn run(cli: Cli) -> Done {
    let globals = &cli.globals;
    match cli.command {
        Command::Put(command) => command.run(globals).await,
        Command::Get(command) => command.run(globals).await,
        Command::Del(command) => command.run(globals).await,
        Command::Txn(command) => command.run(globals).await,
        Command::Watch(command) => command.run(globals).await,
        Command::Lease(command) => command.run(globals).await,
        Command::Member(command) => command.run(globals).await,
        Command::Endpoint(command) => command.run(globals).await,
        Command::Icp(command) => command.run(globals).await,
        Command::Run(command) => command.run(globals).await,
        Command::Job(command) => command.run(globals).await,
        Command::Node(command) => command.run(globals).await,
        Command::Cluster(command) => command.run(globals).await,
        Command::Doctor(command) => command.run(globals).await,
        Command::Completion(command) => command.run(),
    }
}
