//! The suite that every store of ours passes, over three replicas and the network client.

use std::sync::Arc;

use meta_client::testing::suite;
use meta_client::{EtcdKv, EtcdOptions};

use crate::rig::Three;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_pass_the_suite_of_every_store() {
    let three = Three::start().await;
    let endpoints = (0..3).map(|i| three.alive(i).client_addr().to_string());
    let kv = EtcdKv::connect(endpoints, EtcdOptions::default()).unwrap();
    suite::run(Arc::new(kv), "/suite").await;
}
