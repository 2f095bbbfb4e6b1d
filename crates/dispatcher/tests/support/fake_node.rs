//! A server node that takes packages and claims jobs through the planners, as a real one does, and pretends to run
//! them. What a job does is said by its entry class.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{Multipart, Path, Query, State};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures_util::StreamExt;
use http::StatusCode;
use meta_client::mem::MemKv;
use meta_client::{Kv, TypedKey, WatchRequest};
use meta_types::{KeyRange, LeaseId};
use parking_lot::Mutex;
use process_kit::Shutdown;
use records::jobs::{Ending, MainFailed, claim, claimable, created, ended, main_failed, start_attempt};
use records::keys::{CopyKey, JobCancelKey, JobKey, JobOwnerKey, UnitKey};
use records::nodes::{Register, register};
use records::packages::{BeginUse, begin_use};
use records::record::{
    Copy, CopyState, Exit, Job, JobState, Node, NodeRef, Policy, Role, Unit, UnitOrigin, UnitState,
};
use records::{JobId, Scope, Steps, UnitId, carry_out};
use serde_json::{Value, json};

/// The node; clones share it.
#[derive(Clone)]
pub struct FakeNode(Arc<Inner>);

struct Inner {
    kv: MemKv,
    me: NodeRef,
    lease: LeaseId,
    /// How often main() was started, by job.
    starts: Mutex<BTreeMap<JobId, usize>>,
    puts: AtomicUsize,
    /// What the next PUT of a package answers instead.
    refuse: Mutex<Option<(u16, String)>>,
}

impl FakeNode {
    /// A node that claims what is placed on it.
    pub async fn start(kv: MemKv, name: &str, slots: u32, shutdown: Shutdown) -> Self {
        let node = Self::deaf(kv, name, slots, shutdown.clone()).await;
        let claiming = node.clone();
        let end = shutdown.token();
        tokio::spawn(async move {
            tokio::select! { () = end.cancelled() => (), () = claiming.claim_jobs() => () }
        });
        node
    }

    /// A node that takes packages and never claims a job.
    pub async fn deaf(kv: MemKv, name: &str, slots: u32, shutdown: Shutdown) -> Self {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lease = kv.grant(Duration::from_secs(15)).id;
        let node = Node {
            roles: vec![Role::Jobmaster],
            rest_address: None,
            node_address: Some(address),
            slots,
            version: "test".into(),
            java: None,
            single_enable: None,
            boot: format!("boot of {name} under {lease}"),
            started_at_ms: 0,
            work_dir: None,
            stopping: false,
            extra: Default::default(),
        };
        let request = Register { name: name.into(), node, lease };
        let me = carry_out(&kv, &Scope::nodes(), |view| register(view, &request)).await.unwrap().answer;
        let inner = Inner {
            kv,
            me,
            lease,
            starts: Mutex::default(),
            puts: AtomicUsize::new(0),
            refuse: Mutex::default(),
        };
        let node = Self(Arc::new(inner));
        let app = Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/packages/{name}/{version}", put(put_package))
            .route("/packages/{name}/{version}/register", post(register_package))
            .route("/packages", get(|| async { Json(json!([])) }))
            .route("/jobs/{job}/attempts/{attempt}/{stream}", get(output))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(node.clone());
        let end = shutdown.clone();
        tokio::spawn(async move {
            let _ = axum::serve(listener, app).with_graceful_shutdown(async move { end.begun().await }).await;
        });
        node
    }

    pub fn me(&self) -> NodeRef {
        self.0.me.clone()
    }

    /// How often main() was started here, all jobs together.
    pub fn starts(&self) -> usize {
        self.0.starts.lock().values().sum()
    }

    /// How many packages were sent here.
    pub fn puts(&self) -> usize {
        self.0.puts.load(Ordering::SeqCst)
    }

    /// The next PUT of a package is refused.
    pub fn refuse_next(&self, status: u16, text: &str) {
        *self.0.refuse.lock() = Some((status, text.to_owned()));
    }

