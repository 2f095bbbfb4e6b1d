//! The leader's reading of lease time.
//!
//! Lease time is part of the state: it moves only by the stamps of batches. A leader starts counting once it has
//! applied the first entry of its own term (by then the state holds every stamp of earlier terms), from the state's
//! lease time, by its own monotonic clock. So it advances by at most the time the leader led, and stands still
//! while nobody leads. A stamp of another term than its entry's is ignored by the state.

use std::sync::Arc;
use std::time::Duration;

use meta_types::LeaseStamp;
use meta_types::controls::{Control, active};
use meta_types::seams::Clock;
use parking_lot::Mutex;

#[derive(Debug, Clone, Copy)]
struct Base {
    term: u64,
    lease_time_ms: u64,
    at: Duration,
}

/// Reads lease time in the terms this replica has applied entries of.
pub(crate) struct LeaseClock {
    clock: Arc<dyn Clock>,
    base: Mutex<Option<Base>>,
}

impl LeaseClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, base: Mutex::new(None) }
    }

    /// An entry of `term` was applied, after which the state's lease time is `lease_time_ms`.
    pub(crate) fn on_applied(&self, term: u64, lease_time_ms: u64) {
        let mut base = self.base.lock();
        // Positive control: time goes on from the first entry this replica ever applied, leader or not.
        if active(Control::LeaseTimeWithoutLeader)
            && let Some(running) = &mut *base
        {
            running.term = running.term.max(term);
        }
        if base.is_none_or(|b| b.term < term) {
            *base = Some(Base { term, lease_time_ms, at: self.clock.now() });
        }
    }

    /// The stamp for a batch that a leader proposes in `term`; none before it applied an entry of that term.
    pub(crate) fn stamp(&self, term: u64) -> Option<LeaseStamp> {
        let base = (*self.base.lock()).filter(|b| b.term == term)?;
        let elapsed = self.clock.now().saturating_sub(base.at).as_millis() as u64;
        Some(LeaseStamp { term, lease_time_ms: base.lease_time_ms.saturating_add(elapsed) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Manual(AtomicU64);

    impl Clock for Manual {
        fn now(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn counts_from_the_first_applied_entry_of_the_term_only() {
        let time = Arc::new(Manual::default());
        let clock = LeaseClock::new(time.clone());
        assert_eq!(clock.stamp(1), None);
        time.0.store(1000, Ordering::Relaxed);
        clock.on_applied(1, 50);
        time.0.store(1200, Ordering::Relaxed);
        clock.on_applied(1, 260);
        assert_eq!(clock.stamp(1), Some(LeaseStamp { term: 1, lease_time_ms: 250 }));
        assert_eq!(clock.stamp(2), None, "a term that was not applied has no reading");
        clock.on_applied(2, 260);
        time.0.store(1300, Ordering::Relaxed);
        assert_eq!(clock.stamp(2), Some(LeaseStamp { term: 2, lease_time_ms: 360 }));
        assert_eq!(clock.stamp(1), None, "a deposed term has no reading");
    }
}
