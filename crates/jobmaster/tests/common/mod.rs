//! A little cluster in one process: a store in memory, server nodes, and the part of a dispatcher that places jobs.

#![allow(dead_code)]

pub mod flaky;
pub mod wishes;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use icp_store::peer::{self, Peer};
use jobmaster::guard::spec::AttemptDir;
use jobmaster::{HostConfig, Node, NodeOptions};
use meta_client::{Kv, MemKv, Stored};
use process_kit::{ByteSize, Shutdown};
use records::jobs::{Drive, drive, ownerless};
use records::keys::{JobKey, UnitKey};
use records::nodes::{cancel_drain, drain};
use records::packages::finish;
use records::record::{Exit, Job, JobSpec, JobState, NodeRef, PackageRef, UnitState};
use records::{JobId, Scope, UnitId, View, carry_out};
use serde_json::Value;
use tokio::time::{Instant, sleep};

// Not every test has jobs.
#[allow(unused_imports)]
pub use wishes::spec;

/// Every wait ends.
pub const BOUND: Duration = Duration::from_secs(40);
/// Pause between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);

pub struct Cluster {
    pub kv: Arc<MemKv>,
    pub dir: tempfile::TempDir,
    dispatcher: NodeRef,
    dispatcher_lease: i64,
    end: Shutdown,
}

pub struct TestNode {
    pub name: String,
    pub node: Node,
    pub shutdown: Shutdown,
    pub work_dir: PathBuf,
}

pub fn fake_java() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-java.sh").to_owned()
}

impl Cluster {
    pub async fn new() -> Self {
        let kv = Arc::new(MemKv::new());
        let lease = kv.grant(Duration::from_secs(3600)).id;
        let dispatcher = wishes::register_dispatcher(&*kv, lease).await.unwrap();
        let end = Shutdown::new();
        tokio::spawn(place_jobs(kv.clone(), end.clone()));
        Self { kv, dir: tempfile::tempdir().unwrap(), dispatcher, dispatcher_lease: lease, end }
    }

    pub fn options(&self, name: &str) -> NodeOptions {
        NodeOptions {
            name: name.into(),
            slots: 4,
            guard: vec![env!("CARGO_BIN_EXE_jobmaster-guard").into()],
            host: HostConfig {
                work_dir: self.dir.path().join(name),
                listen_node: "127.0.0.1:0".parse().unwrap(),
                java: fake_java(),
                min_free: ByteSize(0),
                cancel_grace: Duration::from_millis(500),
                stop_timeout: Duration::from_millis(500),
                ..HostConfig::default()
            },
            ..NodeOptions::default()
        }
    }

    pub async fn node(&self, name: &str) -> TestNode {
        self.node_with(self.options(name)).await
    }

    pub async fn node_with(&self, options: NodeOptions) -> TestNode {
        self.node_over(self.kv.clone(), options).await
    }

    pub async fn node_over(&self, kv: Arc<dyn Kv>, options: NodeOptions) -> TestNode {
        let (name, work_dir) = (options.name.clone(), options.host.work_dir.clone());
        let shutdown = Shutdown::new();
        let node = Node::start(kv, options, shutdown.clone()).await.unwrap();
        let mut session = node.session();
        let registered = session.wait_for(Option::is_some);
        tokio::time::timeout(BOUND, registered).await.expect("registered in time").unwrap();
        TestNode { name, node, shutdown, work_dir }
    }

    pub async fn view(&self, scope: Scope) -> View {
        View::load(&*self.kv, scope).await.unwrap()
    }

    /// Waits until the records say what is wanted.
    pub async fn until<T>(&self, what: &str, scope: Scope, mut look: impl FnMut(&View) -> Option<T>) -> T {
        let give_up = Instant::now() + BOUND;
        loop {
            let view = self.view(scope.clone()).await;
            if let Some(found) = look(&view) {
                return found;
            }
            if Instant::now() > give_up {
                let keys: Vec<String> =
                    view.snapshot().iter().map(|kv| format!("{:?} = {:?}", kv.key, kv.value)).collect();
                panic!("waited {BOUND:?} for {what}; the store holds\n{}", keys.join("\n"));
            }
            sleep(LOOK).await;
        }
    }

    pub async fn admit(&self, spec: JobSpec) -> JobId {
        wishes::admit(&*self.kv, &self.dispatcher, self.dispatcher_lease, &spec).await.unwrap()
    }

    pub async fn job(&self, id: &JobId) -> Stored<Job> {
        self.view(Scope::default().and_job(id)).await.get(&JobKey::new(id)).unwrap().expect("a job")
    }

    pub async fn until_job(&self, id: &JobId, what: &str, mut is: impl FnMut(&Job) -> bool) -> Job {
        let key = JobKey::new(id);
        let scope = Scope::default().and_job(id);
        let found = self.until(what, scope, |view| view.get(&key).unwrap().filter(|job| is(job)));
        found.await.value
    }

    pub async fn until_over(&self, id: &JobId) -> (JobState, Exit, Job) {
        let job = self.until_job(id, "the job's end", |job| job.state.is_terminal()).await;
        (job.state, job.exit.clone().unwrap(), job)
    }

