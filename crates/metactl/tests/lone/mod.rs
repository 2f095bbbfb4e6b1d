//! A replica that is a cluster of its own, in a temporary directory on free ports.

use meta_replica::{Replica, ReplicaOptions};
use process_kit::Shutdown;
use tempfile::TempDir;

/// Starts it and waits until it serves. Its directory goes with the first value.
pub async fn replica() -> (TempDir, Replica) {
    let dir = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let options = ReplicaOptions {
        data_dir: dir.path().join("r1"),
        listen_client: any,
        listen_peer: any,
        ..ReplicaOptions::default()
    };
    let replica = Replica::start(options, &Shutdown::new()).await.unwrap();
    replica.ready().await;
    (dir, replica)
}
