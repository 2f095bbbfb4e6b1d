//! Starting and stopping a dispatcher.

use std::net::SocketAddr;
use std::sync::Arc;

use jobmaster::HostConfig;
use meta_client::Kv;
use process_kit::net::{BindError, Listen};
use process_kit::{Metrics, Readiness, Rounds, Shutdown, bind};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::front::Front;
use crate::job_master_dispatcher::{self, Hosting};
use crate::job_master_primary_dispatcher::JobMasterPrimaryDispatcher;
use crate::metrics::FrontMetrics;
use crate::mirror;
use crate::node_client::NodeClient;
use crate::options::DispatcherOptions;
use crate::package_reconciler::PackageReconciler;
use crate::receive::Spool;
use crate::reconcile;
use crate::retention::{Retention, Retentions};
use crate::run_reconciler::RunReconciler;
use crate::session::Session;
use crate::web_submission_extension::{self, FrontService};

/// Why a dispatcher did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its port.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A value that cannot be.
    #[error("{0}")]
    Options(String),
    /// Its spool directory.
    #[error("web.tmpdir = \"{directory}\": {source}")]
    Spool {
        /// The directory.
        directory: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// The HTTP client for nodes.
    #[error("the HTTP client cannot be made: {0}")]
    Client(#[from] reqwest::Error),
    /// The JobMasters hosted here.
    #[error(transparent)]
    Host(#[from] jobmaster::NodeError),
}

/// A running dispatcher.
pub struct Dispatcher {
    /// Where the REST front listens.
    pub rest_address: SocketAddr,
    /// HOST:PORT under which others reach it.
    pub advertised: String,
    /// The front without its port, for tests and for embedding.
    pub service: FrontService,
    /// What it is in the store.
    pub session: watch::Receiver<Option<Session>>,
    /// Its figures.
    pub metrics: Metrics,
    /// The JobMasters hosted here, with `single.enable = false`.
    pub node: Option<jobmaster::Node>,
}

impl Dispatcher {
    /// Binds, registers, serves, reconciles; everything ends with `shutdown`. `host` counts while JobMasters are
    /// hosted here (`single.enable = false`).
    pub async fn start(
        kv: Arc<dyn Kv>,
        options: DispatcherOptions,
        host: HostConfig,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        options.check().map_err(StartError::Options)?;
        records::names::check_node(&options.node_name)
            .map_err(|refusal| StartError::Options(format!("node.name: {refusal}")))?;
        options.restart.check().map_err(|refusal| StartError::Options(refusal.text))?;
        records::jobs::on_lost_store(&Default::default(), &options.on_lost_store)
            .map_err(|refusal| StartError::Options(refusal.text))?;
        let listener = bind(Listen {
            addr: options.listen_rest,
            key: "listen.rest",
            exposes: "anybody who reaches the port can upload a JAR and run it",
            insecure: options.insecure,
        })
        .await?;
        let rest_address = listener.local_addr().map_err(|source| BindError::Refused {
            addr: options.listen_rest,
            key: "listen.rest",
            source,
        })?;
        let advertised = match options.advertise_rest.as_str() {
            "" => rest_address.to_string(),
            advertised => advertised.to_owned(),
        };
        let (metrics, readiness) = (Metrics::new("dispatcher"), Readiness::new());
        let drained = CancellationToken::new();
        // Also if the start fails: nothing is left to be answered then.
        let draining = drained.clone().drop_guard();
        let Hosting { session, node } =
            job_master_dispatcher::start(kv.clone(), &options, host, &advertised, &shutdown, drained).await?;
        let front = front(kv, options, &advertised, session.clone(), &metrics, shutdown.token())?;
        let service = web_submission_extension::service(front.clone(), metrics.clone(), readiness.clone());
        spawn_reconcilers(&front, &shutdown);
        spawn_readiness(session.clone(), readiness, &shutdown);
        let served = process_kit::serve(listener, service.clone(), shutdown.token());
        shutdown.spawn("rest front", async move {
            served.await;
            drop(draining);
        });
        tracing::info!(address = %rest_address, advertised, "dispatcher serves");
        Ok(Self { rest_address, advertised, service, session, metrics, node })
    }
}

fn front(
    kv: Arc<dyn Kv>,
    options: DispatcherOptions,
    advertised: &str,
    session: watch::Receiver<Option<Session>>,
    metrics: &Metrics,
    ending: CancellationToken,
) -> Result<Front, StartError> {
    let directory = options.spool_directory();
    let spool = Spool::open(directory.clone(), options.upload_max_bytes.0)
        .map_err(|source| StartError::Spool { directory: directory.display().to_string(), source })?;
    let retentions = Retentions {
        run: Retention::new(options.run_retention),
        token: Retention::new(options.token_retention),
        job: Retention::new(options.job_retention),
    };
    let figures = FrontMetrics::default();
    metrics.with(|registry| figures.register(registry));
    Ok(Front {
        kv,
        address: advertised.into(),
        session,
        nodes: NodeClient::new()?,
        spool,
        retentions: Arc::new(retentions),
        metrics: figures,
        rounds: Rounds::default(),
        submits: Arc::new(Semaphore::new(options.run_submit_concurrent as usize)),
        ending,
        options: Arc::new(options),
    })
}

fn spawn_reconcilers(front: &Front, shutdown: &Shutdown) {
    let views = mirror::start(front.kv.clone(), shutdown);
    let runs = RunReconciler::new(front.clone());
    shutdown.spawn("run reconciler", reconcile::run(front.clone(), runs, views.clone(), shutdown.clone()));
    let placement = JobMasterPrimaryDispatcher::new(front.clone());
    shutdown.spawn("placement", reconcile::run(front.clone(), placement, views.clone(), shutdown.clone()));
    let packages = PackageReconciler::new(front.clone());
    shutdown.spawn("package reconciler", reconcile::run(front.clone(), packages, views, shutdown.clone()));
}

/// `/readyz` says no while the dispatcher is not registered: it could take no run.
fn spawn_readiness(mut session: watch::Receiver<Option<Session>>, readiness: Readiness, shutdown: &Shutdown) {
    let token = shutdown.token();
    shutdown.spawn("readiness", async move {
        loop {
            match *session.borrow_and_update() {
                Some(_) => readiness.ready("registration"),
                None => readiness.waiting("registration", "no lease in the metastore yet"),
            }
            tokio::select! {
                () = token.cancelled() => return,
                changed = session.changed() => if changed.is_err() { return },
            }
        }
    });
}
