//! `metastored replica`.

use meta_replica::{Replica, ReplicaOptions, StartError};
use process_kit::{BootArgs, Shutdown, boot};

use super::say_ready;

/// Runs a replica until it is told to stop.
pub async fn run(args: &BootArgs) -> anyhow::Result<()> {
    let Some(options) = boot::start::<ReplicaOptions>(args)? else { return Ok(()) };
    let shutdown = Shutdown::on_signals()?;
    let replica = match Replica::start(options, &shutdown).await {
        Err(StartError::Stopped) => return Ok(()),
        started => started?,
    };
    tokio::select! {
        () = replica.ready() => {
            say_ready("replica", &format!("client={} peer={}", replica.client_addr(), replica.peer_addr()));
        }
        () = shutdown.begun() => {}
        why = replica.failed() => return Err(anyhow::anyhow!(why)),
    }
    tokio::select! {
        () = shutdown.begun() => {}
        why = replica.failed() => return Err(anyhow::anyhow!(why)),
    }
    replica.shutdown().await;
    Ok(())
}
