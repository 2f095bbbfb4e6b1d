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
    changed: Notify,
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

    /// Running uses.
    pub fn count(&self, op: &str) -> usize {
        self.shared.held.lock().get(op).copied().unwrap_or(0)
    }

    /// Returns when a use ended after the call.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.shared.held.lock();
        if let Some(count) = held.get_mut(&self.op) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.op);
            }
        }
        self.shared.changed.notify_one();
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
}
