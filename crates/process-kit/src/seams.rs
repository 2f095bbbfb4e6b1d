//! The real clock and the real chance, behind the seams of `meta-types`.

use std::time::{Duration, Instant};

use meta_types::seams::{Clock, Rng};

/// The machine's monotonic clock, counted from its making.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        rand::random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back_and_chance_varies() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert_ne!(SystemRng.next_u64(), SystemRng.next_u64());
    }
}
