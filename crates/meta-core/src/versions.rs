//! The versions of one key, oldest first: puts and tombstones above the compact revision, and the one that was
//! current at it.

use std::sync::Arc;

use meta_types::{KeyValue, Revision};
use smallvec::SmallVec;

use crate::tree::Weigh;

/// One version. A tombstone is a key-value of version 0 that has only key and mod revision, as in a delete event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// The version, shared with answers and events.
    pub(crate) kv: Arc<KeyValue>,
    /// Its place among the events of its revision.
    pub(crate) sub: u32,
}

impl Version {
    pub(crate) fn is_live(&self) -> bool {
        self.kv.version > 0
    }

    fn live(&self) -> Option<&Arc<KeyValue>> {
        self.is_live().then_some(&self.kv)
    }
}

/// Never empty while it is in the tree; mod revisions strictly ascend.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KeyVersions(SmallVec<[Version; 1]>);

impl KeyVersions {
    pub(crate) fn new(first: Version) -> Self {
        Self(SmallVec::from_buf([first]))
    }

    /// The newest version, if the key is live.
    pub(crate) fn current(&self) -> Option<&Arc<KeyValue>> {
        self.0.last().and_then(Version::live)
    }

    /// What was current at `revision`, if the key was live then.
    pub(crate) fn at(&self, revision: Revision) -> Option<&Arc<KeyValue>> {
        let next = self.0.partition_point(|version| version.kv.mod_revision <= revision);
        self.0[..next].last().and_then(Version::live)
    }

    pub(crate) fn push(&mut self, version: Version) {
        debug_assert!(self.0.last().is_none_or(|last| last.kv.mod_revision < version.kv.mod_revision));
        self.0.push(version);
    }

    /// The versions that a compaction at `compact` keeps: all above it and the one current at it. A tombstone
    /// below it goes; one exactly at it stays, because a watch from the compact revision must still see it.
    pub(crate) fn retained(&self, compact: Revision) -> &[Version] {
        let next = self.0.partition_point(|version| version.kv.mod_revision <= compact);
        let Some(current) = next.checked_sub(1) else { return &self.0 };
        let version = &self.0[current];
        let gone = !version.is_live() && version.kv.mod_revision < compact;
        &self.0[current + usize::from(gone)..]
    }

    /// Drops what `retained` leaves out, handing each dropped version to `dropped`; true if nothing is left.
    pub(crate) fn compact(&mut self, compact: Revision, mut dropped: impl FnMut(&Version)) -> bool {
        let drop = self.0.len() - self.retained(compact).len();
        self.0.drain(..drop).for_each(|version| dropped(&version));
        if self.0.is_empty() {
            return true;
        }
        if drop > 0 {
            self.0.shrink_to_fit();
        }
        false
    }
}

impl Weigh for KeyVersions {
    fn weight(&self) -> u64 {
        u64::from(self.current().is_some())
    }
}
