//! The quota: a local decision before a proposal, never part of applying one.

use std::sync::atomic::{AtomicBool, Ordering};

use meta_core::Core;

/// Bytes in use against the quota. Raised above it; lifts itself under nine tenths of it.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: u64,
    counts_history: bool,
    exceeded: AtomicBool,
}

impl Quota {
    pub(crate) fn new(limit: u64, counts_history: bool) -> Self {
        Self { limit, counts_history, exceeded: AtomicBool::new(false) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }

    /// Looks at the state again; to be called often.
    pub(crate) fn look(&self, core: &Core) {
        let history = if self.counts_history { core.history_bytes() } else { 0 };
        self.set(core.live_bytes() + history);
    }

    fn set(&self, used: u64) {
        let before = self.is_exceeded();
        let bound = if before { self.limit / 10 * 9 } else { self.limit };
        let now = used > bound;
        if now == before {
            return;
        }
        self.exceeded.store(now, Ordering::Relaxed);
        if now {
            tracing::warn!(
                used,
                quota = self.limit,
                "quota exceeded: puts are refused until keys are deleted"
            );
        } else {
            tracing::info!(used, quota = self.limit, "under the quota again: puts are taken");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifts_itself_under_nine_tenths() {
        let quota = Quota::new(100, false);
        for (used, exceeded) in [(100, false), (101, true), (95, true), (90, false), (95, false), (101, true)]
        {
            quota.set(used);
            assert_eq!(quota.is_exceeded(), exceeded, "at {used}");
        }
    }
}
