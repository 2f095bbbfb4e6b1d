//! `metastored jobmaster`.

use jobmaster::{JobmasterConfig, Node};
use meta_client::EtcdOptions;
use process_kit::{BootArgs, Shutdown, boot, telemetry::LogConfig};

use super::{adopt_orphans, grace_with_jobs, say_ready, store, until_registered, until_stopped};

process_kit::config! {
    /// Keys of a JobMaster process.
    pub struct JobmasterRole {
        include { log: LogConfig, jobmaster: JobmasterConfig }
    }
}

/// Runs a server node until it is told to stop.
pub async fn run(args: &BootArgs) -> anyhow::Result<()> {
    let Some(config) = boot::start::<JobmasterRole>(args)? else { return Ok(()) };
    let kv = store(&config.jobmaster.store_endpoints, EtcdOptions::default().call_timeout)?;
    let shutdown = Shutdown::on_signals()?;
    let grace = grace_with_jobs(&config.jobmaster.host);
    adopt_orphans();
    let node = Node::start(kv, config.jobmaster.node_options(), shutdown.clone()).await?;
    if until_registered(node.session(), &shutdown).await {
        say_ready("jobmaster", &format!("node={}", node.address()));
    }
    until_stopped(&shutdown, grace).await;
    Ok(())
}
