//! Two nodes, one operation on a package, and how it stands with it afterwards: in the store and on the disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::iter;
use icp_store::Digest;
use icp_store::peer::{self, Peer};
use jobmaster::Node;
use process_kit::Shutdown;
use records::keys::{CopyKey, UnitKey};
use records::packages::{coordinator_lost, dead_copy};
use records::record::{CopyState, PackageRef, UnitState};
use records::{JobId, Scope, carry_out, nodes};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use Operation::{
    Create, CreateListed, OnDemand, Register, RegisterUnequal, Remove, RemoveByForce, RemovePinned,
};
use Who::{First, Leader, Second};

use crate::common::{Cluster, TestNode, spec, unit};
use crate::trap::TrapKv;

/// Every wait ends.
pub const BOUND: Duration = Duration::from_secs(120);
const FILES: [(&str, &str); 2] = [("app.jar", "not read"), ("lib/dep.jar", "dep")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    /// The list of the files first, then the files that no node has.
    CreateListed,
    Register,
    /// The nodes hold different files.
    RegisterUnequal,
    Remove,
    /// A job pins the package for a while.
    RemovePinned,
    RemoveByForce,
    /// The package is on the first node, and the second is asked to have it.
    OnDemand,
}

/// The first node coordinates; the second is a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    First,
    Second,
    Leader,
}

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

fn root(node: &TestNode) -> PathBuf {
    node.work_dir.join("icp/app/1.0.0")
}

fn lay(node: &TestNode, files: &[(&str, &str)]) {
    for (path, bytes) in files {
        let at = root(node).join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, bytes).unwrap();
    }
}

async fn create(address: String) -> Option<u16> {
    let files = FILES
        .map(|(path, bytes)| (path.to_owned(), iter([Ok::<_, std::io::Error>(bytes::Bytes::from(bytes))])));
    let sent = Peer::new(peer::client(), address)
        .put_package("app", "1.0.0", "nodes=all", files.into(), BOUND)
        .await;
    sent.ok().map(|(status, _)| status)
}

/// A client that lists the files, sends what is missing, and does not come back.
async fn create_listed(node: String) -> Option<()> {
    let files: Vec<_> = FILES
        .iter()
        .map(|(path, bytes)| json!({ "path": path, "size": bytes.len(), "blake3": Digest::of(bytes.as_bytes()) }))
        .collect();
    let (client, unit) = (peer::client(), format!("{node}/packages/app/1.0.0"));
    let begun = client.post(&unit).json(&json!({ "files": files })).timeout(BOUND).send().await.ok()?;
    let begun: Value = begun.json().await.ok()?;
    let op = begun["op"].as_str()?;
    for (_, bytes) in FILES {
        let file = format!("{unit}/files/{}?op={op}&offset=0", Digest::of(bytes.as_bytes()));
        client.put(file).body(bytes).timeout(BOUND).send().await.ok()?;
    }
    Some(())
}