    pub async fn until_running(&self, id: &JobId) -> Job {
        self.until_job(id, "RUNNING", |job| job.state == JobState::Running).await
    }

    pub async fn cancel(&self, id: &JobId) {
        wishes::cancel(&*self.kv, id).await.unwrap();
    }

    pub async fn drain(&self, node: &str) {
        carry_out(&*self.kv, &Scope::nodes(), |view| drain(view, node, 0)).await.unwrap();
    }

    pub async fn cancel_drain(&self, node: &str) {
        carry_out(&*self.kv, &Scope::nodes(), |view| cancel_drain(view, node)).await.unwrap();
    }

    pub async fn remove(&self, unit: &UnitId, force: bool) {
        wishes::remove(&*self.kv, unit, force).await.unwrap();
    }

    pub async fn until_absent(&self, unit: &UnitId) {
        let key = UnitKey::new(unit);
        self.until("the package's end", Scope::package(unit), |view| {
            view.get(&key).unwrap().is_none().then_some(())
        })
        .await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl TestNode {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.node.address())
    }

    pub async fn put(&self, unit: &UnitId, query: &str, files: &[(&str, &[u8])]) -> (u16, Value) {
        let files = files.iter().map(|(path, bytes)| {
            let chunk = Ok::<_, std::io::Error>(Bytes::copy_from_slice(bytes));
            ((*path).to_owned(), futures_util::stream::iter([chunk]))
        });
        let peer = Peer::new(peer::client(), self.node.address().to_string());
        peer.put_package(&unit.name, &unit.version, query, files.collect(), BOUND).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let answer = peer::client().get(self.url(path)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub async fn stop(&self) {
        assert_eq!(self.shutdown.finish(BOUND).await, Vec::<&str>::new(), "late at shutdown");
    }

    pub fn has(&self, unit: &UnitId, file: &str) -> bool {
        self.work_dir.join("icp").join(&unit.name).join(&unit.version).join(file).is_file()
    }
}

pub type Picture = BTreeMap<PathBuf, (u64, u32, (i64, i64), Vec<u8>)>;

/// All that a user could miss: inodes, modes, times of change, bytes.
pub fn picture(at: &Path) -> Picture {
    let metadata = at.symlink_metadata().unwrap();
    let mut found = Picture::new();
    let mut bytes = Vec::new();
    if metadata.is_dir() {
        for entry in std::fs::read_dir(at).unwrap() {
            found.extend(picture(&entry.unwrap().path()));
        }
    } else if metadata.is_file() {
        bytes = std::fs::read(at).unwrap();
    }
    let times = (metadata.mtime(), metadata.mtime_nsec());
    found.insert(at.into(), (metadata.ino(), metadata.mode(), times, bytes));
    found
}

/// Returns when the guard of a started attempt is gone: it holds the lock as long as it lives.
pub async fn until_guard_is_gone(dir: &AttemptDir) {
    let give_up = Instant::now() + BOUND;
    while dir.lock().is_err() {
        assert!(Instant::now() < give_up, "the guard does not end");
        sleep(LOOK).await;
    }
}

pub fn unit(name: &str) -> UnitId {
    UnitId::new(name, "1.0.0").unwrap()
}

/// Creates `app` from a node and answers its reference.
pub async fn deploy(cluster: &Cluster, node: &TestNode, name: &str, query: &str) -> PackageRef {
    let unit = unit(name);
    let (status, body) = node.put(&unit, query, &[("app.jar", b"not read"), ("lib/dep.jar", b"dep")]).await;
    assert_eq!(status, 200, "{body}");
    let op = cluster.view(Scope::package(&unit)).await.get(&UnitKey::new(&unit)).unwrap().unwrap().op.clone();
    PackageRef { unit, op }
}

/// What dispatchers do: places ownerless jobs, finishes removals.
async fn place_jobs(kv: Arc<MemKv>, end: Shutdown) {
    let token = end.token();
    let mut seen: BTreeMap<JobId, (i64, Instant)> = BTreeMap::new();
    while !token.is_cancelled() {
        let view = View::load(&*kv, Scope::jobs()).await.unwrap();
        for (job, found) in ownerless(&view).unwrap() {
            let (revision, since) = seen.entry(job.clone()).or_insert((0, Instant::now()));
            if *revision != found.mod_revision {
                (*revision, *since) = (found.mod_revision, Instant::now());
            }
            let waited_ms = since.elapsed().as_millis() as u64;
            let wish = Drive { job, waited_ms, give_up_on: None, retention: 0, now_ms: 0 };
            let _ = carry_out(&*kv, &Scope::jobs(), |view| drive(view, &wish)).await;
        }
        let view = View::load(&*kv, Scope::packages()).await.unwrap();
        for (key, found) in view.all::<UnitKey>().unwrap() {
            if found.state < UnitState::Removing {
                continue;
            }
            let mut scope = Scope::package(&key.unit);
            if let Some(digest) = &found.manifest {
                scope = scope.and_manifest(digest);
            }
            let _ = carry_out(&*kv, &scope, |view| finish(view, &key.unit, &found.op)).await;
        }
        sleep(LOOK).await;
    }
}
