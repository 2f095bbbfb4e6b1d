//! The seams to the world that replica code goes through, so that the same code runs in a simulator: time and
//! chance here, disks in `meta-store`, networks in `meta-raft`.

use std::time::Duration;

/// A monotonic clock. Never the wall clock.
pub trait Clock: Send + Sync + 'static {
    /// Time since some fixed start; never goes back.
    fn now(&self) -> Duration;
}

/// A source of chance.
pub trait Rng: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}