pub async fn post(url: String) -> Option<u16> {
    peer::client().post(url).timeout(BOUND).send().await.ok().map(|answer| answer.status().as_u16())
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
        match operation {
            Create | CreateListed => {}
            Register => [&first, &second].iter().for_each(|party| lay(&party.node, &FILES)),
            RegisterUnequal => {
                lay(&first.node, &FILES);
                lay(&second.node, &FILES[..1]);
            }
            Remove | RemovePinned | RemoveByForce => {
                assert_eq!(create(first.node.node.address().to_string()).await, Some(200));
            }
            OnDemand => {
                let (status, body) = first
                    .node
                    .put(&unit("app"), "nodes=a", &[("app.jar", b"not read"), ("lib/dep.jar", b"dep")])
                    .await;
                assert_eq!(status, 200, "{body}");
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
            Create => drop(tokio::spawn(create(self.first.node.node.address().to_string()))),
            CreateListed => drop(tokio::spawn(create_listed(self.first.node.url("")))),
            Register | RegisterUnequal => {
                drop(tokio::spawn(post(self.first.node.url("/packages/app/1.0.0/register"))));
            }
            OnDemand => drop(tokio::spawn(post(self.second.node.url("/packages/app/1.0.0/pull")))),
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

    /// The job that pins the package is cancelled.
    pub async fn unpin(&mut self) {
        if let Some(job) = self.pinned.take() {
            self.cluster.cancel(&job).await;
        }
    }

    /// The client tries again, as long as the store is away.
    pub async fn create_again(&self) -> Result<(), String> {
        let address = || self.first.node.node.address().to_string();
        let trying = async {
            loop {
                match create(address()).await {
                    Some(200) => return Ok(()),
                    Some(503) | None => sleep(Duration::from_millis(50)).await,
                    Some(other) => return Err(format!("the next try is answered {other}")),
                }
            }
        };
        timeout(BOUND, trying).await.map_err(|_| "the next try does not end".to_owned())?
    }

    async fn unit_op(&self) -> Option<String> {
        let view = self.cluster.view(Scope::package(&unit("app"))).await;
        view.get(&UnitKey::new(&unit("app"))).unwrap().map(|found| found.op.clone())
    }

    /// Nothing goes on with the package: it is gone, or READY.
    pub async fn is_settled(&self) -> bool {
        let view = self.cluster.view(Scope::package(&unit("app"))).await;
        view.get(&UnitKey::new(&unit("app"))).unwrap().is_none_or(|found| found.state == UnitState::Ready)
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
    pub async fn until(&self, what: &str, undo: bool, is: impl AsyncFn() -> bool) -> Result<(), String> {
        let look = async {
            while !is().await {
                self.reconcile(undo).await;
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(BOUND, look).await.map_err(|_| {
            let keys: Vec<String> = self
                .cluster
                .kv
                .snapshot()
                .iter()
                .map(|kv| format!("{:?} = {:?}", kv.key, kv.value))
                .collect();
            let disks = [&self.first, &self.second].map(|party| tree(&party.node.work_dir));
            format!("not {what}:\n{}\n{disks:#?}", keys.join("\n"))
        })
    }

    pub async fn is_everywhere(&self) -> bool {
        let app = unit("app");
        let view = self.cluster.view(Scope::package(&app)).await;
        let Some(found) = view.get(&UnitKey::new(&app)).unwrap() else { return false };
        let holds = |party: &&Party| {
            let row = view.get(&CopyKey::new(&app, &party.node.name)).unwrap();
            let now = nodes::current(&view, &party.node.name).unwrap();
            let whole = FILES.iter().all(|(path, bytes)| {
                fs::read_to_string(root(&party.node).join(path)).is_ok_and(|text| text == *bytes)
            });
            let says = row.is_some_and(|row| {
                row.state == CopyState::Present && now.is_some_and(|now| now.incarnation == row.incarnation)
            });
            whole && says && left_over(&party.node, 1).is_empty()
        };
        found.state == UnitState::Ready && [&self.first, &self.second].iter().all(holds)
    }

    pub async fn is_nowhere(&self, of: Operation) -> bool {
        let records = self.cluster.kv.snapshot().scan(b"/icp/").count();
        let clean = |party: &&Party| {
            let files = tree(&party.node.work_dir.join("icp"));
            let kept = match of {
                Register => files.iter().filter(|path| path.ends_with(".jar")).count() == 2,
                RegisterUnequal => !files.is_empty(),
                _ => !files.iter().any(|path| path.ends_with(".jar")),
            };
            kept && left_over(&party.node, 0).is_empty()
        };
        records == 0 && [&self.first, &self.second].iter().all(clean)
    }
}

fn tree(at: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(tree(&path)) } else { found.push(path.display().to_string()) }
    }
    found
}

/// What is on a node's disk beside its packages.
fn left_over(node: &TestNode, packages: usize) -> Vec<String> {
    let store = node.work_dir.join("icp-store");
    let below = |dir: &str| fs::read_dir(store.join(dir)).into_iter().flatten().flatten().map(|e| e.path());
    let descriptors: Vec<_> = below("descriptors").collect();
    let tentative = descriptors
        .iter()
        .filter(|at| fs::read_to_string(at).is_ok_and(|text| text.contains("\"tentative\":true")));
    let mut left: Vec<String> = tentative.map(|at| at.display().to_string()).collect();
    left.extend(below("staging").chain(below("trash")).map(|at| at.display().to_string()));
    if descriptors.len() != packages {
        left.push(format!("{} descriptors", descriptors.len()));
    }
    left
}
