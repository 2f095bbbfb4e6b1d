//! Leases: fixed answers, keep-alive, expiry.

use meta_api::pb::etcdserverpb as pb;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use meta_api::pb::etcdserverpb::lease_client::LeaseClient;

use crate::rig::{Lone, Three, Watching, channel, get, range, refused, within};

fn grant(ttl: i64, id: i64) -> pb::LeaseGrantRequest {
    pb::LeaseGrantRequest { ttl, id }
}

fn leased(key: &str, lease: i64) -> pb::PutRequest {
    pb::PutRequest { key: key.to_owned().into(), value: "v".into(), lease, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_and_refusals_are_etcds() {
    let mut lone = Lone::start().await;
    let lease = &mut lone.lease;
    for (asked, given) in [(60, 60), (0, 2), (-5, 2), (1, 2), (9_000_000_000, 9_000_000_000)] {
        let granted = lease.lease_grant(grant(asked, 0)).await.unwrap().into_inner();
        assert_eq!(granted.ttl, given);
        assert!(granted.id > 0);
        assert_eq!(granted.header.unwrap().revision, 1);
    }
    let too_large = "etcdserver: too large lease TTL";
    refused(lease.lease_grant(grant(9_000_000_001, 0)).await, Code::OutOfRange, too_large);
    lease.lease_grant(grant(60, -5)).await.unwrap();
    let exists = "etcdserver: lease already exists";
    refused(lease.lease_grant(grant(60, -5)).await, Code::FailedPrecondition, exists);
    let revoke = pb::LeaseRevokeRequest { id: 4711 };
    refused(lease.lease_revoke(revoke).await, Code::NotFound, "etcdserver: requested lease not found");
    let ask = pb::LeaseTimeToLiveRequest { id: 4711, keys: true };
    let unknown = lease.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!((unknown.ttl, unknown.granted_ttl), (-1, 0));
    let all = lease.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner();
    assert_eq!(all.leases.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keep_alives_are_answered_in_order_and_an_unknown_lease_has_ttl_0() {
    let mut lone = Lone::start().await;
    lone.lease.lease_grant(grant(60, 1)).await.unwrap();
    let (requests, rest) = mpsc::unbounded_channel();
    for id in [1, 2, 1] {
        requests.send(pb::LeaseKeepAliveRequest { id }).unwrap();
    }
    let answers = lone.lease.lease_keep_alive(UnboundedReceiverStream::new(rest)).await.unwrap();
    let mut answers = answers.into_inner();
    for expected in [(1, 60), (2, 0), (1, 60)] {
        let answer = within("a renewal", answers.message()).await.unwrap().unwrap();
        assert_eq!((answer.id, answer.ttl), expected);
        assert!(answer.header.unwrap().member_id != 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoke_is_one_revision_with_its_keys_sorted_and_one_without_keys_is_none() {
    let mut lone = Lone::start().await;
    lone.lease.lease_grant(grant(60, 1)).await.unwrap();
    lone.lease.lease_grant(grant(60, 2)).await.unwrap();
    for key in ["l3", "l1", "l2"] {
        lone.kv.put(leased(key, 1)).await.unwrap();
    }
    let mut watching = Watching::open(lone.channel().await).await;
    assert_eq!(watching.watch("l", "m", 0).await, 4);
    let revoked = lone.lease.lease_revoke(pb::LeaseRevokeRequest { id: 2 }).await.unwrap().into_inner();
    assert_eq!(revoked.header.unwrap().revision, 4);
    let revoked = lone.lease.lease_revoke(pb::LeaseRevokeRequest { id: 1 }).await.unwrap().into_inner();
    assert_eq!(revoked.header.unwrap().revision, 5);
    let events = watching.next().await.events;
    let keys: Vec<_> = events.iter().map(|event| event.kv.as_ref().unwrap().key.clone()).collect();
    assert_eq!(keys, ["l1", "l2", "l3"]);
    assert!(events.iter().all(|event| event.r#type == 1 && event.kv.as_ref().unwrap().mod_revision == 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_moves_or_detaches_its_key() {
    let mut lone = Lone::start().await;
    for id in [777, 778] {
        lone.lease.lease_grant(grant(60, id)).await.unwrap();
    }
    lone.kv.put(leased("lk", 777)).await.unwrap();
    let keys = async |lone: &mut Lone, id| {
        let ask = pb::LeaseTimeToLiveRequest { id, keys: true };
        lone.lease.lease_time_to_live(ask).await.unwrap().into_inner().keys
    };
    assert_eq!(keys(&mut lone, 777).await, ["lk"]);
    lone.kv.put(pb::PutRequest { ignore_lease: true, ..leased("lk", 0) }).await.unwrap();
    assert_eq!(keys(&mut lone, 777).await, ["lk"]);
    lone.kv.put(leased("lk", 778)).await.unwrap();
    assert!(keys(&mut lone, 777).await.is_empty());
    lone.lease.lease_revoke(pb::LeaseRevokeRequest { id: 777 }).await.unwrap();
    assert_eq!(get(&mut lone.kv, "lk").await.count, 1);
    lone.lease.lease_revoke(pb::LeaseRevokeRequest { id: 778 }).await.unwrap();
    assert_eq!(get(&mut lone.kv, "lk").await.count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_expires_while_nothing_else_happens() {
    let mut lone = Lone::start().await;
    lone.lease.lease_grant(grant(2, 1)).await.unwrap();
    lone.kv.put(leased("dies", 1)).await.unwrap();
    let mut watching = Watching::open(lone.channel().await).await;
    watching.watch("dies", "", 0).await;
    let gone = watching.next().await;
    assert_eq!((gone.events[0].r#type, gone.header.unwrap().revision), (1, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_renews_expires_and_one_that_is_renewed_does_not() {
    let mut lone = Lone::start().await;
    for (id, key) in [(1, "dies"), (2, "lives")] {
        lone.lease.lease_grant(grant(2, id)).await.unwrap();
        lone.kv.put(leased(key, id)).await.unwrap();
    }
    let mut watching = Watching::open(lone.channel().await).await;
    watching.watch("\0", "\0", 0).await;
    let (requests, rest) = mpsc::unbounded_channel();
    let answers = lone.lease.lease_keep_alive(UnboundedReceiverStream::new(rest)).await.unwrap();
    let renewing = tokio::spawn(async move {
        let mut answers = answers.into_inner();
        loop {
            requests.send(pb::LeaseKeepAliveRequest { id: 2 }).unwrap();
            assert_eq!(answers.message().await.unwrap().unwrap().ttl, 2);
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    });
    let start = std::time::Instant::now();
    let gone = watching.next().await;
    let took = start.elapsed();
    assert_eq!(gone.events[0].kv.as_ref().unwrap().key, "dies");
    assert!(took.as_secs_f64() > 1.5, "gone after {took:?}");
    let all = lone.kv.range(range("\0", "\0")).await.unwrap().into_inner();
    assert_eq!((all.count, all.kvs[0].key.as_ref()), (1, &b"lives"[..]));
    assert!(!renewing.is_finished(), "renewals go on");
    renewing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_its_leader_and_expires_after_it() {
    let mut three = Three::start().await;
    let leader = three.leader();
    let other = (leader + 1) % 3;
    let at = channel(three.alive(other).client_addr()).await;
    let mut lease = LeaseClient::new(at.clone());
    let mut kv = three.kv(other).await;
    for (id, key) in [(1, "dies"), (2, "lives")] {
        lease.lease_grant(grant(3, id)).await.unwrap();
        kv.put(leased(key, id)).await.unwrap();
    }
    let mut watching = Watching::open(at).await;
    watching.watch("\0", "\0", 0).await;
    let (requests, rest) = mpsc::unbounded_channel();
    let mut answers = lease.lease_keep_alive(UnboundedReceiverStream::new(rest)).await.unwrap().into_inner();
    three.replicas[leader].take().unwrap().abandon().await;
    let start = std::time::Instant::now();
    let renewing = async {
        loop {
            requests.send(pb::LeaseKeepAliveRequest { id: 2 }).unwrap();
            assert_eq!(answers.message().await.unwrap().unwrap().ttl, 3, "renewed by the next leader");
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    };
    let gone = tokio::select! {
        gone = watching.next() => gone,
        () = renewing => unreachable!(),
    };
    assert_eq!(gone.events[0].kv.as_ref().unwrap().key, "dies");
    let took = start.elapsed().as_secs_f64();
    assert!(took > 1.5, "lease time stands still without a leader; gone after {took} s");
    assert_eq!(get(&mut kv, "lives").await.count, 1);
}