    /// The node is gone: its lease has run out.
    pub fn die(&self) {
        self.0.kv.revoke(self.0.lease);
    }

    async fn claim_jobs(&self) {
        let kv = &self.0.kv;
        loop {
            let range = KeyRange::between("/job", "/job0");
            let request = WatchRequest { range, ..WatchRequest::default() };
            let mut watcher = kv.watch(request).await.unwrap();
            let view = records::View::load(kv, Scope::jobs()).await.unwrap();
            for (job, _) in claimable(&view, &self.0.me).unwrap() {
                let (me, lease) = (&self.0.me, self.0.lease);
                let claimed = carry_out(kv, &Scope::jobs(), |view| claim(view, &job, me, lease)).await;
                let Ok(claimed) = claimed else { continue };
                let node = self.clone();
                tokio::spawn(async move { node.run(job, claimed.answer).await });
            }
            let _ = tokio::time::timeout(Duration::from_millis(500), watcher.batches.next()).await;
        }
    }

    async fn run(&self, id: JobId, epoch: i64) {
        let kv = &self.0.kv;
        let view = records::View::load(kv, Scope::default().and_job(&id)).await.unwrap();
        let job = view.get(&JobKey::new(&id)).unwrap().unwrap().value;
        self.begin_uses(&id, &job, epoch).await;
        let packages: Vec<_> = job.packages().cloned().collect();
        let scope = Scope::start(&id, &packages, &self.0.me.node);
        if carry_out(kv, &scope, |view| start_attempt(view, &id, epoch, 1)).await.is_err() {
            self.end(&id, epoch, JobState::Canceled, false, "cancelled before it was started").await;
            return;
        }
        *self.0.starts.lock().entry(id.clone()).or_default() += 1;
        match job.spec.entry_class.as_deref() {
            Some("Throw" | "ThrowJob") => {
                self.end(&id, epoch, JobState::Failed, false, "boom: main threw").await;
            }
            Some("java.lang.String") => {
                let text = "Error: Main method not found in class java.lang.String";
                self.end(&id, epoch, JobState::Failed, false, text).await;
            }
            Some("NoJob") => {
                let text = "No jobs included in application.";
                self.end(&id, epoch, JobState::Failed, false, text).await;
            }
            Some("Block") => self.until_cancelled(&id, epoch).await,
            // Cannot be killed.
            Some("Stuck") => {}
            class => {
                let scope = Scope::default().and_job(&id);
                if carry_out(kv, &scope, |view| created(view, &id, epoch, 2)).await.is_err() {
                    self.end(&id, epoch, JobState::Canceled, false, "").await;
                } else if matches!(class, Some("Forever" | "ForeverJob")) {
                    self.until_cancelled(&id, epoch).await;
                } else if class == Some("FailTask") {
                    self.end(&id, epoch, JobState::Failed, true, "a task failed").await;
                } else {
                    self.end(&id, epoch, JobState::Finished, true, "").await;
                }
            }
        }
    }

    async fn begin_uses(&self, id: &JobId, job: &Job, epoch: i64) {
        for package in job.packages() {
            let wish = BeginUse {
                unit: package.unit.clone(),
                op: package.op.clone(),
                me: self.0.me.clone(),
                lease: self.0.lease,
                holder: id.to_string(),
                job: Some(id.clone()),
                epoch: Some(epoch),
                attempt: 1,
                now_ms: 0,
            };
            self.ensure_copy(&package.unit, &package.op).await;
            let scope = Scope::package(&package.unit).and_key(&JobOwnerKey::new(id));
            carry_out(&self.0.kv, &scope, |view| begin_use(view, &wish)).await.unwrap();
        }
    }

    /// As if the package had been fetched from a peer.
    async fn ensure_copy(&self, unit: &UnitId, op: &str) {
        let key = CopyKey::new(unit, &self.0.me.node);
        let copy = self.copy(op);
        let scope = Scope::default().and_key(&key);
        carry_out(&self.0.kv, &scope, |view| match view.get(&key)? {
            Some(_) => Ok(records::Plan::already(())),
            None => Ok(Steps::new().absent(&key).put(&key, &copy).answer(())),
        })
        .await
        .unwrap();
    }

