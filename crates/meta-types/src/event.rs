//! What a watch delivers.

use std::sync::Arc;

use crate::kv::{KeyValue, Revision};

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was put.
    Put,
    /// It was deleted, revoked or expired; `kv` then has only key and mod revision.
    Delete,
}

/// One change of one key, shared by all that look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The version after it.
    pub kv: Arc<KeyValue>,
    /// The version before it, if there was one and it was not compacted away.
    pub prev: Option<Arc<KeyValue>>,
}

/// All changes of one revision, in the order of its operations (an expired lease's keys by key).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionEvents {
    /// The revision.
    pub revision: Revision,
    /// Its changes; never empty.
    pub events: Arc<[Event]>,
}
