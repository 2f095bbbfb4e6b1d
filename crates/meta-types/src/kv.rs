//! Keys, values and the four ways to touch them, with etcd's meaning.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A store revision: an empty store answers at 1, each effective write takes exactly the next.
pub type Revision = i64;

/// A lease's id; 0 means "no lease".
pub type LeaseId = i64;

/// One version of a key, as etcd's `mvccpb.KeyValue`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Revision of the put that created this generation of the key.
    pub create_revision: Revision,
    /// Revision of the last put.
    pub mod_revision: Revision,
    /// Number of puts since the key was created; 1 for a new key.
    pub version: i64,
    /// The lease the key hangs on; 0 = none.
    pub lease: LeaseId,
}

/// A set of keys in etcd's encoding: `end` empty = the one key, `end` = `"\0"` = all keys >= `key`,
/// both `"\0"` = every key, else the half-open range `[key, end)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key.
    pub key: Bytes,
    /// End of the range, see the type.
    pub end: Bytes,
}

impl KeyRange {
    /// The one key.
    pub fn one(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), end: Bytes::new() }
    }

    /// Every key that starts with `prefix`; the empty prefix is every key.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let key: Bytes = prefix.into();
        if key.is_empty() {
            return Self { key: Bytes::from_static(b"\0"), end: Bytes::from_static(b"\0") };
        }
        let end = prefix_end(&key);
        Self { key, end }
    }

    /// `[key, end)`.
    pub fn between(key: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { key: key.into(), end: end.into() }
    }

    /// True if the range names a single key.
    pub fn is_single(&self) -> bool {
        self.end.is_empty()
    }

    /// True if the range has no upper bound.
    pub fn is_from_key(&self) -> bool {
        self.end.as_ref() == b"\0"
    }

    /// True if `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        if self.is_single() {
            self.key.as_ref() == key
        } else {
            self.key.as_ref() <= key && (self.is_from_key() || key < self.end.as_ref())
        }
    }
}

/// The smallest key above every key with this prefix; `"\0"` (no bound) if there is none.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return Bytes::from(end);
        }
    }
    Bytes::from_static(b"\0")
}

/// Order of a range's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SortOrder {
    /// By key, ascending (etcd: a target other than KEY makes it ascending).
    #[default]
    None,
    /// Ascending.
    Ascend,
    /// Descending.
    Descend,
}

/// What a range is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key,
    /// The version.
    Version,
    /// The create revision.
    Create,
    /// The modification revision.
    Mod,
    /// The value.
    Value,
}

/// A read of a range, with all of etcd's options.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RangeRequest {
    /// Which keys.
    pub range: KeyRange,
    /// At most so many keys; <= 0 = all.
    pub limit: i64,
    /// At this revision; <= 0 = newest.
    pub revision: Revision,
    /// Order.
    pub sort_order: SortOrder,
    /// Sorted by.
    pub sort_target: SortTarget,
    /// A local read that may be stale.
    pub serializable: bool,
    /// Leave the values out.
    pub keys_only: bool,
    /// Only count.
    pub count_only: bool,
    /// Filter; 0 = off. `count` is not filtered.
    pub min_mod_revision: Revision,
    /// Filter; 0 = off.
    pub max_mod_revision: Revision,
    /// Filter; 0 = off.
    pub min_create_revision: Revision,
    /// Filter; 0 = off.
    pub max_create_revision: Revision,
}

impl RangeRequest {
    /// Read one key.
    pub fn get(key: impl Into<Bytes>) -> Self {
        Self { range: KeyRange::one(key), ..Self::default() }
    }

    /// Read a prefix.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        Self { range: KeyRange::prefix(prefix), ..Self::default() }
    }
}

/// Answer of a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RangeReply {
    /// The keys found, shared with the store.
    pub kvs: Vec<Arc<KeyValue>>,
    /// True if `limit` cut the answer.
    pub more: bool,
    /// Keys in the range before limit and filters.
    pub count: i64,
}

/// A put.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PutRequest {
    /// The key; not empty.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Lease to attach; 0 detaches.
    pub lease: LeaseId,
    /// Answer with the previous version.
    pub prev_kv: bool,
    /// Keep the current value; the key must exist.
    pub ignore_value: bool,
    /// Keep the current lease; the key must exist.
    pub ignore_lease: bool,
}

/// Answer of a put.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutReply {
    /// The version before, if asked for and there was one.
    pub prev_kv: Option<Arc<KeyValue>>,
}

/// A delete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeleteRangeRequest {
    /// Which keys.
    pub range: KeyRange,
    /// Answer with the deleted versions.
    pub prev_kv: bool,
}

/// Answer of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteRangeReply {
    /// Number of keys deleted.
    pub deleted: i64,
    /// What was deleted, if asked for.
    pub prev_kvs: Vec<Arc<KeyValue>>,
}
