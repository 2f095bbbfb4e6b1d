//! Typed keys: a key's string form is pinned by its type, and says what record lies under it.

use std::fmt::Debug;

use meta_types::{KeyValue, LeaseId, Revision};

use crate::record::{Record, RecordError, from_bytes};

/// A key whose string form and record are fixed. `decode(encode(k)) == k` for every key.
pub trait TypedKey:
    Sized + Clone + Debug + PartialEq + Eq + PartialOrd + Ord + Send + Sync + 'static
{
    /// What lies under the key.
    type Value: Record;
    /// What all keys of the kind start with.
    const PREFIX: &'static str;

    /// The string form.
    fn encode(&self) -> String;
    /// Reads a string form; `None` if it is not a key of this kind.
    fn decode(key: &str) -> Option<Self>;
}

/// A record as it was read: the value and the revisions that guards are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<T> {
    /// The record.
    pub value: T,
    /// When this generation of the key was created: an owner's epoch, a node's incarnation.
    pub create_revision: Revision,
    /// When it was last written.
    pub mod_revision: Revision,
    /// The lease it hangs on; 0 = none.
    pub lease: LeaseId,
}

impl<T: Record> Stored<T> {
    /// Reads the record of a key-value pair.
    pub fn read(kv: &KeyValue) -> Result<Self, RecordError> {
        Ok(Self {
            value: from_bytes(&kv.value)?,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            lease: kv.lease,
        })
    }
}

impl<T> std::ops::Deref for Stored<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}
