//! What a replica is told by its configuration, key by key.

use std::path::PathBuf;
use std::time::Duration;

use meta_raft::{CheckpointKind, CheckpointOptions, InitialMember, RaftOptions, Timing};
use process_kit::config::ByteSize;
use process_kit::telemetry::LogConfig;
use std::net::SocketAddr;

use crate::StartError;

process_kit::config! {
    /// Keys of a replica.
    pub struct ReplicaOptions {
        include { log: LogConfig }
        /// Where clients reach this replica: etcd's gRPC, and HTTP for probes and curl, on one port.
        "listen.client" => listen_client: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 2379)),
        /// Where the other replicas reach this one.
        "listen.peer" => listen_peer: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 2380)),
        /// The host:port that clients are told; the address it listens on if empty.
        "advertise.client" => advertise_client: String = String::new(),
        /// The host:port that the other replicas are told; the address it listens on if empty.
        "advertise.peer" => advertise_peer: String = String::new(),
        /// Directory of the log, the checkpoints and the identity. One replica at a time.
        "data-dir" => data_dir: PathBuf = "data/replica".into(),
        /// The cluster's name: replicas of another cluster are refused.
        "cluster.name" => cluster_name: String = "metastore".to_owned(),
        /// This replica's name, unique in its cluster.
        "node.name" => node_name: String = "r1".to_owned(),
        /// Who forms the cluster, as name=host:port of each replica's peer port. Empty: a cluster of one.
        /// Read only while the data directory is empty.
        "cluster.initial" => initial: Vec<String> = vec![],
        /// Bytes of keys and values of the current versions; above it puts are refused, deletes are not.
        "quota" => quota: ByteSize = ByteSize(2 << 30),
        /// Bytes of older versions; above it the oldest revisions are compacted away. 0: never, and then the
        /// quota counts them too.
        "history.max-bytes" => history_max_bytes: ByteSize = ByteSize(256 << 20),
        /// Compact what is older than this, again and again; 0 is off.
        "auto-compaction.periodic" => compact_periodic: Duration = Duration::ZERO,
        /// Compact all but so many revisions, every five minutes; 0 is off.
        "auto-compaction.revisions" => compact_revisions: u64 = 0,
        /// Between two heartbeats of the leader.
        "raft.heartbeat" => heartbeat: Duration = Timing::default().heartbeat,
        /// Shortest time without a leader before a replica stands for election.
        "raft.election.min" => election_min: Duration = Timing::default().election_min,
        /// Longest such time.
        "raft.election.max" => election_max: Duration = Timing::default().election_max,
        /// Bytes of log after which a checkpoint is taken (or the size of the last checkpoint, if larger).
        "checkpoint.min-log-bytes" => checkpoint_min_log: ByteSize = ByteSize(64 << 20),
        /// How often a quiet watch that asked for it is told how far it is.
        "watch.progress-interval" => progress_interval: Duration = Duration::from_secs(600),
        /// Allows ports that other machines reach, although there is no TLS and no authentication yet.
        "security.insecure" => insecure: bool = false,
    }
}

impl ReplicaOptions {
    /// What consensus is told. `client` and `peer` are the ports that were bound.
    pub fn raft(&self, client: SocketAddr, peer: SocketAddr) -> Result<RaftOptions, StartError> {
        let peer_addr = told("advertise.peer", &self.advertise_peer, peer)?;
        let mut initial =
            self.initial.iter().map(|text| initial_member(text)).collect::<Result<Vec<_>, _>>()?;
        if initial.is_empty() {
            initial.push(InitialMember { name: self.node_name.clone(), peer_addr: peer_addr.clone() });
        }
        Ok(RaftOptions {
            cluster_name: self.cluster_name.clone(),
            node_name: self.node_name.clone(),
            data_dir: self.data_dir.clone(),
            peer_addr,
            client_addr: told("advertise.client", &self.advertise_client, client)?,
            initial,
            timing: Timing {
                heartbeat: self.heartbeat,
                election_min: self.election_min,
                election_max: self.election_max,
                ..Timing::default()
            },
            checkpoints: CheckpointOptions {
                min_log_bytes: self.checkpoint_min_log.0,
                kind: CheckpointKind::default(),
            },
            proposer: Default::default(),
            wal: Default::default(),
        })
    }
}

/// The address others are told: what is set, else the one that was bound, if others can use that.
fn told(key: &'static str, set: &str, bound: SocketAddr) -> Result<String, StartError> {
    if !set.is_empty() {
        return Ok(set.to_owned());
    }
    if bound.ip().is_unspecified() {
        let why = format!(
            "must be set to a host:port that others reach, for {bound} means every address of this host"
        );
        return Err(StartError::Config { key, why });
    }
    Ok(bound.to_string())
}

fn initial_member(text: &str) -> Result<InitialMember, StartError> {
    let wrong = || StartError::Config {
        key: "cluster.initial",
        why: format!("{text:?} is not name=host:port, such as r1=10.0.0.1:2380"),
    };
    let (name, addr) = text.split_once('=').ok_or_else(wrong)?;
    let (host, port) = addr.rsplit_once(':').ok_or_else(wrong)?;
    if name.trim().is_empty() || host.trim().is_empty() || port.trim().parse::<u16>().is_err() {
        return Err(wrong());
    }
    Ok(InitialMember { name: name.trim().to_owned(), peer_addr: addr.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_members_are_read_or_refused_with_an_example() {
        let member = initial_member("r1=[::1]:2380").unwrap();
        assert_eq!((member.name.as_str(), member.peer_addr.as_str()), ("r1", "[::1]:2380"));
        for bad in ["", "r1", "r1=", "r1=host", "=host:1", "r1=host:x", "r1=:1"] {
            let error = initial_member(bad).unwrap_err().to_string();
            assert!(error.contains("cluster.initial") && error.contains("r1=10.0.0.1:2380"), "{error}");
        }
    }

    #[test]
    fn a_replica_alone_forms_a_cluster_of_one() {
        let options = ReplicaOptions { advertise_peer: "me:7".to_owned(), ..ReplicaOptions::default() };
        let any = SocketAddr::from(([127, 0, 0, 1], 99));
        let raft = options.raft(any, any).unwrap();
        assert_eq!(raft.initial, [InitialMember { name: "r1".to_owned(), peer_addr: "me:7".to_owned() }]);
        assert_eq!((raft.peer_addr.as_str(), raft.client_addr.as_str()), ("me:7", "127.0.0.1:99"));
        let every = SocketAddr::from(([0, 0, 0, 0], 99));
        let Err(error) = options.raft(every, any) else { panic!("0.0.0.0 was advertised") };
        assert!(error.to_string().starts_with("advertise.client: must be set"), "{error}");
    }
}
