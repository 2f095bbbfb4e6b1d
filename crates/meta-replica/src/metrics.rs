//! The replica's figures. Names, meanings and units are listed in `docs/metrics.md`; gauges are read when
//! scraped.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};

use meta_types::seams::Clock;
use process_kit::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tonic::Status;

use crate::context::Context;
use crate::watch::Feed;

/// A method of the client protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rpc {
    Range,
    RangeStream,
    Put,
    DeleteRange,
    Txn,
    Compact,
    LeaseGrant,
    LeaseRevoke,
    LeaseKeepAlive,
    LeaseTimeToLive,
    LeaseLeases,
    MemberList,
    Status,
}

impl Rpc {
    const ALL: [Self; 13] = [
        Self::Range,
        Self::RangeStream,
        Self::Put,
        Self::DeleteRange,
        Self::Txn,
        Self::Compact,
        Self::LeaseGrant,
        Self::LeaseRevoke,
        Self::LeaseKeepAlive,
        Self::LeaseTimeToLive,
        Self::LeaseLeases,
        Self::MemberList,
        Self::Status,
    ];
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    method: MethodName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MethodName(Rpc);

impl EncodeLabelValue for MethodName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        fmt::Write::write_fmt(encoder, format_args!("{:?}", self.0))
    }
}

/// Handles of what is counted as it happens. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaMetrics {
    calls: Arc<[Call]>,
    pub(crate) leases_expired: Counter,
    pub(crate) compactions: Counter,
    scraped: Arc<Scraped>,
}

#[derive(Debug)]
struct Call {
    seconds: Histogram,
    failed: Counter,
}

impl ReplicaMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        // 50 us to 3.3 s, by factors of two and a half.
        let family = || Histogram::new(exponential_buckets(0.000_05, 2.5, 13));
        let seconds = Family::<Method, Histogram, fn() -> Histogram>::new_with_constructor(family);
        let failed = Family::<Method, Counter>::default();
        let method = |rpc: &Rpc| Method { method: MethodName(*rpc) };
        let calls = Rpc::ALL.iter().map(|rpc| Call {
            seconds: seconds.get_or_create(&method(rpc)).clone(),
            failed: failed.get_or_create(&method(rpc)).clone(),
        });
        let this = Self {
            calls: calls.collect(),
            leases_expired: Counter::default(),
            compactions: Counter::default(),
            scraped: Arc::new(Scraped::default()),
        };
        metrics.with(|registry| {
            registry.register("metastore_rpc_seconds", "Time of calls answered without an error", seconds);
            registry.register("metastore_rpc_failed", "Calls answered with an error", failed);
            let expired = this.leases_expired.clone();
            registry.register(
                "metastore_leases_expired",
                "Leases this replica, leading, proposed to revoke",
                expired,
            );
            let compactions = this.compactions.clone();
            registry.register(
                "metastore_auto_compactions",
                "Compactions this replica, leading, proposed",
                compactions,
            );
            registry.register_collector(Box::new(this.scraped.clone()));
        });
        this
    }

    /// Runs a call and counts it.
    pub(crate) async fn measure<T>(
        &self,
        clock: &Arc<dyn Clock>,
        rpc: Rpc,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let start = clock.now();
        let answer = call.await;
        let counted = &self.calls[rpc as usize];
        match &answer {
            Ok(_) => counted.seconds.observe(clock.now().saturating_sub(start).as_secs_f64()),
            Err(_) => drop(counted.failed.inc()),
        }
        answer
    }

    /// Names what the gauges are read from.
    pub(crate) fn attach(&self, context: &Arc<Context>, feed: &Arc<Feed>) {
        // Attached once, at the start.
        let _ = self.scraped.source.set((Arc::downgrade(context), feed.clone()));
    }
}

/// Gauges, read at the scrape.
#[derive(Default)]
struct Scraped {
    source: OnceLock<(Weak<Context>, Arc<Feed>)>,
}

impl fmt::Debug for Scraped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraped").finish_non_exhaustive()
    }
}

impl Collector for Scraped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some((context, feed)) = self.source.get() else { return Ok(()) };
        let Some(context) = context.upgrade() else { return Ok(()) };
        for (name, help, value) in gauges(&context) {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let (delivered, ended) = context.hub.totals();
        for (name, help, value) in [
            ("metastore_watch_events", "Events handed to watch streams", delivered),
            ("metastore_watch_compacted", "Watches ended because their history was compacted", ended),
            (
                "metastore_watch_feed_dropped",
                "Batches the watch dispatcher read again from history",
                feed.dropped(),
            ),
        ] {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

fn gauges(context: &Context) -> Vec<(&'static str, &'static str, i64)> {
    let watches = context.hub.counts();
    let (revision, compacted, live, history, leases) = {
        let core = context.core.read();
        let (live, history) = (core.live_bytes(), core.history_bytes());
        (core.revision(), core.compact_revision(), live, history, core.leases().len())
    };
    let status = context.status.borrow().clone();
    let flag = i64::from;
    vec![
        ("metastore_revision", "Revision of the last effective write applied here", revision),
        ("metastore_compact_revision", "History below this revision is gone", compacted),
        ("metastore_live_bytes", "Bytes of keys and values of current versions", live as i64),
        ("metastore_history_bytes", "Bytes of older versions, tombstones and events", history as i64),
        ("metastore_quota_bytes", "Live bytes above which puts are refused", context.quota.limit() as i64),
        ("metastore_quota_exceeded", "1 while puts are refused", flag(context.quota.is_exceeded())),
        ("metastore_leases", "Leases there are", leases as i64),
        ("metastore_watch_streams", "Open watch streams", watches.streams as i64),
        ("metastore_watches", "Watches on them", watches.watches as i64),
        ("metastore_watches_lagging", "Watches being brought back from history", watches.lagging as i64),
        ("metastore_raft_term", "Current term", status.term as i64),
        (
            "metastore_raft_committed_index",
            "Index of the last committed entry known here",
            status.committed as i64,
        ),
        ("metastore_raft_applied_index", "Index of the last entry in the state", status.applied as i64),
        ("metastore_raft_log_index", "Index of the last entry in the log", status.last_log as i64),
        ("metastore_raft_is_leader", "1 on the leader", flag(status.is_leader())),
        (
            "metastore_raft_has_leader",
            "1 while a leader with a majority answers",
            flag(*context.has_leader.borrow()),
        ),
        ("metastore_raft_members", "Members of the cluster", status.members.len() as i64),
        ("metastore_serving", "1 once a leader confirmed this replica's log", flag(status.serving)),
    ]
}
