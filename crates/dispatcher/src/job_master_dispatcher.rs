//! JobMasterDispatcher: chooses the mode by `jobmanager.jobmaster.single.enable`.
//!
//! * `false`: this process hosts JobMasters. It is a server node, registered under the dispatcher's name in both
//!   roles, with `dispatcher.slots`.
//! * `true`: it is a dispatcher only; JobMaster processes run the jobs, JobMasterPrimaryDispatcher places them.
//!
//! Placing is the same in both modes and runs in every dispatcher: nodes are nodes.

use std::sync::Arc;

use meta_client::Kv;
use process_kit::{Readiness, Shutdown};
use records::record::{Node, Role};
use thiserror::Error;
use tokio::sync::watch;

use crate::front::now_ms;
use crate::options::DispatcherOptions;
use crate::session::{Registrar, Session};

/// Why the JobMasters of this process did not start.
#[derive(Debug, Error)]
#[error("the JobMasters of this dispatcher did not start: {0}")]
pub struct HostError(pub String);

/// Registers this process in the mode its options say; the receiver tells who it is.
pub async fn start(
    kv: Arc<dyn Kv>,
    options: &DispatcherOptions,
    advertised: &str,
    readiness: &Readiness,
    shutdown: &Shutdown,
) -> Result<watch::Receiver<Option<Session>>, HostError> {
    readiness.waiting("registration", "no lease in the metastore yet");
    let (session, told) = watch::channel(None);
    let registrar = Registrar {
        kv,
        name: options.node_name.clone(),
        node: record(options, advertised),
        ttl: options.lease,
    };
    shutdown.spawn("registration", registrar.run(session, shutdown.clone()));
    Ok(told)
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
        extra: Default::default(),
    }
}
