//! Records of one kind, parsed once per version: a reconciler that looks at thousands of records on every change must
//! not parse those that did not change.

use std::collections::BTreeMap;

use bytes::Bytes;
use meta_client::{Stored, TypedKey};
use meta_types::Revision;
use records::View;

/// The records of one kind as of the last view, by key.
pub struct Parsed<K: TypedKey> {
    records: BTreeMap<Bytes, (K, Stored<K::Value>)>,
}

impl<K: TypedKey> Default for Parsed<K> {
    fn default() -> Self {
        Self { records: BTreeMap::new() }
    }
}

impl<K: TypedKey> Parsed<K> {
    /// Takes over what a view has. Records that cannot be read are left out: an invariant names them.
    pub fn update(&mut self, view: &View) {
        let mut before = std::mem::take(&mut self.records);
        for kv in view.snapshot().scan(K::PREFIX.as_bytes()) {
            let known = before.remove(&kv.key).filter(|(_, record)| record.mod_revision == kv.mod_revision);
            let read = || {
                let key = K::decode(std::str::from_utf8(&kv.key).ok()?)?;
                Some((key, Stored::read(kv).ok()?))
            };
            if let Some(record) = known.or_else(read) {
                self.records.insert(kv.key.clone(), record);
            }
        }
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Stored<K::Value>)> {
        self.records.values().map(|(key, record)| (key, record))
    }

    /// One of them.
    pub fn get(&self, key: &K) -> Option<&Stored<K::Value>> {
        self.records.get(key.encode().as_bytes()).map(|(_, record)| record)
    }
}

/// When a key was last written in a view; 0 = it is absent.
pub fn mod_revision<K: TypedKey>(view: &View, key: &K) -> Revision {
    view.snapshot().get(key.encode().as_bytes()).map_or(0, |kv| kv.mod_revision)
}