    fn copy(&self, op: &str) -> Copy {
        Copy {
            op: op.into(),
            state: CopyState::Present,
            incarnation: self.0.me.incarnation,
            bytes_done: 0,
            digest: None,
            uses: 0,
            error: None,
            disk_full: false,
            extra: Default::default(),
        }
    }

    async fn until_cancelled(&self, id: &JobId, epoch: i64) {
        let range = KeyRange::one(JobCancelKey::new(id).encode());
        // From the beginning: it may have come before.
        let request = WatchRequest { range, start_revision: 1, prev_kv: false };
        let mut watcher = self.0.kv.watch(request).await.unwrap();
        while let Some(Ok(batch)) = watcher.batches.next().await {
            if !batch.events.is_empty() {
                return self.end(id, epoch, JobState::Canceled, false, "killed").await;
            }
        }
    }

    async fn end(&self, id: &JobId, epoch: i64, state: JobState, created: bool, text: &str) {
        let exit = Exit { code: Some(1), signal: None, class: None, text: text.into() };
        let ending = Ending { state, exit, created, retention: 0, now_ms: 3 };
        let scope = Scope::default().and_job(id);
        if state == JobState::Failed {
            let wish = MainFailed { ending, ran_ms: 0, dice: 0 };
            let _ = carry_out(&self.0.kv, &scope, |view| main_failed(view, id, epoch, &wish)).await;
            return;
        }
        let _ = carry_out(&self.0.kv, &scope, |view| ended(view, id, epoch, &ending)).await;
    }
}

async fn put_package(
    State(node): State<FakeNode>,
    Path((name, version)): Path<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    mut parts: Multipart,
) -> (StatusCode, Json<Value>) {
    let mut bytes = 0;
    let mut files = 0;
    while let Some(part) = parts.next_field().await.unwrap() {
        files += 1;
        bytes += part.bytes().await.unwrap().len() as u64;
    }
    node.0.puts.fetch_add(1, Ordering::SeqCst);
    if let Some((status, text)) = node.0.refuse.lock().take() {
        return (StatusCode::from_u16(status).unwrap(), Json(json!({ "errors": [text] })));
    }
    let unit = UnitId::new(&name, &version).unwrap();
    let op = format!("{:032x}", rand::random::<u128>());
    let record = Unit {
        op: op.clone(),
        state: UnitState::Ready,
        origin: match query["origin"].as_str() {
            "jar" => UnitOrigin::Jar,
            "private" => UnitOrigin::Private,
            _ => UnitOrigin::Icp,
        },
        coordinator: node.me(),
        epoch: 1,
        manifest: None,
        uploading: false,
        bytes,
        files,
        policy: Policy::Copies(1),
        targets: vec![node.me().node],
        error: None,
        aborted: false,
        request: None,
        created_at_ms: 0,
        from: None,
        extra: Default::default(),
    };
    let (key, copy_key) = (UnitKey::new(&unit), CopyKey::new(&unit, &node.me().node));
    let copy = node.copy(&op);
    let done = carry_out(&node.0.kv, &Scope::package(&unit), |_| {
        Ok(Steps::new().absent(&key).put(&key, &record).put(&copy_key, &copy).answer(()))
    })
    .await;
    done.unwrap();
    (StatusCode::OK, Json(json!({ "name": name, "version": version, "status": "READY" })))
}

/// Answers what it was asked, as if the files of the nodes differed.
async fn register_package(
    Path((name, version)): Path<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
) -> (StatusCode, Json<Value>) {
    let row = json!({ "node": "n1", "file": format!("{name}@{version}"), "state": "DIFFERENT" });
    let answer = json!({ "errors": ["they differ"], "reason": "NOT_EQUAL", "rows": [row], "asked": query });
    (StatusCode::CONFLICT, Json(answer))
}

async fn output(Path((job, attempt, stream)): Path<(String, u32, String)>) -> String {
    format!("{stream} of attempt {attempt} of {job}\n")
}
