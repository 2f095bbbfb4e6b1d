//! A consistent piece of the store at one revision, cheap to clone: what planners look at.

use std::sync::Arc;

use meta_types::{Event, EventKind, KeyRange, KeyValue, Op, OpReply, RangeRequest, Revision, Txn};

use crate::kv::{Kv, KvError};
use crate::pieces::Pieces;

/// The keys of some ranges, all as of one revision.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    revision: Revision,
    covers: Arc<Vec<KeyRange>>,
    keys: Pieces,
}

/// A key before and after: absent on one side if it came or went.
pub type Change<'a> = (Option<&'a Arc<KeyValue>>, Option<&'a Arc<KeyValue>>);

impl Snapshot {
    /// Makes a snapshot from what was read.
    pub fn new(
        revision: Revision,
        covers: Vec<KeyRange>,
        kvs: impl IntoIterator<Item = Arc<KeyValue>>,
    ) -> Self {
        Self { revision, covers: Arc::new(covers), keys: kvs.into_iter().collect() }
    }

    /// Reads the ranges at one revision, linearizably.
    pub async fn load(kv: &dyn Kv, ranges: Vec<KeyRange>) -> Result<Self, KvError> {
        let read =
            |range: &KeyRange| Op::Range(RangeRequest { range: range.clone(), ..RangeRequest::default() });
        let txn = Txn { success: ranges.iter().map(read).collect(), ..Txn::default() };
        let reply = kv.txn(txn).await?;
        let kvs = reply.value.replies.into_iter().flat_map(|reply| match reply {
            OpReply::Range(range) => range.kvs,
            OpReply::Put(_) | OpReply::DeleteRange(_) => Vec::new(),
        });
        Ok(Self::new(reply.revision, ranges, kvs))
    }

    /// The revision all of it is of.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The ranges that were read: outside them nothing is known.
    pub fn covers(&self) -> &[KeyRange] {
        &self.covers
    }

    /// True if `key` lies in what was read, so that its absence means something.
    pub fn covers_key(&self, key: &[u8]) -> bool {
        self.covers.iter().any(|range| range.contains(key))
    }

    /// True if every key with this prefix lies in what was read.
    pub fn covers_prefix(&self, prefix: &[u8]) -> bool {
        let end = meta_types::kv::prefix_end(prefix);
        self.covers.iter().any(|range| {
            !range.is_single()
                && range.contains(prefix)
                && (range.is_from_key() || (end.as_ref() != b"\0" && end <= range.end))
        })
    }

    /// One key.
    pub fn get(&self, key: &[u8]) -> Option<&Arc<KeyValue>> {
        self.keys.get(key)
    }

    /// Every key with the prefix, ascending.
    pub fn scan<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a Arc<KeyValue>> + 'a {
        self.keys.from(prefix).take_while(move |kv| kv.key.starts_with(prefix))
    }

    /// Every key, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<KeyValue>> {
        self.keys.iter()
    }

    /// What is another than in an earlier snapshot, among the keys with the prefix: what was there, what is there
    /// now. Costs as much as what changed, if this one was made from that one by [`Snapshot::advance`].
    pub fn differences<'a>(&'a self, before: &'a Self, prefix: &[u8]) -> Vec<Change<'a>> {
        self.keys.differences(&before.keys, prefix)
    }

    /// Moves on to `revision`. Clones stay as they are and share what did not change.
    pub fn advance(&mut self, revision: Revision, events: &[Event]) {
        for event in events.iter().filter(|event| event.kv.mod_revision > self.revision) {
            if !self.covers_key(&event.kv.key) {
                continue;
            }
            match event.kind {
                EventKind::Put => self.keys.insert(Arc::clone(&event.kv)),
                EventKind::Delete => self.keys.remove(&event.kv.key),
            }
        }
        self.revision = self.revision.max(revision);
    }
}
