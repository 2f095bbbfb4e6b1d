//! Three replicas: reads from any of them, a leader's death, status and members.

use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::cluster_client::ClusterClient;
use meta_api::pb::etcdserverpb::maintenance_client::MaintenanceClient;

use crate::rig::{Three, Watching, channel, get, put, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_replica_acknowledged_every_other_shows_at_once() {
    let three = Three::start().await;
    let mut clients = [three.kv(0).await, three.kv(1).await, three.kv(2).await];
    for i in 0..1_000usize {
        let value = i.to_string();
        let revision = put(&mut clients[i % 3], "counter", &value).await;
        let read = get(&mut clients[(i + 1) % 3], "counter").await;
        assert_eq!(read.kvs[0].value, value, "read on another replica after write {i}");
        assert!(read.header.unwrap().revision >= revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_the_leaders_death_without_a_gap() {
    let mut three = Three::start().await;
    let leader = three.leader();
    let (a, b) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut watching = Watching::open(channel(three.alive(a).client_addr()).await).await;
    watching.watch("k", "", 0).await;
    let mut writer = three.kv(b).await;
    for i in 0..20 {
        put(&mut writer, "k", &i.to_string()).await;
    }
    three.replicas[leader].take().unwrap().abandon().await;
    for i in 20..40 {
        put(&mut writer, "k", &i.to_string()).await;
    }
    let mut values = Vec::new();
    while values.len() < 40 {
        let events = watching.next().await.events;
        values.extend(events.into_iter().map(|event| event.kv.unwrap().value));
    }
    let expected: Vec<_> = (0..40).map(|i| bytes::Bytes::from(i.to_string())).collect();
    assert_eq!(values, expected, "every write once and in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_leader_hands_over_and_no_write_elsewhere_fails() {
    let mut three = Three::start().await;
    let leader = three.leader();
    let other = (leader + 1) % 3;
    let term = three.alive(other).status().borrow().term;
    let mut writer = three.kv(other).await;
    let stopping = tokio::spawn(three.replicas[leader].take().unwrap().shutdown());
    for i in 0..200 {
        put(&mut writer, "k", &i.to_string()).await;
    }
    within("the stop", stopping).await.unwrap();
    let status = three.alive(other).status().borrow().clone();
    assert_eq!(status.term, term + 1, "one election");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_and_status_are_the_same_from_every_replica() {
    let three = Three::start().await;
    let mut leaders = Vec::new();
    for i in 0..3 {
        let channel = channel(three.alive(i).client_addr()).await;
        let request = pb::MemberListRequest { linearizable: true };
        let list = ClusterClient::new(channel.clone()).member_list(request).await.unwrap().into_inner();
        assert_eq!(list.members.len(), 3);
        for member in &list.members {
            let options = three.options.iter().find(|o| o.node_name == member.name).unwrap();
            assert_eq!(member.peer_ur_ls, [format!("http://{}", options.listen_peer)]);
            assert_eq!(member.client_ur_ls, [format!("http://{}", options.listen_client)]);
            assert!(!member.is_learner);
        }
        let status = MaintenanceClient::new(channel).status(pb::StatusRequest {}).await.unwrap().into_inner();
        assert_eq!((status.version.as_str(), status.errors.len()), ("3.7.0", 0));
        assert!(status.raft_applied_index > 0 && status.raft_index >= status.raft_applied_index);
        leaders.push((status.leader, status.raft_term, status.header.unwrap().cluster_id));
    }
    assert!(leaders[0].0 != 0 && leaders.iter().all(|leader| *leader == leaders[0]), "{leaders:?}");
}
