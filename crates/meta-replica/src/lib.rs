//! One replica: the client protocol over consensus and the state.
//!
//! ```text
//!            one port: gRPC and HTTP/1                    peer port
//!  client ──> server ──> services, http ──> consensus ──> meta-raft ──> meta-core
//!                          │      │                          │ hook
//!                          │      └─ reads the state         v
//!                          └──────── watch hub <───────── feed
//! ```
//!
//! * [`Replica`] is the whole life: ports first, then the cluster, then serving.
//! * `services`: a file for each gRPC service; `http`: probes and `GET /kv`.
//! * [`mod@watch`]: how every change reaches every watch.
//! * `leader`, `lease_expiry`, `upkeep`: what a replica does without being asked.
//! * [`consensus::Consensus`]: the seam to Raft.

pub mod call;
pub mod consensus;
mod context;
mod http;
mod leader;
mod lease_expiry;
mod metrics;
pub mod options;
mod quota;
pub mod replica;
mod server;
mod services;
mod upkeep;
pub mod watch;

pub use options::ReplicaOptions;
pub use replica::{Ports, Replica, StartError};

/// The version of etcd's API that is spoken here; clients parse it.
pub const ETCD_VERSION: &str = "3.7.0";
/// The same, as the cluster's.
pub const CLUSTER_VERSION: &str = "3.7.0";
