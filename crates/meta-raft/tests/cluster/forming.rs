//! Forming a cluster, and what an empty or foreign directory is told.

use std::time::Duration;

use meta_raft::StartError;

use crate::common::*;

#[tokio::test(flavor = "multi_thread")]
async fn three_form_one_cluster_and_each_takes_writes() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    for i in 0..3 {
        write(cluster.at(i), &format!("from-{i}"), "x").await;
    }
    for reader in 0..3 {
        for i in 0..3 {
            assert_eq!(read(cluster.at(reader), &format!("from-{i}")).await.as_deref(), Some("x"));
        }
    }
    let status = wait_for(cluster.at(0), |status| status.members.len() == 3).await;
    assert!(
        status
            .members
            .iter()
            .all(|m| m.voter && m.member.client_addr == format!("client-of-{}", m.member.name))
    );
    same_state(&cluster).await;
    let described = async {
        while cluster.at(2).core().read().cluster().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, described).await.expect("the cluster is described in the state");
    let info = cluster.at(2).core().read().cluster().cloned().unwrap();
    assert_eq!((info.cluster_id, &info.name[..], info.feature_level), (status.cluster_id, &b"test"[..], 1));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_alone_is_a_cluster() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    write(cluster.at(0), "k", "v").await;
    assert_eq!(read(cluster.at(0), "k").await.as_deref(), Some("v"));
    cluster.nodes[0].stop().await;
    cluster.nodes[0].start().await;
    assert_eq!(read(cluster.at(0), "k").await.as_deref(), Some("v"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_restart_and_nothing_is_lost() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    for i in 0..50 {
        write(cluster.at(i % 3), &format!("k{i}"), "v").await;
    }
    let id = cluster.at(0).status().borrow().cluster_id;
    cluster.stop().await;
    futures_util::future::join_all(cluster.nodes.iter_mut().map(Node::start)).await;
    assert_eq!(cluster.at(0).status().borrow().cluster_id, id);
    for i in 0..50 {
        assert_eq!(read(cluster.at(i % 3), &format!("k{i}")).await.as_deref(), Some("v"));
    }
    same_state(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_cluster_with_the_same_names_is_refused() {
    let (mut ours, mut theirs) = (Cluster::start(3, |_| {}).await, Cluster::start(3, |_| {}).await);
    ours.nodes[2].stop().await;
    theirs.nodes[2].stop().await;
    let own =
        std::mem::replace(&mut ours.nodes[2].options.data_dir, theirs.nodes[2].options.data_dir.clone());
    let error = ours.nodes[2].try_start().await.unwrap_err();
    assert!(matches!(&error, StartError::Refused(why) if why.contains("another cluster")), "{error}");
    // With its own directory it comes back, and so does the other one at home.
    ours.nodes[2].options.data_dir = own;
    ours.nodes[2].start().await;
    theirs.nodes[2].start().await;
    write(ours.at(2), "k", "v").await;
    write(theirs.at(2), "k", "v").await;
    ours.stop().await;
    theirs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_directory_of_a_member_is_refused() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    write(cluster.at(0), "k", "v").await;
    cluster.nodes[0].stop().await;
    std::fs::remove_dir_all(&cluster.nodes[0].options.data_dir).unwrap();
    let error = cluster.nodes[0].try_start().await.unwrap_err();
    assert!(matches!(&error, StartError::Refused(why) if why.contains("re-add")), "{error}");
    // The two others go on.
    write(cluster.at(1), "k", "w").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_log_is_gone_is_refused() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    write(cluster.at(0), "k", "v").await;
    cluster.nodes[1].stop().await;
    std::fs::remove_dir_all(cluster.nodes[1].path("log")).unwrap();
    let error = cluster.nodes[1].try_start().await.unwrap_err();
    assert!(matches!(&error, StartError::Identity(why) if why.contains("re-add")), "{error}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_others_are_refused() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.stop().await;
    let node = &mut cluster.nodes[0];
    let good = node.options.clone();
    node.options.cluster_name = "other".into();
    let error = node.try_start().await.unwrap_err();
    assert!(error.to_string().contains("belongs to cluster \"test\""), "{error}");
    node.options = good.clone();
    node.options.node_name = "other".into();
    let error = node.try_start().await.unwrap_err();
    assert!(error.to_string().contains("belongs to replica \"r1\""), "{error}");
    node.options = good;
    node.start().await;
    let second = node.try_start_beside().await.unwrap_err();
    assert!(second.to_string().contains("in use"), "{second}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_different_names_or_lists_never_mix() {
    let mut cluster = Cluster::prepare(2, |_| {}).await;
    cluster.nodes[1].options.cluster_name = "other".into();
    let mut nodes = cluster.nodes.iter_mut();
    let (a, b) = (nodes.next().unwrap(), nodes.next().unwrap());
    let both = async { tokio::join!(a.try_start(), b.try_start()) };
    assert!(tokio::time::timeout(Duration::from_secs(1), both).await.is_err(), "neither may form a cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_address_reaches_the_membership() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    cluster.nodes[1].stop().await;
    cluster.nodes[1].options.client_addr = "moved".into();
    cluster.nodes[1].start().await;
    let moved =
        |status: &meta_raft::RaftStatus| status.members.iter().any(|m| m.member.client_addr == "moved");
    wait_for(cluster.at(0), moved).await;
    wait_for(cluster.at(2), moved).await;
    cluster.stop().await;
}
