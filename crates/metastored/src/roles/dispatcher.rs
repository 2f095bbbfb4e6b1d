//! `metastored dispatcher`.

use dispatcher::{Dispatcher, DispatcherOptions};
use jobmaster::HostConfig;
use process_kit::{BootArgs, Shutdown, boot, telemetry::LogConfig};

use super::{adopt_orphans, grace_with_jobs, say_ready, store, until_registered, until_stopped};

process_kit::config! {
    /// Keys of a dispatcher; those of a host count while it hosts JobMasters (single.enable = false).
    pub struct DispatcherRole {
        include { log: LogConfig, dispatcher: DispatcherOptions, host: HostConfig }
    }
}

/// Runs a dispatcher until it is told to stop.
pub async fn run(args: &BootArgs) -> anyhow::Result<()> {
    let Some(config) = boot::start::<DispatcherRole>(args)? else { return Ok(()) };
    let kv = store(&config.dispatcher.store_endpoints, dispatcher::limits::STORE_DEADLINE)?;
    let shutdown = Shutdown::on_signals()?;
    let grace = grace_with_jobs(&config.host);
    if !config.dispatcher.single_enable {
        adopt_orphans();
    }
    let dispatcher = Dispatcher::start(kv, config.dispatcher, config.host, shutdown.clone()).await?;
    if until_registered(dispatcher.session.clone(), &shutdown).await {
        say_ready("dispatcher", &format!("rest=http://{}", dispatcher.rest_address));
    }
    until_stopped(&shutdown, grace).await;
    Ok(())
}
