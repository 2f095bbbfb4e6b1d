//! Figures of a dispatcher.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What became of a run request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    /// `accepted`, `repeated`, `refused`, `limited` or `unknown`.
    pub outcome: &'static str,
}

/// Which reconciler.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reconciler {
    /// `runs`, `placement` or `packages`.
    pub name: &'static str,
}

const OUTCOMES: [&str; 5] = ["accepted", "repeated", "refused", "limited", "unknown"];
const RECONCILERS: [&str; 3] = ["runs", "placement", "packages"];

/// The counters; clones share them.
#[derive(Debug, Clone, Default)]
pub struct FrontMetrics {
    /// Run requests by what became of them.
    pub runs: Family<Outcome, Counter>,
    /// JARs uploaded.
    pub uploads: Counter,
    /// Transactions that reconcilers carried out.
    pub reconciled: Family<Reconciler, Counter>,
    /// Rounds of reconcilers that failed and are tried again.
    pub reconcile_failures: Family<Reconciler, Counter>,
    /// Runs taken over from a dispatcher that is gone.
    pub adopted: Counter,
}

impl FrontMetrics {
    /// Registers them.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("metastore_dispatcher");
        registry.register("run_requests", "Run requests by outcome", self.runs.clone());
        registry.register("jar_uploads", "JARs uploaded", self.uploads.clone());
        registry.register("reconciled", "Transactions of reconcilers", self.reconciled.clone());
        registry.register(
            "reconcile_failures",
            "Failed rounds of reconcilers",
            self.reconcile_failures.clone(),
        );
        registry.register("runs_adopted", "Runs taken over from a lost dispatcher", self.adopted.clone());
        // A figure that is zero is shown, so that it can be watched before it is needed.
        for outcome in OUTCOMES {
            drop(self.runs.get_or_create(&Outcome { outcome }));
        }
        for name in RECONCILERS {
            drop(self.reconciled.get_or_create(&Reconciler { name }));
            drop(self.reconcile_failures.get_or_create(&Reconciler { name }));
        }
    }

    /// Counts a run request.
    pub fn run(&self, outcome: &'static str) {
        self.runs.get_or_create(&Outcome { outcome }).inc();
    }
}
