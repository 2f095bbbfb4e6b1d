//! Figures of a server node.

use process_kit::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// How something ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct End {
    /// In one word.
    pub end: &'static str,
}

/// Figures of a server node.
#[derive(Debug, Clone, Default)]
pub struct NodeMetrics {
    /// Attempts that run now.
    pub running: Gauge,
    /// Attempts that ended.
    pub attempts: Family<End, Counter>,
    /// Packages fetched from peers, or not.
    pub fetches: Family<End, Counter>,
    /// Bytes of packages given to other nodes.
    pub blob_bytes: Counter,
    /// Creates coordinated here.
    pub creates: Family<End, Counter>,
    /// Registers coordinated here.
    pub registers: Family<End, Counter>,
}

impl NodeMetrics {
    /// Registers them.
    pub fn register(metrics: &Metrics) -> Self {
        let ours = Self::default();
        metrics.with(|registry| {
            let m = ours.clone();
            registry.register(
                "metastore_jobmaster_running_attempts",
                "Attempts of jobs that run now",
                m.running,
            );
            registry.register("metastore_jobmaster_attempts", "Attempts of jobs that ended", m.attempts);
            registry.register("metastore_icp_fetches", "Packages fetched from other nodes", m.fetches);
            registry.register(
                "metastore_icp_blob_bytes",
                "Bytes of packages given to other nodes",
                m.blob_bytes,
            );
            registry.register("metastore_icp_creates", "Packages created with this coordinator", m.creates);
            registry.register(
                "metastore_icp_registers",
                "Packages registered with this coordinator",
                m.registers,
            );
        });
        ours
    }
}
