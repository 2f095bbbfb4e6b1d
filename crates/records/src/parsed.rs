//! Following views without looking at everything in each: [`Changes`] answers which records of a kind changed since
//! the last view, [`Parsed`] keeps them all parsed. Both cost as much as what changed, for views that a mirror made
//! one from another; for others they compare revisions.

use std::collections::BTreeMap;

use bytes::Bytes;
use meta_client::{Snapshot, Stored, TypedKey};
use meta_types::{KeyValue, Revision};

use crate::view::View;

/// What changed among the records of one kind since the last look.
pub struct Changes<K> {
    last: Snapshot,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: TypedKey> Default for Changes<K> {
    fn default() -> Self {
        Self { last: Snapshot::default(), kind: std::marker::PhantomData }
    }
}

impl<K: TypedKey> Changes<K> {
    /// Keys that are another record than at the last look, and that record; `None` if it is gone or cannot be read
    /// (an invariant names it). At the first look: all there are.
    pub fn since(&mut self, view: &View) -> Vec<(K, Option<Stored<K::Value>>)> {
        let found = differing::<K>(view, &self.last)
            .filter_map(|(key, now)| {
                let key = K::decode(std::str::from_utf8(&key).ok()?)?;
                Some((key, now.and_then(|kv| Stored::read(kv).ok())))
            })
            .collect();
        self.last = view.snapshot().clone();
        found
    }

    /// The same without reading the records: true = it is there.
    pub fn keys_since(&mut self, view: &View) -> Vec<(K, bool)> {
        let found = differing::<K>(view, &self.last)
            .filter_map(|(key, now)| Some((K::decode(std::str::from_utf8(&key).ok()?)?, now.is_some())))
            .collect();
        self.last = view.snapshot().clone();
        found
    }
}

fn differing<'a, K: TypedKey>(
    view: &'a View,
    last: &'a Snapshot,
) -> impl Iterator<Item = (Bytes, Option<&'a std::sync::Arc<KeyValue>>)> {
    let differences = view.snapshot().differences(last, K::PREFIX.as_bytes());
    differences.into_iter().filter_map(|(was, is)| Some((was.or(is)?.key.clone(), is)))
}

/// The records of one kind as of the last view, by key.
pub struct Parsed<K: TypedKey> {
    changes: Changes<K>,
    records: BTreeMap<Bytes, (K, Stored<K::Value>)>,
}

impl<K: TypedKey> Default for Parsed<K> {
    fn default() -> Self {
        Self { changes: Changes::default(), records: BTreeMap::new() }
    }
}

impl<K: TypedKey + Clone> Parsed<K> {
    /// Takes over what a view has; answers the keys that changed. Records that cannot be read are left out.
    pub fn update(&mut self, view: &View) -> Vec<K> {
        let mut changed = Vec::new();
        for (key, record) in self.changes.since(view) {
            changed.push(key.clone());
            let encoded = Bytes::from(key.encode());
            match record {
                Some(record) => self.records.insert(encoded, (key, record)),
                None => self.records.remove(&encoded),
            };
        }
        changed
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
