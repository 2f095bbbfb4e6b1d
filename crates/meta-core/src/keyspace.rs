//! The keys with all their versions: writing one version at a time, compaction, and the running figures (hash,
//! bytes) of what is held.

use std::sync::Arc;

use bytes::Bytes;
use meta_types::{Event, EventKind, KeyValue, LeaseId, Refusal, Revision, RevisionEvents};

use crate::hash::{Sum, of_key_value};
use crate::history::{History, without_previous};
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use crate::versions::Version;

/// What an old version or a tombstone is taken to cost in memory beside its key and value.
pub(crate) const VERSION_OVERHEAD: u64 = 160;
/// What a remembered event is taken to cost.
pub(crate) const EVENT_OVERHEAD: u64 = 96;

/// The keyspace, see the module.
pub(crate) struct Keyspace {
    /// What reads see; in the middle of a write its tree is ahead of its revision.
    pub(crate) now: Snapshot,
    /// What happened from the compact revision on; older revisions are dropped step by step.
    history: History,
    /// True if the versions below the compact revision are gone from memory too.
    swept: bool,
    live_bytes: u64,
    history_bytes: u64,
    hash: Sum,
}

impl Keyspace {
    pub(crate) fn new() -> Self {
        let now = Snapshot { tree: Tree::new(), revision: 1, compact_revision: -1 };
        Self::restore(now, History::default(), Figures::default())
    }

