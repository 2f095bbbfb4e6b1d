//! What a user meets when something is wrong: ports in use, no majority, everything killed at once.

use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::kv_client::KvClient;
use meta_api::pb::etcdserverpb::lease_client::LeaseClient;
use meta_replica::{Replica, StartError};
use process_kit::Shutdown;
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::http::http;
use crate::rig::{Lone, Three, channel, get, options, put, range, refused, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_one_line_with_the_port_and_the_key() {
    let lone = Lone::start().await;
    for (key, taken) in
        [("listen.client", lone.replica.client_addr()), ("listen.peer", lone.replica.peer_addr())]
    {
        let dir = TempDir::new().unwrap();
        let mut second = options(&dir);
        if key == "listen.client" {
            second.listen_client = taken;
        } else {
            second.listen_peer = taken;
        }
        let Err(error) = Replica::start(second, &Shutdown::new()).await else { panic!("started on {taken}") };
        assert!(matches!(error, StartError::Bind(_)));
        let line = error.to_string();
        assert!(line.contains(key) && line.contains(&taken.to_string()), "{line}");
        assert_eq!(line.lines().count(), 1);
        assert!(!dir.path().join("data").exists(), "nothing is touched before the ports are bound");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_waits_for_its_cluster_says_so_and_can_be_stopped() {
    let dir = TempDir::new().unwrap();
    let port = std::net::TcpListener::bind((testkit::own_address(), 0)).unwrap().local_addr().unwrap();
    let mut alone = options(&dir);
    alone.listen_client = port;
    alone.node_name = "r1".to_owned();
    // Nobody answers at the second address.
    alone.initial = vec!["r1=127.0.0.1:1".to_owned(), "r2=127.0.0.1:2".to_owned()];
    alone.advertise_peer = "127.0.0.1:1".to_owned();
    let shutdown = Shutdown::new();
    let starting = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { Replica::start(alone, &shutdown).await }
    });
    let answered = async {
        while tokio::net::TcpStream::connect(port).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    within("the client port", answered).await;
    assert_eq!(http(port, "/livez").await.0, 200);
    assert_eq!(http(port, "/readyz").await, (503, "the replica waits for its cluster\n".to_owned()));
    let mut kv = KvClient::new(channel(port).await);
    refused(kv.range(range("k", "")).await, Code::Unavailable, "etcdserver: no leader");
    shutdown.begin();
    let stopped = within("the stop", starting).await.unwrap();
    assert!(matches!(stopped, Err(StartError::Stopped)));
    let free = async {
        while std::net::TcpListener::bind(port).is_err() {
            tokio::task::yield_now().await;
        }
    };
    within("the port to be free again", free).await;
}

/// How a put ends that insists on a leader and waits half a second.
async fn insist(kv: &mut KvClient<Channel>) -> Status {
    let mut request = Request::new(pb::PutRequest { key: "k".into(), ..Default::default() });
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    request.set_timeout(std::time::Duration::from_millis(500));
    match kv.put(request).await {
        Ok(_) => Status::ok(""),
        Err(status) => status,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_only_stale_reads_are_served_and_nothing_hangs() {
    let mut three = Three::start().await;
    let leader = three.leader();
    let left = (leader + 1) % 3;
    let mut kv = three.kv(left).await;
    put(&mut kv, "k", "v").await;
    for i in [leader, (leader + 2) % 3] {
        three.replicas[i].take().unwrap().abandon().await;
    }
    within("the loss to be noticed", async {
        while insist(&mut kv).await.message() != "etcdserver: no leader" {}
    })
    .await;
    let stale = pb::RangeRequest { serializable: true, ..range("k", "") };
    assert_eq!(within("a stale read", kv.range(stale)).await.unwrap().into_inner().count, 1);
    let addr = three.alive(left).client_addr();
    assert_eq!(http(addr, "/livez").await.0, 200);
    assert_eq!(http(addr, "/readyz").await.0, 503);
    let no_leader = r#"{"health":"false","reason":"RAFT NO LEADER"}"#;
    assert_eq!(http(addr, "/health").await, (503, no_leader.to_owned()));
    let mut other = kv.clone();
    let write = other.put(pb::PutRequest { key: "k".into(), ..Default::default() });
    let (read, write) =
        within("the server's deadline", async { tokio::join!(kv.range(range("k", "")), write) }).await;
    refused(read, Code::Unavailable, "etcdserver: request timed out");
    assert_eq!(write.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_killed_at_once_come_back_with_everything_acknowledged() {
    let mut three = Three::start().await;
    let mut kv = three.kv(0).await;
    let mut lease = LeaseClient::new(channel(three.alive(1).client_addr()).await);
    lease.lease_grant(pb::LeaseGrantRequest { ttl: 600, id: 7 }).await.unwrap();
    let mut last = 0;
    for i in 0..100 {
        last = put(&mut kv, &format!("k{i}"), "v").await;
    }
    for replica in &mut three.replicas {
        replica.take().unwrap().abandon().await;
    }
    three.open().await;
    let mut kv = three.kv(2).await;
    let all = within("a read", kv.range(range("k", "l"))).await.unwrap().into_inner();
    assert_eq!((all.count, all.header.unwrap().revision), (100, last));
    let mut lease = LeaseClient::new(channel(three.alive(0).client_addr()).await);
    let ask = pb::LeaseTimeToLiveRequest { id: 7, keys: false };
    let left = within("a lease", lease.lease_time_to_live(ask)).await.unwrap().into_inner();
    assert!(left.ttl > 500 && left.ttl <= 600, "{left:?}");
    assert_eq!(put(&mut kv, "k", "v").await, last + 1);
    assert_eq!(get(&mut kv, "k").await.count, 1);
}
