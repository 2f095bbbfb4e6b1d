//! What tests that need real processes share: a cluster started by `deploy/local-cluster.sh`, waiters, small REST
//! and command-line clients. A failing test keeps its directory and prints it.

pub mod binaries;
pub mod cluster;
pub mod ctl;
pub mod fake_java;
pub mod loopback;
pub mod rest;
pub mod wait;

pub use cluster::{Cluster, ClusterOptions};
pub use ctl::Ctl;
pub use loopback::own_address;
pub use rest::Rest;
pub use wait::{eventually, eventually_async};
