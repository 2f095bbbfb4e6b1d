//! The container runner: one server node. Makes sure that nothing of an earlier process lives, registers under a
//! lease, and hosts the package agent, the JobMasters and the node API while it lasts.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use icp_store::{Fetcher, PackageStore, StoreOptions, peer};
use meta_client::Kv;
use process_kit::net::{Listen, bind, bind_range};
use process_kit::{Metrics, Readiness, Rounds, Shutdown, ops_routes};
use records::keys::UnitKey;
use records::record::{Node as NodeRecord, UnitState};
use records::{Scope, View};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::blob_api::Given;
use crate::claims::Claims;
use crate::deploy_coordinator::Uploads;
use crate::engines::process::find_program;
use crate::error::NodeError;
use crate::gates::{Gates, Turns};
use crate::guard::cgroup;
use crate::host::{Host, blocking, now_ms};
use crate::kept::Kept;
use crate::limits::{LAST_WRITES, STORE_RETRY};
use crate::metrics::NodeMetrics;
use crate::options::NodeOptions;
use crate::package_agent::PackageAgent;
use crate::register_target::Inspections;
use crate::session::{GuardPipes, Pace, Registrar, Session, Tenure, until_drained};
use crate::take_over::{Leftover, WorkDir};
use crate::{fates, leftovers, mirror, node_api};

/// Last port of the default range.
const LAST_PORT: u16 = 8099;

/// A running server node. It lives until the shutdown it was started with.
#[derive(Clone)]
pub struct Node {
    host: Arc<Host>,
    address: SocketAddr,
    readiness: Readiness,
    metrics: Metrics,
}

impl Node {
    /// Starts a node: binds its port, kills what an earlier process left, and from then on works in tasks of its own
    /// until the end. It need not reach the store now; `/readyz` says what it waits for.
    pub async fn start(kv: Arc<dyn Kv>, options: NodeOptions, shutdown: Shutdown) -> Result<Self, NodeError> {
        options.check()?;
        let listener = listen(&options).await?;
        let address = listener
            .local_addr()
            .map_err(|source| NodeError::Io { path: options.host.work_dir.clone(), source })?;
        let advertised = options.advertised(address);
        let path = options.host.work_dir.clone();
        let (work_dir, leftovers) = blocking(move || take_over(&path)).await?;
        let min_free_bytes = options.host.min_free.0;
        let at = work_dir.path().to_path_buf();
        let store = blocking(move || PackageStore::open(&at, StoreOptions { min_free_bytes })).await?;
        let (metrics, readiness) = (Metrics::new("jobmaster"), Readiness::new());
        readiness.waiting("store", "not read yet");
        readiness.waiting("registration", "not registered yet");
        let (views_in, views) = watch::channel(View::default());
        let (session_in, session) = watch::channel(None);
        let host = Arc::new(Host {
            kv: kv.clone(),
            fetcher: Fetcher::new(store.clone(), peer::client_of(&advertised)),
            store,
            gates: Gates::default(),
            creates: Gates::default(),
            uploads: Uploads::default(),
            given: Given::default(),
            inspections: Inspections::default(),
            turns: Turns::default(),
            verifications: Turns::default(),
            pipes: GuardPipes::default(),
            views,
            session,
            jobs_dir: work_dir.jobs(),
            work_dir_id: work_dir.id.clone(),
            kept: Kept::default(),
            metrics: NodeMetrics::register(&metrics),
            rounds: Rounds::default(),
            disk_changed: Notify::new(),
            leftovers: Notify::new(),
            shutdown: shutdown.clone(),
            options,
        });
        let app = node_api::routes(host.clone()).merge(ops_routes(metrics.clone(), readiness.clone()));
        serve(listener, app, &shutdown);
        tokio::spawn(mirror::run(kv, views_in, readiness.clone(), shutdown.clone()));
        let runner = Runner { host: host.clone(), work_dir, readiness: readiness.clone(), address };
        shutdown.spawn("container runner", runner.run(leftovers, session_in));
        Ok(Self { host, address, readiness, metrics })
    }

    /// Where its API listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who it is in the store now; none while it is not registered.
    pub fn session(&self) -> watch::Receiver<Option<Session>> {
        self.host.session.clone()
    }

    /// What it waits for.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Its figures.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

async fn listen(options: &NodeOptions) -> Result<TcpListener, NodeError> {
    let listen = Listen {
        addr: options.host.listen_node,
        key: "listen.node",
        exposes: "anybody who reaches it can bring code here and read packages and output of jobs",
        insecure: options.insecure,
    };
    let is_default = options.host.listen_node == crate::options::HostConfig::default().listen_node;
    Ok(if is_default { bind_range(listen, LAST_PORT).await? } else { bind(listen).await? })
}

fn take_over(path: &Path) -> Result<(WorkDir, Vec<Leftover>), NodeError> {
    let work_dir = WorkDir::take(path)?;
    let leftovers = work_dir.kill_leftovers()?;
    cgroup::sweep();
    Ok((work_dir, leftovers))
}

fn serve(listener: TcpListener, app: axum::Router, shutdown: &Shutdown) {
    tokio::spawn(process_kit::serve(listener, app, shutdown.token()));
}

struct Runner {
    host: Arc<Host>,
    work_dir: WorkDir,
    readiness: Readiness,
    address: SocketAddr,
}

impl Runner {
    async fn run(self, leftovers: Vec<Leftover>, sessions: watch::Sender<Option<Session>>) {
        self.run_tenures(leftovers, sessions).await;
        self.host.kept.end(self.host.options.host.stop_timeout).await;
    }

