//! The replica's state and where it comes from: shared by apply, checkpoints and readers.

use std::sync::Arc;

use meta_core::Core;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::types::StoredMembership;

/// The state. `membership` and `installs` change only while `core` is write-locked, so whoever holds that lock
/// sees all three at one log position.
pub(crate) struct State {
    pub(crate) core: Arc<RwLock<Core>>,
    pub(crate) membership: Mutex<StoredMembership>,
    /// How often a checkpoint replaced the state. A long walk over it checks that it is still the same one.
    installs: Mutex<u64>,
    applied: watch::Sender<Option<u64>>,
    /// Positive control: the index that is on record apart from the data.
    #[cfg(feature = "positive-controls")]
    pub(crate) recorded: Mutex<Option<meta_core::EntryPosition>>,
}

impl State {
    pub(crate) fn new(core: Core, membership: StoredMembership) -> Self {
        let applied = watch::Sender::new(core.applied().map(|at| at.index));
        Self {
            core: Arc::new(RwLock::new(core)),
            membership: Mutex::new(membership),
            installs: Mutex::new(0),
            applied,
            #[cfg(feature = "positive-controls")]
            recorded: Mutex::new(None),
        }
    }

    /// Puts another state in place of this one; returns the old.
    pub(crate) fn replace(&self, core: Core, membership: StoredMembership) -> Core {
        let mut current = self.core.write();
        let index = core.applied().map(|at| at.index);
        let old = std::mem::replace(&mut *current, core);
        *self.membership.lock() = membership;
        *self.installs.lock() += 1;
        drop(current);
        self.applied.send_replace(index);
        old
    }

    /// How often the state was replaced.
    pub(crate) fn installs(&self) -> u64 {
        *self.installs.lock()
    }

    /// Readers may look: the state shows the entry.
    pub(crate) fn announce(&self, index: u64) {
        self.applied.send_replace(Some(index));
    }

    /// Follows the applied index.
    pub(crate) fn applied(&self) -> watch::Receiver<Option<u64>> {
        self.applied.subscribe()
    }
}
