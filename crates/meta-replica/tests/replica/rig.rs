//! Replicas in temporary directories on free ports, and clients of them.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::kv_client::KvClient;
use meta_api::pb::etcdserverpb::lease_client::LeaseClient;
use meta_api::pb::etcdserverpb::watch_client::WatchClient;
use meta_replica::{Replica, ReplicaOptions};
use process_kit::Shutdown;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// A cluster of one.
pub struct Lone {
    pub replica: Replica,
    pub dir: TempDir,
    pub kv: KvClient<Channel>,
    pub lease: LeaseClient<Channel>,
}

impl Lone {
    pub async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub async fn start_with(change: impl FnOnce(&mut ReplicaOptions)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut options = options(&dir);
        change(&mut options);
        Self::open(options, dir).await
    }

    /// Ends it as a kill would and starts it again on its directory.
    pub async fn restart(self) -> Self {
        self.replica.abandon().await;
        Self::open(options(&self.dir), self.dir).await
    }

    async fn open(options: ReplicaOptions, dir: TempDir) -> Self {
        let replica = within("a start", Replica::start(options, &Shutdown::new())).await.unwrap();
        within("a leader", replica.ready()).await;
        let channel = channel(replica.client_addr()).await;
        Self { replica, dir, kv: KvClient::new(channel.clone()), lease: LeaseClient::new(channel) }
    }

    pub async fn channel(&self) -> Channel {
        channel(self.replica.client_addr()).await
    }

    pub async fn put(&mut self, key: &str, value: &str) -> i64 {
        put(&mut self.kv, key, value).await
    }
}

pub fn options(dir: &TempDir) -> ReplicaOptions {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    ReplicaOptions {
        listen_client: any,
        listen_peer: any,
        data_dir: dir.path().join("data"),
        ..ReplicaOptions::default()
    }
}

pub async fn channel(addr: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{addr}")).unwrap();
    within("a connection", endpoint.connect()).await.unwrap()
}

pub async fn put(kv: &mut KvClient<Channel>, key: &str, value: &str) -> i64 {
    let request =
        pb::PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..Default::default() };
    within("a put", kv.put(request)).await.unwrap().into_inner().header.unwrap().revision
}

pub async fn get(kv: &mut KvClient<Channel>, key: &str) -> pb::RangeResponse {
    within("a get", kv.range(range(key, ""))).await.unwrap().into_inner()
}

pub fn range(key: &str, end: &str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.to_owned().into(), range_end: end.to_owned().into(), ..Default::default() }
}

/// The code and text of a refusal.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, text: &str) {
    let status = answer.unwrap_err();
    assert_eq!((status.code(), status.message()), (code, text));
}

/// Three replicas of one cluster.
pub struct Three {
    pub replicas: Vec<Option<Replica>>,
    pub options: Vec<ReplicaOptions>,
    _dirs: Vec<TempDir>,
}

impl Three {
    pub async fn start() -> Self {
        let dirs: Vec<_> = (0..3).map(|_| TempDir::new().unwrap()).collect();
        let ports = free_ports(6);
        let initial: Vec<_> = (0..3).map(|i| format!("r{}={}", i + 1, ports[i])).collect();
        let options: Vec<_> = (0..3)
            .map(|i| ReplicaOptions {
                listen_client: ports[3 + i],
                listen_peer: ports[i],
                node_name: format!("r{}", i + 1),
                initial: initial.clone(),
                ..options(&dirs[i])
            })
            .collect();
        let mut three = Self { replicas: Vec::new(), options, _dirs: dirs };
        three.open().await;
        three
    }

    /// Starts all three on their directories.
    pub async fn open(&mut self) {
        let starts = self
            .options
            .iter()
            .cloned()
            .map(|options| async move { Replica::start(options, &Shutdown::new()).await.unwrap() });
        let replicas = within("a cluster of three", futures_util::future::join_all(starts)).await;
        for replica in &replicas {
            within("a leader", replica.ready()).await;
        }
        self.replicas = replicas.into_iter().map(Some).collect();
    }

    pub fn alive(&self, i: usize) -> &Replica {
        self.replicas[i].as_ref().unwrap()
    }

    pub async fn kv(&self, i: usize) -> KvClient<Channel> {
        KvClient::new(channel(self.alive(i).client_addr()).await)
    }

    /// Which one leads.
    pub fn leader(&self) -> usize {
        let leads =
            |replica: &Option<Replica>| replica.as_ref().is_some_and(|r| r.status().borrow().is_leader());
        self.replicas.iter().position(leads).expect("a leader")
    }
}

/// Ports that were free a moment ago: peers must be known before they are bound.
fn free_ports(count: usize) -> Vec<SocketAddr> {
    let address = testkit::own_address();
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind((address, 0)).unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

/// A watch stream.
pub struct Watching {
    requests: mpsc::UnboundedSender<pb::WatchRequest>,
    pub responses: Streaming<pb::WatchResponse>,
}

impl Watching {
    pub async fn open(channel: Channel) -> Self {
        let (requests, rest) = mpsc::unbounded_channel();
        let mut client = WatchClient::new(channel).max_decoding_message_size(64 << 20);
        let responses = within("a stream", client.watch(UnboundedReceiverStream::new(rest))).await.unwrap();
        Self { requests, responses: responses.into_inner() }
    }

    pub fn create(&self, create: pb::WatchCreateRequest) {
        use pb::watch_request::RequestUnion::CreateRequest;
        self.requests.send(pb::WatchRequest { request_union: Some(CreateRequest(create)) }).unwrap();
    }

    pub async fn next(&mut self) -> pb::WatchResponse {
        within("a watch response", self.responses.message()).await.unwrap().expect("an open stream")
    }

    /// Creates a watch and waits for the answer; gives the header's revision.
    pub async fn watch(&mut self, key: &str, end: &str, start_revision: i64) -> i64 {
        self.create(on(key, end, start_revision));
        let created = self.next().await;
        assert!(created.created && !created.canceled, "{created:?}");
        created.header.unwrap().revision
    }
}

pub fn on(key: &str, end: &str, start_revision: i64) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        start_revision,
        ..Default::default()
    }
}
