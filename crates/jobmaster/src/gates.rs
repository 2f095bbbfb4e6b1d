//! What this process itself knows of running code: files of a package are deleted only while nothing here runs on
//! them, whatever the store says. Creates that are being carried are counted in the same way.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Counts running uses by the package's operation. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    held: Mutex<HashMap<String, usize>>,
    waiting: Mutex<HashMap<String, usize>>,
    changed: Notify,
}

/// A use that waits for the copy: it is held, and nothing of it runs yet.
#[derive(Debug)]
pub struct Waiting {
    op: String,
    shared: Arc<Shared>,
}

/// A running use. Dropped when nothing of it runs any more.
#[derive(Debug)]
pub struct Hold {
    op: String,
    shared: Arc<Shared>,
}

impl Gates {
    /// Begins a use.
    pub fn hold(&self, op: &str) -> Hold {
        *self.shared.held.lock().entry(op.to_owned()).or_default() += 1;
        Hold { op: op.to_owned(), shared: self.shared.clone() }
    }

    /// Uses, running or about to.
    pub fn count(&self, op: &str) -> usize {
        self.shared.held.lock().get(op).copied().unwrap_or(0)
    }

    /// Says that a held use still waits for the copy. Dropped with the turn of the operation still held, so that who
    /// has the turn knows what runs.
    pub fn wait(&self, op: &str) -> Waiting {
        *self.shared.waiting.lock().entry(op.to_owned()).or_default() += 1;
        Waiting { op: op.to_owned(), shared: self.shared.clone() }
    }

    /// Uses that may have opened something: those that do not wait for the copy any more.
    pub fn running(&self, op: &str) -> usize {
        // In this order: a use that begins in between is counted as one that runs, never the other way round.
        let waiting = self.shared.waiting.lock().get(op).copied().unwrap_or(0);
        self.count(op).saturating_sub(waiting)
    }

    /// Returns when a use ended after the call.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        one_less(&self.shared.held, &self.op);
        self.shared.changed.notify_one();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        one_less(&self.shared.waiting, &self.op);
    }
}

fn one_less(counts: &Mutex<HashMap<String, usize>>, op: &str) {
    let mut counts = counts.lock();
    if let Some(count) = counts.get_mut(op) {
        *count -= 1;
        if *count == 0 {
            counts.remove(op);
        }
    }
}

/// One lock an operation: who changes this node's copy of a package does it alone.
#[derive(Debug, Default)]
pub struct Turns {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// The lock of an operation.
    pub fn of(&self, op: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        // Those that nobody holds or waits for any more.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(op.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_use_counts_until_it_is_dropped() {
        let gates = Gates::default();
        let (a, b) = (gates.hold("op"), gates.hold("op"));
        assert_eq!(gates.count("op"), 2);
        drop(a);
        drop(b);
        assert_eq!(gates.count("op"), 0);
        gates.changed().await;
    }

    #[test]
    fn a_use_that_waits_for_the_copy_does_not_run_on_it() {
        let gates = Gates::default();
        let (_runs, _starts) = (gates.hold("op"), gates.hold("op"));
        let waiting = gates.wait("op");
        assert_eq!((gates.count("op"), gates.running("op")), (2, 1));
        drop(waiting);
        assert_eq!(gates.running("op"), 2);
    }
}