    /// A keyspace whose parts and figures were read back from a checkpoint.
    pub(crate) fn restore(now: Snapshot, history: History, figures: Figures) -> Self {
        let Figures { live_bytes, history_bytes, hash } = figures;
        Self { now, history, swept: true, live_bytes, history_bytes, hash }
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn history_bytes(&self) -> u64 {
        self.history_bytes
    }

    pub(crate) fn hash(&self) -> Sum {
        self.hash
    }

    /// Writes the next version of a key as the `sub`-th event of `revision`. `content` gives value and lease,
    /// knowing the version before.
    pub(crate) fn put(
        &mut self,
        key: &Bytes,
        (revision, sub): (Revision, u32),
        content: impl FnOnce(Option<&KeyValue>) -> (Bytes, LeaseId),
    ) -> Event {
        let (kv, prev) = self.now.tree.alter(key, |versions| {
            let prev = versions.current().cloned();
            let (value, lease) = content(prev.as_deref());
            let kv = Arc::new(KeyValue {
                key: prev.as_ref().map_or_else(|| key.clone(), |prev| prev.key.clone()),
                value,
                create_revision: prev.as_ref().map_or(revision, |prev| prev.create_revision),
                mod_revision: revision,
                version: prev.as_ref().map_or(1, |prev| prev.version + 1),
                lease,
            });
            versions.push(Version { kv: Arc::clone(&kv), sub });
            (kv, prev)
        });
        self.live_bytes += size(&kv);
        self.hash.add(of_key_value(&kv));
        self.supersede(prev.as_deref());
        Event { kind: EventKind::Put, kv, prev }
    }

    /// Ends a live key as the `sub`-th event of `revision`; `None` if it is not live.
    pub(crate) fn delete(&mut self, key: &Bytes, (revision, sub): (Revision, u32)) -> Option<Event> {
        let (kv, prev) = self.now.tree.modify(key, |versions| {
            let prev = Arc::clone(versions.current()?);
            let kv = KeyValue { key: prev.key.clone(), mod_revision: revision, ..KeyValue::default() };
            let kv = Arc::new(kv);
            versions.push(Version { kv: Arc::clone(&kv), sub });
            Some((kv, prev))
        })??;
        self.history_bytes += size(&kv) + VERSION_OVERHEAD;
        self.supersede(Some(&prev));
        Some(Event { kind: EventKind::Delete, kv, prev: Some(prev) })
    }

    /// Moves a version from the living to the history.
    fn supersede(&mut self, prev: Option<&KeyValue>) {
        if let Some(prev) = prev {
            self.live_bytes -= size(prev);
            self.history_bytes += size(prev) + VERSION_OVERHEAD;
            self.hash.remove(of_key_value(prev));
        }
    }

    /// Ends a write: the next revision is now.
    pub(crate) fn commit(&mut self, events: RevisionEvents) {
        self.now.revision = events.revision;
        self.history_bytes += EVENT_OVERHEAD * events.events.len() as u64;
        self.history.push(events);
    }

    /// Makes everything below `revision` unreadable at once; `sweep` frees the memory.
    pub(crate) fn compact(&mut self, revision: Revision) -> Result<(), Refusal> {
        if revision <= self.now.compact_revision {
            return Err(Refusal::Compacted { compact_revision: self.now.compact_revision() });
        }
        if revision > self.now.revision {
            return Err(Refusal::FutureRevision);
        }
        self.now.compact_revision = revision;
        self.swept = false;
        Ok(())
    }

    /// Frees what compactions made unreadable, at most about `budget` events; true if nothing is left to free.
    pub(crate) fn sweep(&mut self, budget: usize) -> bool {
        let mut left = budget;
        while !self.swept {
            if left == 0 {
                return false;
            }
            match self.history.first() {
                Some(first) if first < self.now.compact_revision => {
                    let Some(old) = self.history.pop() else { break };
                    self.history_bytes -= EVENT_OVERHEAD * old.events.len() as u64;
                    self.sweep_keys(&old);
                    left = left.saturating_sub(old.events.len());
                }
                _ => {
                    // The compact revision itself stays, but what it replaced goes.
                    let at_floor = self.history.from(self.now.compact_revision).next().cloned();
                    at_floor.iter().for_each(|revision| self.sweep_keys(revision));
                    self.swept = true;
                }
            }
        }
        true
    }

    fn sweep_keys(&mut self, revision: &RevisionEvents) {
        let Self { now, history_bytes, .. } = self;
        for event in revision.events.iter() {
            let key = &event.kv.key;
            let compact_revision = now.compact_revision;
            let is_empty = now.tree.modify(key, |versions| {
                versions.compact(compact_revision, |old| *history_bytes -= size(&old.kv) + VERSION_OVERHEAD)
            });
            if is_empty == Some(true) {
                now.tree.remove(key);
            }
        }
    }

    /// Whole revisions from `from` on, at most about `max` events but at least one revision.
    pub(crate) fn history(&self, from: Revision, max: usize) -> Result<Vec<RevisionEvents>, Refusal> {
        if from < self.now.compact_revision {
            return Err(Refusal::Compacted { compact_revision: self.now.compact_revision() });
        }
        let mut found = Vec::new();
        let mut events = 0;
        for revision in self.history.from(from) {
            if events > 0 && events + revision.events.len() > max {
                break;
            }
            events += revision.events.len();
            let at_floor = revision.revision == self.now.compact_revision;
            found.push(if at_floor { without_previous(revision) } else { revision.clone() });
        }
        Ok(found)
    }

    /// The revision to compact to so that the history shrinks to `max_bytes`; `None` if it is within, or if an
    /// earlier compaction is still being swept.
    pub(crate) fn compaction_for(&self, max_bytes: u64) -> Option<Revision> {
        if !self.swept || self.history_bytes <= max_bytes {
            return None;
        }
        let mut bytes = self.history_bytes;
        for revision in self.history.from(self.now.compact_revision) {
            for event in revision.events.iter() {
                let prev = event.prev.as_ref().map_or(0, |prev| size(prev) + VERSION_OVERHEAD);
                bytes = bytes.saturating_sub(prev + EVENT_OVERHEAD);
            }
            if bytes <= max_bytes {
                return Some((revision.revision + 1).min(self.now.revision));
            }
        }
        Some(self.now.revision)
    }
}

/// The running figures of a keyspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) live_bytes: u64,
    pub(crate) history_bytes: u64,
    pub(crate) hash: Sum,
}

/// Bytes of a version's key and value.
pub(crate) fn size(kv: &KeyValue) -> u64 {
    (kv.key.len() + kv.value.len()) as u64
}
