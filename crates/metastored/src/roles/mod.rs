//! The four roles, a file each: its config, and how it is started and stopped.

pub mod dispatcher;
pub mod jobmaster;
pub mod replica;
pub mod standalone;

use std::sync::Arc;
use std::time::Duration;

use ::jobmaster::HostConfig;
use anyhow::bail;
use meta_client::{EtcdKv, EtcdOptions, Kv};
use tokio::sync::watch;

use process_kit::{ConfigError, Shutdown, shutdown::GRACE};

/// A client of the store. It need not reach it now. A call waits `call_timeout` for an answer: an election, or
/// replicas that start again, must not fail what waits that long anyway.
fn store(endpoints: &[String], call_timeout: Duration) -> anyhow::Result<Arc<dyn Kv>> {
    if endpoints.is_empty() {
        bail!(ConfigError::invalid(
            "store.endpoints",
            "is empty: name the replicas' client addresses, HOST:PORT"
        ));
    }
    Ok(Arc::new(EtcdKv::connect(endpoints, EtcdOptions { call_timeout, ..EtcdOptions::default() })?))
}

/// The one line that says that the process is up, and where.
fn say_ready(role: &str, addresses: &str) {
    println!("ready {role} {addresses}");
}

/// Waits until the process is registered in the store, or told to stop.
async fn until_registered<T: Send + Sync>(
    mut session: watch::Receiver<Option<T>>,
    shutdown: &Shutdown,
) -> bool {
    tokio::select! {
        registered = session.wait_for(Option::is_some) => registered.is_ok(),
        () = shutdown.begun() => false,
    }
}

/// Waits for a signal, then, at most `grace`, for everything that must be done before the end.
async fn until_stopped(shutdown: &Shutdown, grace: Duration) {
    shutdown.begun().await;
    shutdown.finish(grace).await;
}

/// A process that hosts jobs adopts what a guard that is killed leaves. Before it starts any.
fn adopt_orphans() {
    if let Err(error) = ::jobmaster::adoption::adopt_orphans() {
        tracing::warn!(%error, "no subreaper: what a killed guard leaves is found by its mark only");
    }
}

/// How long a process that hosts jobs may take to stop.
fn grace_with_jobs(host: &HostConfig) -> Duration {
    host.stop_grace().max(GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// systemd would kill the process, and with it what it still writes.
    #[test]
    fn the_units_wait_longer_than_the_process_takes_to_stop() {
        for unit in [
            include_str!("../../../../deploy/systemd/metastore-jobmaster.service"),
            include_str!("../../../../deploy/systemd/metastore-dispatcher.service"),
        ] {
            let seconds =
                unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix('s'));
            let waits = Duration::from_secs(seconds.expect("TimeoutStopSec").parse().unwrap());
            let takes = grace_with_jobs(&HostConfig::default());
            assert!(takes > HostConfig::default().stop_timeout);
            assert!(waits > takes + Duration::from_secs(5), "{waits:?} is too short for {takes:?}");
        }
    }
}
