//! The clocks: virtual time as the simulation counts it, and each replica's own idea of it, which may be slow or
//! stand still. None runs fast by more than 1 %: a machine whose monotonic clock does breaks the assumption that
//! leases rest on.

use std::sync::Arc;
use std::time::Duration;

use meta_types::seams::Clock;
use parking_lot::Mutex;

/// Virtual time since the start of the seed. Only on a simulated host.
pub fn virtual_now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// A replica's clock. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct SimClock(Arc<Mutex<Pace>>);

/// `value` at virtual time `since`, and from there on `per_mille` thousandths of the pace of time.
#[derive(Debug)]
struct Pace {
    since: Duration,
    value: Duration,
    per_mille: u32,
}

/// The pace of a clock that is right.
pub const RIGHT: u32 = 1000;

impl SimClock {
    /// A clock that is right so far.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Pace { since: Duration::ZERO, value: Duration::ZERO, per_mille: RIGHT })))
    }

    /// From the virtual time `now` on it runs at another pace.
    pub fn set_pace(&self, now: Duration, per_mille: u32) {
        let mut pace = self.0.lock();
        let value = pace.at(now);
        *pace = Pace { since: now, value, per_mille };
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    fn at(&self, now: Duration) -> Duration {
        self.value + now.saturating_sub(self.since) * self.per_mille / RIGHT
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        self.0.lock().at(virtual_now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_slow_stays_behind() {
        let clock = SimClock::new();
        let at = |ms: u64| clock.0.lock().at(Duration::from_millis(ms));
        assert_eq!(at(100), Duration::from_millis(100));
        clock.set_pace(Duration::from_millis(100), 500);
        assert_eq!(at(300), Duration::from_millis(200));
        clock.set_pace(Duration::from_millis(300), RIGHT);
        assert_eq!(at(400), Duration::from_millis(300));
    }
}
