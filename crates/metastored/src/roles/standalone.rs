//! `metastored standalone`: a replica, a dispatcher and a server node in one process on loopback.

use std::{net::SocketAddr, path::PathBuf};

use dispatcher::{Dispatcher, DispatcherOptions, RestartDefaults};
use jobmaster::HostConfig;
use meta_replica::{Replica, ReplicaOptions};
use process_kit::{BootArgs, Shutdown, boot, telemetry::LogConfig};

use super::{adopt_orphans, grace_with_jobs, say_ready, store};
use crate::args::Ports;

/// The one node's name.
const NAME: &str = "standalone";

process_kit::config! {
    /// Keys of a standalone process.
    pub struct StandaloneRole {
        include { log: LogConfig, host: HostConfig, restart: RestartDefaults }
        /// Directory of everything; packages and jobs are in its folder work unless work-dir says otherwise.
        "data-dir" => data_dir: PathBuf = "metastore-data".into(),
        /// Where clients of the store reach it.
        "listen.client" => listen_client: SocketAddr = ReplicaOptions::default().listen_client,
        /// Where other replicas would reach it.
        "listen.peer" => listen_peer: SocketAddr = ReplicaOptions::default().listen_peer,
        /// Where the REST front listens.
        "listen.rest" => listen_rest: SocketAddr = DispatcherOptions::default().listen_rest,
        /// How much parallelism it takes; 0 = the cores.
        "dispatcher.slots" => slots: u32 = 0,
    }
}

impl StandaloneRole {
    fn with_ports(mut self, ports: Ports) -> Self {
        if ports == Ports::Free {
            let listens = [
                &mut self.listen_client,
                &mut self.listen_peer,
                &mut self.listen_rest,
                &mut self.host.listen_node,
            ];
            listens.into_iter().for_each(|listen| listen.set_port(0));
        }
        self
    }

    fn replica(&self) -> ReplicaOptions {
        ReplicaOptions {
            node_name: NAME.to_owned(),
            data_dir: self.data_dir.join("replica"),
            listen_client: self.listen_client,
            listen_peer: self.listen_peer,
            ..ReplicaOptions::default()
        }
    }

    fn dispatcher(&self, endpoint: &str) -> DispatcherOptions {
        DispatcherOptions {
            node_name: NAME.to_owned(),
            store_endpoints: vec![endpoint.to_owned()],
            listen_rest: self.listen_rest,
            single_enable: false,
            slots: self.slots,
            restart: self.restart.clone(),
            web_tmpdir: self.data_dir.join("upload"),
            ..DispatcherOptions::default()
        }
    }

    fn host(&self) -> HostConfig {
        let mut host = self.host.clone();
        if host.work_dir == HostConfig::default().work_dir {
            host.work_dir = self.data_dir.join("work");
        }
        host
    }
}

/// Runs everything until it is told to stop.
pub async fn run(args: &BootArgs, ports: Ports) -> anyhow::Result<()> {
    let Some(config) = boot::start::<StandaloneRole>(args)? else { return Ok(()) };
    let config = config.with_ports(ports);
    let shutdown = Shutdown::on_signals()?;
    adopt_orphans();
    let replica = Replica::start(config.replica(), &shutdown).await?;
    let endpoint = replica.client_addr().to_string();
    let kv = store(std::slice::from_ref(&endpoint), dispatcher::limits::STORE_DEADLINE)?;
    let consumers = Shutdown::new();
    let dispatcher =
        Dispatcher::start(kv, config.dispatcher(&endpoint), config.host(), consumers.clone()).await?;
    tokio::select! {
        () = replica.ready() => greet(&endpoint, dispatcher.rest_address),
        () = shutdown.begun() => {}
    }
    shutdown.begun().await;
    // Whoever uses the store gives its leases back before the store goes.
    consumers.finish(grace_with_jobs(&config.host)).await;
    replica.shutdown().await;
    Ok(())
}

fn greet(endpoint: &str, rest: SocketAddr) {
    say_ready("standalone", &format!("client={endpoint} rest=http://{rest}"));
    println!(
        "
The store (etcd's API):  {endpoint}
The REST front:          http://{rest}

Try:
  metactl --endpoints {endpoint} cluster status
  metactl --endpoints {endpoint} run submit --trigger-id first --wait examples/hello.jar
  curl http://{rest}/run-async/first
"
    );
}