    async fn run_tenures(&self, leftovers: Vec<Leftover>, sessions: watch::Sender<Option<Session>>) {
        let end = self.host.shutdown.token();
        let prepared = async {
            fates::report(&self.host, leftovers).await;
            self.sweep().await;
        };
        tokio::select! {
            () = end.cancelled() => return,
            () = prepared => {}
        }
        let registrar = self.registrar();
        while !end.is_cancelled() {
            let tenure = tokio::select! {
                () = end.cancelled() => return,
                never = self.host.kept.mind(self.host.views.clone()) => match never {},
                tenure = registrar.register(|why| self.readiness.waiting("registration", why)) => tenure,
            };
            self.work_dir.forget_predecessors();
            self.readiness.ready("registration");
            let me = &tenure.session.me;
            tracing::info!(node = me.node, incarnation = me.incarnation, address = %self.address, "registered");
            sessions.send_replace(Some(tenure.session.clone()));
            self.serve_tenure(&tenure).await;
            if end.is_cancelled() {
                let lost = tenure.lost.cancelled();
                tokio::select! { () = lost => {}, () = until_drained(&self.host.options.drained, me) => {} }
                sessions.send_replace(None);
                self.give_back(&tenure).await;
                return;
            }
            sessions.send_replace(None);
            self.readiness.waiting("registration", "the lease is gone; registering anew");
            tracing::warn!(node = tenure.session.me.node, "the lease is gone; registering anew");
        }
    }

    fn registrar(&self) -> Registrar {
        let options = &self.host.options;
        let address = options.advertised(self.address);
        let node = NodeRecord {
            roles: options.roles.clone(),
            rest_address: options.rest_address.clone(),
            node_address: Some(address),
            slots: options.slots(),
            version: env!("CARGO_PKG_VERSION").into(),
            java: find_program(&options.host.java).ok().map(|path| path.display().to_string()),
            single_enable: options.single_enable,
            boot: self.work_dir.boot.clone(),
            started_at_ms: now_ms(),
            work_dir: Some(self.work_dir.id.clone()),
            stopping: false,
            extra: Default::default(),
        };
        Registrar {
            kv: self.host.kv.clone(),
            name: options.name.clone(),
            node,
            pace: Pace {
                ttl: options.lease,
                keep_alive: options.host.keep_alive,
                margin: options.host.lease_margin,
            },
            pipes: self.host.pipes.clone(),
            predecessors: self.work_dir.predecessors.clone(),
        }
    }

    /// Until the tenure is lost or the process stops, and nothing of its jobs runs any more.
    async fn serve_tenure(&self, tenure: &Tenure) {
        let agent = tokio::spawn(PackageAgent::new(self.host.clone(), tenure.clone()).run());
        let collector = tokio::spawn(leftovers::run(self.host.clone(), tenure.clone()));
        Claims::new(&self.host, tenure).run().await;
        for task in [agent, collector] {
            task.abort();
            // Aborted, or panicked, which was logged: either way it is over.
            let _ = task.await;
        }
    }

    async fn give_back(&self, tenure: &Tenure) {
        let revoked =
            tokio::time::timeout(LAST_WRITES, self.host.kv.lease_revoke(tenure.session.lease)).await;
        tenure.lost.cancel();
        match revoked {
            Ok(Ok(())) => tracing::info!(node = tenure.session.me.node, "registration given back"),
            _ => tracing::warn!("the lease was not given back and runs out by itself"),
        }
    }

    /// Puts the disk in order. What is still being created may go on.
    async fn sweep(&self) {
        let live = loop {
            match View::load(&*self.host.kv, Scope::packages()).await.map(|view| view.all::<UnitKey>()) {
                Ok(Ok(units)) => break units,
                Ok(Err(refusal)) => {
                    tracing::error!(%refusal, "the packages cannot be read; the disk is not swept");
                    return;
                }
                Err(error) => tracing::warn!(%error, "the packages cannot be read; trying again"),
            }
            sleep(STORE_RETRY).await;
        };
        let going: Vec<String> = live
            .into_iter()
            .filter(|(_, unit)| unit.state < UnitState::Removing)
            .map(|(_, unit)| unit.value.op)
            .collect();
        let report = self.host.on_disk(move |store| store.sweep(|op| going.iter().any(|o| o == op))).await;
        match report {
            Ok(report) => tracing::info!(?report, "swept"),
            Err(error) => tracing::error!(%error, "the disk cannot be swept"),
        }
    }
}
