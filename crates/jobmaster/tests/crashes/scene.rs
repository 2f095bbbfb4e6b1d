//! Two nodes, one operation on a package, and how it stands with it afterwards: in the store and on the disks.

use std::sync::Arc;
use std::time::Duration;

use jobmaster::Node;
use process_kit::Shutdown;
use records::keys::UnitKey;
use records::packages::{coordinator_lost, dead_copy};
use records::record::PackageRef;
use records::{JobId, Scope, View, carry_out};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::client;
use crate::common::{Cluster, TestNode, spec, unit};
use crate::judge::{self, BOUND, Disk, FILES};
use crate::points::Operation::{
    self, Create, CreateListed, OnDemand, Register, RegisterUnequal, Remove, RemoveByForce, RemovePinned,
};
use crate::points::Who::{self, First, Leader, Second};
use crate::trap::TrapKv;

/// A node in a runtime of its own, so that it can be killed without its doing anything about it.
pub struct Party {
    pub kv: Arc<TrapKv>,
    runtime: Option<Runtime>,
    pub node: TestNode,
}

impl Party {
    pub async fn start(cluster: &Cluster, name: &str) -> Self {
        let kv = Arc::new(TrapKv::new(cluster.kv.clone()));
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = cluster.options(name);
        let (shutdown, work_dir) = (Shutdown::new(), options.host.work_dir.clone());
        let starting = async {
            loop {
                // What a killed node still had in the hands of the disk holds the directory for a moment.
                match runtime.spawn(Node::start(kv.clone(), options.clone(), shutdown.clone())).await.unwrap()
                {
                    Ok(node) => return node,
                    Err(jobmaster::NodeError::InUse { .. }) => sleep(Duration::from_millis(5)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let node = timeout(BOUND, starting).await.expect("started in time");
        let mut session = node.session();
        timeout(BOUND, session.wait_for(Option::is_some)).await.expect("registered in time").unwrap();
        let node = TestNode { name: name.into(), node, shutdown, work_dir };
        Self { kv, runtime: Some(runtime), node }
    }

    pub fn address(&self) -> String {
        self.node.node.address().to_string()
    }

    pub fn disk(&self) -> Disk<'_> {
        Disk { node: &self.node.name, work_dir: &self.node.work_dir }
    }

    /// Dies between two instructions; its lease runs out a moment later.
    pub fn kill(&mut self, cluster: &Cluster) {
        let lease = self.node.node.session().borrow().as_ref().map(|session| session.lease);
        self.kv.die();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if let Some(lease) = lease {
            cluster.kv.revoke(lease);
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.kv.die();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub struct Scene {
    pub cluster: Cluster,
    pub first: Party,
    pub second: Party,
    /// A job that pins the package and waits.
    pinned: Option<JobId>,
}

impl Scene {
    pub async fn new(operation: Operation) -> Self {
        let cluster = Cluster::new().await;
        let (first, second) = (Party::start(&cluster, "a").await, Party::start(&cluster, "b").await);
        let app = unit("app");
        match operation {
            Create | CreateListed => {}
            Register => [&first, &second].iter().for_each(|party| party.disk().lay(&app, &FILES)),
            RegisterUnequal => {
                first.disk().lay(&app, &FILES);
                second.disk().lay(&app, &FILES[..1]);
            }
            Remove | RemovePinned | RemoveByForce => {
                assert_eq!(client::create(app, first.address()).await, Some(200));
            }
            OnDemand => {
                assert_eq!(client::create_on(app, first.address(), "a").await, Some(200));
            }
        }
        Self { cluster, first, second, pinned: None }
    }

    pub fn party(&mut self, who: Who) -> &mut Party {
        match who {
            First => &mut self.first,
            Second | Leader => &mut self.second,
        }
    }

    /// Asks for the operation; whoever answers, or not.
    pub async fn ask(&mut self, operation: Operation) {
        let app = unit("app");
        match operation {
            Create => drop(tokio::spawn(client::create(app, self.first.address()))),
            CreateListed => drop(tokio::spawn(client::create_listed(app, self.first.address()))),
            Register | RegisterUnequal => {
                drop(tokio::spawn(client::post(client::of(&app, &self.first.address(), "/register"))));
            }
            OnDemand => self.pull(),
            Remove => self.cluster.remove(&app, false).await,
            RemoveByForce => self.cluster.remove(&app, true).await,
            RemovePinned => {
                let op = self.unit_op().await.expect("it is there");
                // No node has so many slots: the job waits, and may start here as long as it waits.
                let mut spec = spec(&PackageRef { unit: app.clone(), op }, "finish", &[]);
                spec.parallelism = 1000;
                let job = self.cluster.admit(spec).await;
                self.cluster.remove(&app, false).await;
                self.pinned = Some(job);
            }
        }
    }

    /// The second node is asked to have it.
    pub fn pull(&self) {
        drop(tokio::spawn(client::post(client::of(&unit("app"), &self.second.address(), "/pull"))));
    }

    /// The job that pins the package is cancelled.
    pub async fn unpin(&mut self) {
        if let Some(job) = self.pinned.take() {
            self.cluster.cancel(&job).await;
        }
    }

    pub async fn create_again(&self) -> Result<(), String> {
        client::create_again(&unit("app"), &self.first.address()).await
    }

    async fn unit_op(&self) -> Option<String> {
        let view = self.cluster.view(Scope::package(&unit("app"))).await;
        view.get(&UnitKey::new(&unit("app"))).unwrap().map(|found| found.op.clone())
    }

    pub fn is_settled(&self) -> bool {
        judge::is_settled(&self.view(), &unit("app"))
    }

    /// What a dispatcher does after its grace. A create that a node can go on with is left to it.
    async fn reconcile(&self, undo: bool) {
        let (app, kv) = (unit("app"), &*self.cluster.kv);
        let scope = Scope::package(&app);
        if let Some(op) = self.unit_op().await.filter(|_| undo) {
            let _ = carry_out(kv, &scope, |view| coordinator_lost(view, &app, &op)).await;
        }
        for node in ["a", "b"] {
            let _ = carry_out(kv, &scope, |view| dead_copy(view, &app, node)).await;
        }
    }

    /// Reconciles until `is` says so.
    pub async fn until(&self, what: &str, undo: bool, is: impl Fn() -> bool) -> Result<(), String> {
        let look = async {
            while !is() {
                self.reconcile(undo).await;
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(BOUND, look)
            .await
            .map_err(|_| format!("not {what}:\n{}", judge::told(&self.view(), &self.disks())))
    }

    fn view(&self) -> View {
        self.cluster.kv.snapshot().into()
    }

    fn disks(&self) -> [Disk<'_>; 2] {
        [&self.first, &self.second].map(Party::disk)
    }

    pub fn is_everywhere(&self) -> bool {
        judge::is_everywhere(&self.view(), &unit("app"), &self.disks())
    }

    pub fn is_nowhere(&self, of: Operation) -> bool {
        judge::is_nowhere(&self.view(), of, &self.disks())
    }
}
