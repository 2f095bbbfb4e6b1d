//! Dispatchers over the store in memory, and server nodes that only pretend to run jobs.
#![allow(dead_code)]

pub mod fake_node;
pub mod http;

use std::sync::Arc;
use std::time::Duration;

use dispatcher::{Dispatcher, DispatcherOptions};
use jobmaster::HostConfig;
use meta_client::Kv;
use meta_client::mem::MemKv;
use process_kit::Shutdown;

pub use fake_node::FakeNode;
pub use http::{Answer, multipart};

/// Longest wait of any test for any condition.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Some dispatchers on one store.
pub struct Cluster {
    pub kv: MemKv,
    pub dispatchers: Vec<Dispatcher>,
    pub shutdown: Shutdown,
    spool: tempfile::TempDir,
}

impl Cluster {
    /// Starts dispatchers `d1..` that host no JobMasters.
    pub async fn start(count: usize) -> Self {
        let kv = MemKv::new();
        let mut cluster = Self::on(kv.clone(), Vec::new());
        for _ in 0..count {
            cluster.add_dispatcher(Arc::new(kv.clone())).await;
        }
        cluster
    }

    fn on(kv: MemKv, dispatchers: Vec<Dispatcher>) -> Self {
        Self { kv, dispatchers, shutdown: Shutdown::new(), spool: tempfile::tempdir().unwrap() }
    }

    /// Adds a dispatcher that sees the store through `kv`.
    pub async fn add_dispatcher(&mut self, kv: Arc<dyn Kv>) {
        self.add_dispatcher_with(kv, |_| ()).await;
    }

    /// Adds a dispatcher with other options.
    pub async fn add_dispatcher_with(
        &mut self,
        kv: Arc<dyn Kv>,
        change: impl FnOnce(&mut DispatcherOptions),
    ) {
        let number = self.dispatchers.len() + 1;
        let mut options = DispatcherOptions {
            node_name: format!("d{number}"),
            listen_rest: ([127, 0, 0, 1], 0).into(),
            web_tmpdir: self.spool.path().join(format!("d{number}")),
            single_enable: true,
            icp_grace: Duration::from_millis(200),
            ..DispatcherOptions::default()
        };
        change(&mut options);
        let dispatcher =
            Dispatcher::start(kv, options, Default::default(), self.shutdown.clone()).await.unwrap();
        let mut session = dispatcher.session.clone();
        tokio::time::timeout(PATIENCE, session.wait_for(Option::is_some)).await.unwrap().unwrap();
        self.dispatchers.push(dispatcher);
    }

    /// Adds a dispatcher that hosts JobMasters, in a directory of its own. Packages are real there, only Java is missing.
    pub async fn host(&mut self, name: &str) -> tempfile::TempDir {
        self.host_with(name, |_| {}).await
    }

    pub async fn host_with(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut DispatcherOptions),
    ) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut options = DispatcherOptions {
            node_name: name.into(),
            listen_rest: ([127, 0, 0, 1], 0).into(),
            web_tmpdir: directory.path().join("spool"),
            slots: 2,
            icp_grace: Duration::from_millis(200),
            ..DispatcherOptions::default()
        };
        change(&mut options);
        let host = HostConfig {
            work_dir: directory.path().join("work"),
            listen_node: ([127, 0, 0, 1], 0).into(),
            java: "/no/such/java".into(),
            ..HostConfig::default()
        };
        assert!(!options.single_enable, "as before the split by default");
        let kv = Arc::new(self.kv.clone());
        let dispatcher = Dispatcher::start(kv, options, host, self.shutdown.clone()).await.unwrap();
        let mut session = dispatcher.session.clone();
        tokio::time::timeout(PATIENCE, session.wait_for(Option::is_some)).await.unwrap().unwrap();
        self.dispatchers.push(dispatcher);
        directory
    }

    /// Where a dispatcher keeps uploads.
    pub fn spool_of(&self, dispatcher: usize) -> std::path::PathBuf {
        self.spool.path().join(format!("d{}", dispatcher + 1))
    }

    /// Starts a server node.
    pub async fn node(&self, name: &str, slots: u32) -> FakeNode {
        FakeNode::start(self.kv.clone(), name, slots, self.shutdown.clone()).await
    }

    /// Starts a server node that never claims a job.
    pub async fn deaf_node(&self, name: &str, slots: u32) -> FakeNode {
        FakeNode::deaf(self.kv.clone(), name, slots, self.shutdown.clone()).await
    }

    /// Uploads examples/hello.jar through the first dispatcher; answers the jar id.
    pub async fn upload(&self) -> String {
        self.upload_as("hello.jar", &hello_jar()).await
    }

    /// Uploads some bytes.
    pub async fn upload_as(&self, name: &str, bytes: &[u8]) -> String {
        let answer =
            self.post_multipart(0, "/jars/upload", &[http::Part::file("jarfile", name, bytes)]).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let path = answer.json["filename"].as_str().unwrap().to_owned();
        path.rsplit('/').next().unwrap().to_owned()
    }

    pub async fn get(&self, dispatcher: usize, path: &str) -> Answer {
        self.send(dispatcher, "GET", path, &[], Vec::new()).await
    }

    pub async fn delete(&self, dispatcher: usize, path: &str) -> Answer {
        self.send(dispatcher, "DELETE", path, &[], Vec::new()).await
    }

    pub async fn post(&self, dispatcher: usize, path: &str, body: &str) -> Answer {
        let headers = [("content-type", "application/json")];
        self.send(dispatcher, "POST", path, &headers, body.as_bytes().to_vec()).await
    }

    pub async fn post_multipart(&self, dispatcher: usize, path: &str, parts: &[http::Part<'_>]) -> Answer {
        let (content_type, body) = multipart(parts);
        self.send(dispatcher, "POST", path, &[("content-type", &content_type)], body).await
    }

    pub async fn send(
        &self,
        dispatcher: usize,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        http::send(&self.dispatchers[dispatcher].service, method, path, headers, body).await
    }

    /// Polls a run until it is completed.
    pub async fn completed(&self, dispatcher: usize, trigger: &str) -> Answer {
        testkit::eventually_async(PATIENCE, "the run completes", || async {
            let answer = self.get(dispatcher, &format!("/run-async/{trigger}")).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            if answer.json["status"]["id"] == "COMPLETED" {
                return Ok(answer);
            }
            let job = answer.json["run"]["jobid"].as_str().unwrap_or_default();
            Err(format!("{}: {}", answer.text, self.record(&format!("/job/{job}"))))
        })
        .await
    }

    /// Polls until `look` finds something.
    pub async fn until<T, F: Future<Output = Option<T>>>(&self, look: impl Fn() -> F) -> T {
        let look = || async { look().await.ok_or_else(|| "not yet".to_owned()) };
        testkit::eventually_async(PATIENCE, "what is looked for comes", look).await
    }

    /// A record's text.
    pub fn record(&self, key: &str) -> String {
        let snapshot = self.kv.snapshot();
        let found = snapshot.get(key.as_bytes());
        found.map_or_else(String::new, |kv| String::from_utf8_lossy(&kv.value).into_owned())
    }

    /// Number of keys with a prefix.
    pub fn count(&self, prefix: &str) -> usize {
        self.kv.snapshot().scan(prefix.as_bytes()).count()
    }

    /// Ends the dispatchers and nodes.
    pub async fn stop(self) {
        self.shutdown.finish(Duration::from_secs(5)).await;
    }
}

/// The example's JAR.
pub fn hello_jar() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.jar")).unwrap()
}
