//! Threads as tasks: what blocks for the disk takes simulated time first and is done in no time then.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meta_raft::{BoxFuture, Priority, Workers};

use super::chance::Chance;

/// How long a disk takes; shared with whoever makes it slow.
#[derive(Debug, Clone)]
pub struct DiskSpeed {
    min_us: Arc<AtomicU64>,
    max_us: Arc<AtomicU64>,
}

impl DiskSpeed {
    /// An operation takes from `min` to `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        let speed = Self { min_us: Arc::default(), max_us: Arc::default() };
        speed.set(min, max);
        speed
    }

    /// From now on it takes from `min` to `max`.
    pub fn set(&self, min: Duration, max: Duration) {
        self.min_us.store(min.as_micros() as u64, Ordering::Relaxed);
        self.max_us.store(max.as_micros() as u64, Ordering::Relaxed);
    }
}

/// The threads of one replica.
#[derive(Debug, Clone)]
pub struct SimWorkers {
    /// How long its disk takes.
    pub speed: DiskSpeed,
    /// Chance.
    pub chance: Chance,
}

impl SimWorkers {
    fn time(&self) -> Duration {
        let (min, max) = (&self.speed.min_us, &self.speed.max_us);
        let (min, max) = (min.load(Ordering::Relaxed), max.load(Ordering::Relaxed));
        Duration::from_micros(self.chance.within(min, max.max(min)))
    }
}

impl Workers for SimWorkers {
    fn dedicated(&self, _: &str, _: Priority, work: BoxFuture<'static, ()>) -> io::Result<()> {
        tokio::spawn(work);
        Ok(())
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        let time = self.time();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            work();
        });
    }

    fn disk_time(&self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(tokio::time::sleep(self.time())))
    }
}
