//! A client whose runtime is blocked, and one apart from it: what keeps a lease alive must not wait for the first.

use std::sync::mpsc;
use std::time::Duration;

use meta_client::{EtcdKv, EtcdOptions, Kv as _};
use tokio::runtime::{Builder, Runtime};

use crate::rig::Lone;

/// Longest wait for all of it; it takes a moment.
const WITHIN: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(60);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_lease_is_renewed_while_the_runtime_of_the_first_client_is_blocked() {
    let server = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let one = server.block_on(Lone::start());
    let address = one.replica.client_addr().to_string();
    // Outside of block_on nobody drives this runtime, nor the connections that were made in it.
    let blocked = one_thread();
    let (kv, lease) = blocked.block_on(async {
        let kv = EtcdKv::connect([address], EtcdOptions::default()).unwrap();
        let lease = kv.lease_grant(0, TTL).await.unwrap().id;
        (kv, lease)
    });
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        one_thread().block_on(async {
            let shared = kv.lease_keep_alive(lease).await;
            let own = kv.apart().expect("a client of names can be made again");
            let renewed = own.lease_keep_alive(lease).await;
            told.send((shared.is_err(), renewed)).expect("the test waits");
        });
    });
    let (shared_failed, renewed) = heard.recv_timeout(WITHIN).expect("both end");
    assert!(shared_failed, "the first client's connections were driven after all: the test shows nothing");
    assert_eq!(renewed.unwrap(), Some(TTL));
    drop(blocked);
    server.block_on(one.replica.abandon());
}
