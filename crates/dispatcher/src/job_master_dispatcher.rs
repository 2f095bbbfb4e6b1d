//! JobMasterDispatcher: chooses the mode by `jobmanager.jobmaster.single.enable`.
//!
//! * `false`: this process hosts JobMasters. It is a server node, registered under the dispatcher's name in both
//!   roles, with `dispatcher.slots`.
//! * `true`: it is a dispatcher only; JobMaster processes run the jobs, JobMasterPrimaryDispatcher places them.
//!
//! Placing is the same in both modes and runs in every dispatcher: nodes are nodes.

use std::sync::Arc;

use jobmaster::{HostConfig, NodeOptions};
use meta_client::Kv;
use process_kit::Shutdown;
use records::record::{Node, Role};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::front::now_ms;
use crate::options::DispatcherOptions;
use crate::session::{Registrar, Session};

/// What a dispatcher is besides its front: a server node, or only registered.
pub struct Hosting {
    /// Who it is in the store, while it is registered.
    pub session: watch::Receiver<Option<Session>>,
    /// The JobMasters hosted here, with `single.enable = false`.
    pub node: Option<jobmaster::Node>,
}

/// Registers this process in the mode its options say. `drained`: its front has answered all, once it stops.
pub async fn start(
    kv: Arc<dyn Kv>,
    options: &DispatcherOptions,
    host: HostConfig,
    advertised: &str,
    shutdown: &Shutdown,
    drained: CancellationToken,
) -> Result<Hosting, jobmaster::NodeError> {
    if options.single_enable {
        tracing::info!("single.enable = true: JobMaster processes run the jobs");
        let (told, session) = watch::channel(None);
        let registrar = Registrar {
            kv,
            name: options.node_name.clone(),
            node: record(options, advertised),
            ttl: options.lease,
            drained,
        };
        shutdown.spawn("registration", registrar.run(told, shutdown.clone()));
        return Ok(Hosting { session, node: None });
    }
    tracing::info!(slots = options.slots, "single.enable = false: this process runs JobMasters itself");
    let node = NodeOptions {
        name: options.node_name.clone(),
        slots: options.slots,
        lease: options.lease,
        job_retention: options.job_retention,
        insecure: options.insecure,
        host,
        roles: vec![Role::Dispatcher, Role::Jobmaster],
        rest_address: Some(advertised.to_owned()),
        single_enable: Some(false),
        drained,
        ..NodeOptions::default()
    };
    let node = jobmaster::Node::start(kv, node, shutdown.clone()).await?;
    Ok(Hosting { session: node.session(), node: Some(node) })
}

/// What a dispatcher that hosts nothing says about itself.
fn record(options: &DispatcherOptions, advertised: &str) -> Node {
    Node {
        roles: vec![Role::Dispatcher],
        rest_address: Some(advertised.to_owned()),
        node_address: None,
        slots: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        java: None,
        single_enable: Some(options.single_enable),
        boot: format!("{:032x}", rand::random::<u128>()),
        started_at_ms: now_ms(),
        work_dir: None,
        stopping: false,
        extra: Default::default(),
    }
}
