//! The domain through the real planners of `records`: simulated server nodes, dispatchers and users.
//!
//! There is no disk, no HTTP and no process here: a node's disk is a map, a request is a call, a process is a future
//! that the seed's plan drops. What is real are the planners, their guards, and the store they meet in.

mod coordinator;
mod dispatcher;
mod job;
mod node;
mod process;
mod register;
mod settled;
mod truth;
mod users;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use records::record::Role;

use self::dispatcher::Dispatcher;
use self::node::Node;
use self::process::Process;
pub use self::settled::unsettled;
pub use self::truth::Truth;
use self::users::RunUser;
use super::env::Env;

/// How large the domain is.
#[derive(Debug, Clone, Copy)]
pub struct DomainOptions {
    /// Server nodes.
    pub nodes: usize,
    /// Dispatchers.
    pub dispatchers: usize,
    /// Users of runs.
    pub run_users: usize,
    /// Users of packages.
    pub deployers: usize,
    /// Mean pause between two requests of a user.
    pub pause: Duration,
}

/// Jobs a node can run at a time.
const SLOTS: u32 = 3;

/// Runs the domain until everything is over. Its clients are numbered from `first` on.
pub async fn run(env: &Env, truth: &Truth, options: DomainOptions, first: u64) {
    let mut ids = first..;
    let mut client = || env.client(ids.next().expect("there is always a next number"));
    let mut all: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    for number in 1..=options.nodes {
        let process = Process { name: format!("n{number}"), role: Role::Jobmaster, slots: SLOTS };
        let work = |session| Node::new(session, truth.clone(), env.clone()).work();
        all.push(Box::pin(process.run(client(), work)));
    }
    for number in 1..=options.dispatchers {
        let process = Process { name: format!("d{number}"), role: Role::Dispatcher, slots: 0 };
        let work = |session| Dispatcher { session, truth: truth.clone(), env: env.clone() }.work();
        all.push(Box::pin(process.run(client(), work)));
    }
    for _ in 0..options.run_users {
        all.push(Box::pin(RunUser::new(client(), truth.clone(), options.pause).run()));
    }
    for _ in 0..options.deployers {
        all.push(Box::pin(users::deploy(client(), truth.clone(), options.pause)));
    }
    all.push(Box::pin(users::inspect(client(), truth.clone(), options.pause * 2)));
    while all.next().await.is_some() {}
}
