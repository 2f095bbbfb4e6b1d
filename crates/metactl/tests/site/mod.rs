//! A whole site in one process: a replica, a dispatcher, server nodes, and the operator's tool as a process.
#![allow(dead_code)]

#[path = "../lone/mod.rs"]
mod lone;

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use dispatcher::{Dispatcher, DispatcherOptions};
use jobmaster::{HostConfig, Node, NodeOptions};
use meta_client::{EtcdKv, Kv};
use meta_replica::Replica;
use process_kit::{ByteSize, Shutdown};
use records::{Scope, Steps, View, carry_out, keys::UnitKey, record::UnitState};
use serde_json::Value;

/// Longest wait for any condition.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Site {
    pub dir: tempfile::TempDir,
    pub replica: Replica,
    pub kv: Arc<dyn Kv>,
    pub dispatcher: Dispatcher,
    pub shutdown: Shutdown,
}

/// What a command did.
#[derive(Debug)]
pub struct Did {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Site {
    pub async fn start() -> Self {
        let (dir, replica) = lone::replica().await;
        let any = "127.0.0.1:0".parse().unwrap();
        let endpoint = replica.client_addr().to_string();
        let kv: Arc<dyn Kv> = Arc::new(EtcdKv::connect([endpoint], Default::default()).unwrap());
        let shutdown = Shutdown::new();
        let options = DispatcherOptions {
            node_name: "d1".into(),
            listen_rest: any,
            web_tmpdir: dir.path().join("spool"),
            single_enable: true,
            icp_grace: Duration::from_secs(600),
            ..DispatcherOptions::default()
        };
        let dispatcher =
            Dispatcher::start(kv.clone(), options, HostConfig::default(), shutdown.clone()).await.unwrap();
        let mut session = dispatcher.session.clone();
        tokio::time::timeout(PATIENCE, session.wait_for(Option::is_some)).await.unwrap().unwrap();
        Self { dir, replica, kv, dispatcher, shutdown }
    }

    pub async fn node(&self, name: &str) -> (Node, Shutdown) {
        let options = NodeOptions {
            name: name.into(),
            slots: 1,
            host: HostConfig {
                work_dir: self.dir.path().join(name),
                listen_node: "127.0.0.1:0".parse().unwrap(),
                java: "/no/such/java".into(),
                min_free: ByteSize(0),
                ..HostConfig::default()
            },
            ..NodeOptions::default()
        };
        let end = Shutdown::new();
        let node = Node::start(self.kv.clone(), options, end.clone()).await.unwrap();
        let mut session = node.session();
        tokio::time::timeout(PATIENCE, session.wait_for(Option::is_some)).await.unwrap().unwrap();
        (node, end)
    }

    pub fn file(&self, node: &str, path: &str) -> PathBuf {
        self.dir.path().join(node).join("icp/lib/1.0").join(path)
    }

    pub async fn ctl(&self, line: &str) -> Did {
        let endpoint = self.replica.client_addr().to_string();
        let line = line.to_owned();
        tokio::task::spawn_blocking(move || run(&endpoint, &line)).await.unwrap()
    }

    /// The command's standard output; it must succeed and say nothing else.
    pub async fn ok(&self, line: &str) -> String {
        let did = self.ctl(line).await;
        assert_eq!((did.code, did.err.as_str()), (0, ""), "{line}: {did:?}");
        did.out
    }

    pub async fn json(&self, line: &str) -> Value {
        let did = self.ctl(&format!("{line} -o json")).await;
        serde_json::from_str(&did.out).unwrap_or_else(|error| panic!("{line}: {error}: {did:?}"))
    }

    /// The command fails with this code, and its error says so.
    pub async fn fails(&self, line: &str, code: i32, says: &str) -> String {
        let did = self.ctl(line).await;
        assert_eq!(did.code, code, "{line}: {did:?}");
        assert!(did.err.contains(says), "{line}: {did:?}");
        did.out
    }

    /// A package that stays CREATING: its coordinator lives and does nothing.
    pub async fn stuck(&self) {
        let (like, key) =
            (UnitKey { unit: "lib:1.0".parse().unwrap() }, UnitKey { unit: "slow:1".parse().unwrap() });
        let view = View::load(&*self.kv, Scope::default().and_key(&like)).await.unwrap();
        let mut unit = view.get(&like).unwrap().unwrap().value;
        unit.state = UnitState::Creating;
        unit.op = "slow".into();
        unit.targets = Vec::new();
        unit.coordinator = self.dispatcher.session.borrow().as_ref().unwrap().me.clone();
        let scope = Scope::default().and_key(&key);
        carry_out(&*self.kv, &scope, |_| Ok(Steps::new().absent(&key).put(&key, &unit).answer(())))
            .await
            .unwrap();
    }

    pub async fn stop(self) {
        self.shutdown.finish(PATIENCE).await;
        self.replica.shutdown().await;
    }
}

fn run(endpoint: &str, line: &str) -> Did {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metactl"));
    let output = command.args(["--endpoints", endpoint]).args(line.split(' ')).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Did { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

pub fn flip(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[0] ^= 1;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(file, bytes).unwrap();
}

pub async fn with_lib() -> (Site, Vec<(Node, Shutdown)>) {
    let site = Site::start().await;
    let nodes = vec![site.node("n1").await, site.node("n2").await];
    let tree = site.dir.path().join("tree");
    std::fs::create_dir_all(tree.join("lib")).unwrap();
    std::fs::write(tree.join("a.jar"), "one").unwrap();
    std::fs::write(tree.join("lib/b.jar"), "two").unwrap();
    let did = site.ctl(&format!("icp create lib:1.0 {}", tree.display())).await;
    assert_eq!(did.code, 0, "{did:?}");
    (site, nodes)
}

pub async fn end(site: Site, nodes: Vec<(Node, Shutdown)>) {
    for (_, shutdown) in nodes {
        shutdown.finish(PATIENCE).await;
    }
    site.stop().await;
}
