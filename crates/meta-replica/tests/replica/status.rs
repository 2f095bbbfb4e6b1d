//! Status asked while everything that it tells changes.

use std::sync::mpsc;
use std::time::Duration;

use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::maintenance_client::MaintenanceClient;

use crate::rig::{Lone, put};

/// Longest wait for all of it; it takes a few seconds.
const WITHIN: Duration = Duration::from_secs(60);

/// Whoever looks at a value that others wait to change, and looks a second time before it is done with the first, waits
/// for them and they for it. A thread that waits so never comes back, so the test's own runtime is watched from outside.
#[test]
fn a_replica_that_is_asked_while_it_works_goes_on() {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
        runtime.expect("a runtime").block_on(ask_and_write());
        done.send(()).expect("the test waits");
    });
    ended.recv_timeout(WITHIN).expect("every status and every put is answered");
}

async fn ask_and_write() {
    let one = Lone::start().await;
    let channel = one.channel().await;
    let askers = (0..8).map(|_| {
        let mut client = MaintenanceClient::new(channel.clone());
        tokio::spawn(async move {
            for _ in 0..1_000 {
                client.status(pb::StatusRequest {}).await.expect("a status");
            }
        })
    });
    let mut tasks: Vec<_> = askers.collect();
    for writer in 0..8 {
        let mut client = one.kv.clone();
        tasks.push(tokio::spawn(async move {
            for i in 0..300 {
                put(&mut client, &format!("k{writer}"), &i.to_string()).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("it ends");
    }
}
