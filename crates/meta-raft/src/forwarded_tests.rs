//! What a peer forwards never enters the log unless every replica can apply it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meta_store::{MemDisk, WalOptions};
use meta_types::codec::encode_body;
use meta_types::seams::{Clock, Rng};
use meta_types::{Command, Origin, PutRequest};

use crate::net::message::{Forwarded, Reply, Request};
use crate::net::peers::{Me, Peers};
use crate::workers::Threads;
use crate::{
    CheckpointKind, CheckpointOptions, InitialMember, Net, NoHook, RaftHandle, RaftOptions, Seams, TcpNet,
    payload, start,
};

const SOON: Duration = Duration::from_secs(30);

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

struct Fixed;

impl Rng for Fixed {
    fn next_u64(&self) -> u64 {
        7
    }
}

/// A cluster of one, and the address of its peer port.
async fn alone() -> (RaftHandle, String) {
    let port = TcpNet.bind("127.0.0.1:0").await.unwrap();
    let addr = port.local_addr().unwrap().to_string();
    let options = RaftOptions {
        cluster_name: "test".into(),
        node_name: "r1".into(),
        data_dir: PathBuf::from("/r1"),
        peer_addr: addr.clone(),
        client_addr: "client".into(),
        initial: vec![InitialMember { name: "r1".into(), peer_addr: addr.clone() }],
        timing: Default::default(),
        checkpoints: CheckpointOptions { kind: CheckpointKind::Disk, ..Default::default() },
        proposer: Default::default(),
        wal: WalOptions { segment_bytes: 64 * 1024, prewrite_bytes: 0, ..WalOptions::default() },
    };
    let seams = Seams {
        clock: Arc::new(RealClock(Instant::now())),
        rng: Arc::new(Fixed),
        disk: Arc::new(MemDisk::new()),
        net: Arc::new(TcpNet),
        workers: Arc::new(Threads),
    };
    let handle = start(options, seams, port, Arc::new(NoHook)).await.unwrap();
    tokio::time::timeout(SOON, handle.status().wait_for(|s| s.serving && s.is_leader()))
        .await
        .unwrap()
        .unwrap();
    (handle, addr)
}

fn put(seq: u64) -> (Command, u64) {
    (Command::Put(PutRequest { key: "k".into(), value: "v".into(), ..PutRequest::default() }), seq)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_replica_could_apply_is_not_appended() {
    let (handle, addr) = alone().await;
    let status = handle.status().borrow().clone();
    let me = Me { cluster_id: status.cluster_id, cluster_name: "test".into(), member_id: 99 };
    let peers = Peers::new(Arc::new(TcpNet), me, SOON);
    let control = peers.links(status.member_id, &addr).control.clone();
    let (command, seq) = put(2);
    let encoded = encode_body(&command).unwrap();
    let origin = Origin { member: 99, boot: 1 };
    let good = payload::batch(origin, 1, [(seq, encoded.as_slice())].into_iter()).freeze();
    let header = good.len() - 33 - 8 - encoded.len();
    let mut bad_command = good.to_vec();
    *bad_command.get_mut(header + 33 + 8).unwrap() = 0xfe; // A variant that is none.
    let bad: [(&str, Bytes); 3] = [
        ("cut short", good.slice(..good.len() - 1)),
        ("bytes after the end", [&good[..], b"x"].concat().into()),
        ("an unknown command", bad_command.into()),
    ];
    for (what, batch) in bad {
        let reply = control.call(Request::Forward, vec![batch], SOON).await.unwrap();
        assert!(matches!(reply, Reply::Forward(Forwarded::NotAppended(_))), "{what}: {reply:?}");
    }
    let reply = control.call(Request::Forward, vec![good], SOON).await.unwrap();
    assert!(matches!(reply, Reply::Forward(Forwarded::Applied)), "{reply:?}");
    handle.propose(put(0).0, SOON).await.expect("it still serves");
    handle.shutdown().await;
}
