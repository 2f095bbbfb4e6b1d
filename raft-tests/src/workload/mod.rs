//! The workload: seeded clients of a store, against the trait `Kv`, that record what they see.
//!
//! ```text
//!  seed -> chance of each client          KV clients, compactor      hot keys, conflicts, lost answers
//!  connect(number) -> Kv  (recorded)      watchers                   from now, before, later; resumed
//!  Stage: Storm -> Calm -> Over           lease clients              renewed in time, late, revoked, run out
//!                                         domain: nodes, dispatchers, users, through the planners of `records`
//! ```
//! It knows no clock but `tokio::time` and no chance but the seed's, so the same seed on the same store does the
//! same. A call that was not answered is recorded as unknown and is never sent again without a guard. How strong it
//! is counts more than how large it is: the keys are few, conflicts many.

pub mod domain;
mod env;
mod kv_clients;
mod lease_clients;
pub mod one_core;
pub mod testing;
mod watchers;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

pub use self::domain::{DomainOptions, Truth, unsettled};
pub use self::env::{Chance, Client, Connect, Env, Stage, Tally};
use self::kv_clients::KvClient;
pub use self::kv_clients::KvOptions;
use self::lease_clients::LeaseClient;

/// How much of what there is.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Clients of the hot keys.
    pub kv_clients: usize,
    /// How they go about it.
    pub kv: KvOptions,
    /// Mean time between two compactions; none if absent.
    pub compact_every: Option<Duration>,
    /// Clients that watch.
    pub watchers: usize,
    /// Clients of leases.
    pub lease_clients: usize,
    /// The domain, if it is to be there.
    pub domain: Option<DomainOptions>,
}

impl Default for Options {
    fn default() -> Self {
        let domain = DomainOptions {
            nodes: 3,
            dispatchers: 2,
            run_users: 2,
            deployers: 2,
            pause: Duration::from_millis(150),
        };
        Self {
            kv_clients: 4,
            kv: KvOptions { keys: 3, pause: Duration::from_millis(30) },
            compact_every: Some(Duration::from_millis(1_500)),
            watchers: 3,
            lease_clients: 3,
            domain: Some(domain),
        }
    }
}

/// Runs everything until [`Stage::Over`]. What must not be and shows in the domain's own world is in `truth`; the
/// rest is in the history. Clients are numbered from `first` on: whoever runs it on several hosts gives each numbers
/// of its own, and the domain to one of them only.
pub async fn run(env: &Env, truth: &Truth, options: Options, first: u64) {
    let mut ids = first..;
    let mut client = || env.client(ids.next().expect("there is always a next number"));
    let mut all: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    for _ in 0..options.kv_clients {
        all.push(Box::pin(KvClient::new(client(), options.kv).run()));
    }
    if let Some(every) = options.compact_every {
        all.push(Box::pin(kv_clients::compact(client(), every)));
    }
    for _ in 0..options.watchers {
        all.push(Box::pin(watchers::watch(client())));
    }
    for _ in 0..options.lease_clients {
        all.push(Box::pin(LeaseClient::new(client(), options.kv.pause).run()));
    }
    let first = client().id;
    if let Some(domain) = options.domain {
        all.push(Box::pin(domain::run(env, truth, domain, first)));
    }
    while all.next().await.is_some() {}
}
