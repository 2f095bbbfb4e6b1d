//! Which ranges an event touches. Watches of the same range are one group; a group is found by key for single
//! keys, by length for prefixes, by a walk for the rest.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use meta_types::KeyRange;
use meta_types::kv::prefix_end;

use super::hub::WatchKey;

/// The watches of one range.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) members: Vec<WatchKey>,
}

/// A group's place: stable until the group is empty.
pub(crate) type GroupId = usize;

/// Groups by range.
#[derive(Debug, Default)]
pub(crate) struct Index {
    groups: Vec<Option<Group>>,
    free: Vec<GroupId>,
    singles: HashMap<Bytes, GroupId>,
    prefixes: HashMap<Bytes, GroupId>,
    /// Lengths of the prefixes there are, with how many of each.
    lengths: BTreeMap<usize, usize>,
    ranges: Vec<(KeyRange, GroupId)>,
}

enum Kind {
    Single,
    Prefix,
    Other,
}

fn kind(range: &KeyRange) -> Kind {
    if range.is_single() {
        Kind::Single
    } else if !range.key.is_empty() && range.end == prefix_end(&range.key) {
        Kind::Prefix
    } else {
        Kind::Other
    }
}

impl Index {
    pub(crate) fn insert(&mut self, range: &KeyRange, watch: WatchKey) {
        let id = match self.find(range) {
            Some(id) => id,
            None => self.add_group(range),
        };
        if let Some(group) = &mut self.groups[id] {
            group.members.push(watch);
        }
    }

    pub(crate) fn remove(&mut self, range: &KeyRange, watch: WatchKey) {
        let Some(id) = self.find(range) else { return };
        let Some(group) = &mut self.groups[id] else { return };
        group.members.retain(|member| *member != watch);
        if group.members.is_empty() {
            self.drop_group(range, id);
        }
    }

    /// Calls `found` with each group whose range contains `key`.
    pub(crate) fn matching(&self, key: &[u8], mut found: impl FnMut(GroupId)) {
        if let Some(id) = self.singles.get(key) {
            found(*id);
        }
        for length in self.lengths.keys().take_while(|length| **length <= key.len()) {
            if let Some(id) = self.prefixes.get(&key[..*length]) {
                found(*id);
            }
        }
        for (range, id) in &self.ranges {
            if range.contains(key) {
                found(*id);
            }
        }
    }

    pub(crate) fn group(&self, id: GroupId) -> &[WatchKey] {
        self.groups.get(id).and_then(Option::as_ref).map_or(&[], |group| &group.members)
    }

    fn find(&self, range: &KeyRange) -> Option<GroupId> {
        match kind(range) {
            Kind::Single => self.singles.get(&range.key).copied(),
            Kind::Prefix => self.prefixes.get(&range.key).copied(),
            Kind::Other => self.ranges.iter().find(|(other, _)| other == range).map(|(_, id)| *id),
        }
    }

    fn add_group(&mut self, range: &KeyRange) -> GroupId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.groups.push(None);
            self.groups.len() - 1
        });
        self.groups[id] = Some(Group::default());
        match kind(range) {
            Kind::Single => {
                self.singles.insert(range.key.clone(), id);
            }
            Kind::Prefix => {
                self.prefixes.insert(range.key.clone(), id);
                *self.lengths.entry(range.key.len()).or_default() += 1;
            }
            Kind::Other => self.ranges.push((range.clone(), id)),
        }
        id
    }

    fn drop_group(&mut self, range: &KeyRange, id: GroupId) {
        match kind(range) {
            Kind::Single => {
                self.singles.remove(&range.key);
            }
            Kind::Prefix => {
                self.prefixes.remove(&range.key);
                if let Some(count) = self.lengths.get_mut(&range.key.len()) {
                    *count -= 1;
                    if *count == 0 {
                        self.lengths.remove(&range.key.len());
                    }
                }
            }
            Kind::Other => self.ranges.retain(|(_, other)| *other != id),
        }
        self.groups[id] = None;
        self.free.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(index: &Index, key: &str) -> Vec<WatchKey> {
        let mut all = Vec::new();
        index.matching(key.as_bytes(), |id| all.extend_from_slice(index.group(id)));
        all.sort_unstable();
        all
    }

    #[test]
    fn finds_what_a_walk_over_all_ranges_would() {
        let ranges = [
            KeyRange::one("a"),
            KeyRange::one("a/b"),
            KeyRange::prefix("a"),
            KeyRange::prefix("a/"),
            KeyRange::between("a", "b0"),
            KeyRange::between("b", "\0"),
            KeyRange::prefix(""),
            KeyRange::prefix(&b"\xff"[..]),
            KeyRange::prefix("a"),
        ];
        let mut index = Index::default();
        for (i, range) in ranges.iter().enumerate() {
            index.insert(range, i as WatchKey);
        }
        let mut alive = vec![true; ranges.len()];
        for gone in [None, Some(2), Some(6), Some(4), Some(8)] {
            if let Some(i) = gone {
                index.remove(&ranges[i], i as WatchKey);
                alive[i] = false;
            }
            for key in ["a", "a/b", "ab", "b", "b0", "c", "a/", "\u{ff}"] {
                let expected: Vec<_> = (0..ranges.len())
                    .filter(|i| alive[*i] && ranges[*i].contains(key.as_bytes()))
                    .map(|i| i as WatchKey)
                    .collect();
                assert_eq!(hits(&index, key), expected, "key {key:?} after removing {gone:?}");
            }
        }
        for (i, range) in ranges.iter().enumerate() {
            index.remove(range, i as WatchKey);
        }
        assert!(index.lengths.is_empty() && index.ranges.is_empty() && index.prefixes.is_empty());
        assert_eq!(index.free.len(), index.groups.len());
    }
}
