//! A sorted map in pieces that copies share: taking a copy is O(1), a change copies one piece, and what differs
//! between two copies is found by looking only into pieces they do not share. With one sorted map, each change would
//! cost a mirror a copy of everything it holds, and each reader a look at all of it.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use meta_types::KeyValue;

/// A piece with more keys is split.
const MAX: usize = 128;

type Piece = Arc<Vec<Arc<KeyValue>>>;

/// Keys and what they hold, ascending.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces {
    /// None is empty.
    pieces: Arc<Vec<Piece>>,
}

/// Where a key is or would be: the piece, and the place in it.
#[derive(Debug, Clone, Copy)]
struct At(usize, usize);

/// One difference: what stood there, what stands there now.
pub(crate) type Difference<'a> = (Option<&'a Arc<KeyValue>>, Option<&'a Arc<KeyValue>>);

impl FromIterator<Arc<KeyValue>> for Pieces {
    /// Of several with one key the last counts.
    fn from_iter<I: IntoIterator<Item = Arc<KeyValue>>>(kvs: I) -> Self {
        let mut all: Vec<Arc<KeyValue>> = kvs.into_iter().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all.dedup_by(|later, first| {
            let same = later.key == first.key;
            if same {
                std::mem::swap(later, first);
            }
            same
        });
        Self { pieces: Arc::new(all.chunks(MAX / 2).map(|piece| Arc::new(piece.to_vec())).collect()) }
    }
}

impl Pieces {
    fn find(&self, key: &[u8]) -> Result<At, At> {
        let after =
            self.pieces.partition_point(|piece| piece.first().is_some_and(|kv| kv.key.as_ref() <= key));
        let Some(piece) = after.checked_sub(1) else { return Err(At(0, 0)) };
        match self.pieces[piece].binary_search_by(|kv| kv.key.as_ref().cmp(key)) {
            Ok(place) => Ok(At(piece, place)),
            Err(place) => Err(At(piece, place)),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Arc<KeyValue>> {
        self.find(key).ok().and_then(|at| self.at(at))
    }

    pub(crate) fn insert(&mut self, kv: Arc<KeyValue>) {
        let found = self.find(&kv.key);
        let pieces = Arc::make_mut(&mut self.pieces);
        if pieces.is_empty() {
            pieces.push(Arc::default());
        }
        let (Ok(At(at, place)) | Err(At(at, place))) = found;
        let piece = Arc::make_mut(&mut pieces[at]);
        match found {
            Ok(_) => piece[place] = kv,
            Err(_) => piece.insert(place, kv),
        }
        if piece.len() > MAX {
            let second = piece.split_off(MAX / 2);
            pieces.insert(at + 1, Arc::new(second));
        }
    }

    pub(crate) fn remove(&mut self, key: &Bytes) {
        let Ok(At(at, place)) = self.find(key) else { return };
        let pieces = Arc::make_mut(&mut self.pieces);
        Arc::make_mut(&mut pieces[at]).remove(place);
        // Small ones are joined, so that their number stays in proportion to the keys.
        let next = pieces.get(at + 1).map(|next| next.len());
        if pieces[at].is_empty() {
            pieces.remove(at);
        } else if next.is_some_and(|next| next + pieces[at].len() < MAX / 4) {
            let next = pieces.remove(at + 1);
            Arc::make_mut(&mut pieces[at]).extend(next.iter().cloned());
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<KeyValue>> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    /// From `start` on.
    pub(crate) fn from(&self, start: &[u8]) -> impl Iterator<Item = &Arc<KeyValue>> {
        let (Ok(At(at, place)) | Err(At(at, place))) = self.find(start);
        let first = self.pieces.get(at).into_iter().flat_map(move |piece| piece[place..].iter());
        first.chain(self.pieces.iter().skip(at + 1).flat_map(|piece| piece.iter()))
    }

    fn at(&self, At(piece, place): At) -> Option<&Arc<KeyValue>> {
        self.pieces.get(piece)?.get(place)
    }

    /// The next place at which something stands.
    fn settle(&self, at: At) -> At {
        if self.pieces.get(at.0).is_some_and(|piece| at.1 >= piece.len()) { At(at.0 + 1, 0) } else { at }
    }

    /// What differs from `before` among the keys with the prefix, ascending.
    pub(crate) fn differences<'a>(&'a self, before: &'a Self, prefix: &[u8]) -> Vec<Difference<'a>> {
        let mut found = Vec::new();
        let (Ok(mut old) | Err(mut old)) = before.find(prefix);
        let (Ok(mut new) | Err(mut new)) = self.find(prefix);
        loop {
            (old, new) = (before.settle(old), self.settle(new));
            if let (Some(one), Some(other)) = (before.pieces.get(old.0), self.pieces.get(new.0))
                && old.1 == new.1
                && Arc::ptr_eq(one, other)
            {
                (old, new) = (At(old.0 + 1, 0), At(new.0 + 1, 0));
                continue;
            }
            let was = before.at(old).filter(|kv| kv.key.starts_with(prefix));
            let is = self.at(new).filter(|kv| kv.key.starts_with(prefix));
            let order = match (was, is) {
                (None, None) => return found,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(was), Some(is)) => was.key.cmp(&is.key),
            };
            match order {
                Ordering::Less => found.push((was, None)),
                Ordering::Greater => found.push((None, is)),
                Ordering::Equal if was.map(|kv| kv.mod_revision) != is.map(|kv| kv.mod_revision) => {
                    found.push((was, is));
                }
                Ordering::Equal => {}
            }
            if order.is_le() {
                old.1 += 1;
            }
            if order.is_ge() {
                new.1 += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn kv(key: String, mod_revision: i64) -> Arc<KeyValue> {
        Arc::new(KeyValue {
            key: key.into(),
            value: Bytes::new(),
            create_revision: 1,
            mod_revision,
            version: 1,
            lease: 0,
        })
    }

    /// A small generator: the test needs variety, not quality.
    fn next(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    fn shape(map: &BTreeMap<Bytes, i64>, prefix: &[u8]) -> Vec<(Bytes, i64)> {
        map.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(key, rev)| (key.clone(), *rev)).collect()
    }

    #[test]
    fn it_is_a_sorted_map_and_knows_what_differs() {
        let mut seed = 7;
        let (mut pieces, mut model) = (Pieces::default(), BTreeMap::new());
        let (mut old, mut old_model) = (pieces.clone(), model.clone());
        for revision in 1..6_000 {
            let key =
                format!("/{}/{:03}", ["a", "b", "c"][next(&mut seed) as usize % 3], next(&mut seed) % 300);
            // Grows, then shrinks.
            if next(&mut seed) % 10 < if revision < 3_000 { 7 } else { 2 } {
                pieces.insert(kv(key.clone(), revision));
                model.insert(Bytes::from(key), revision);
            } else {
                pieces.remove(&Bytes::from(key.clone()));
                model.remove(key.as_bytes());
            }
            if !next(&mut seed).is_multiple_of(40) {
                continue;
            }
            for prefix in ["", "/a/", "/b/", "/b/1", "/c/", "/d"] {
                let prefix = prefix.as_bytes();
                let scanned = pieces.from(prefix).take_while(|kv| kv.key.starts_with(prefix));
                let scanned: Vec<_> = scanned.map(|kv| (kv.key.clone(), kv.mod_revision)).collect();
                assert_eq!(scanned, shape(&model, prefix));
                let mut rebuilt: BTreeMap<Bytes, i64> = shape(&old_model, prefix).into_iter().collect();
                for (was, is) in pieces.differences(&old, prefix) {
                    let key = was.or(is).unwrap().key.clone();
                    assert_eq!(rebuilt.get(&key).copied(), was.map(|kv| kv.mod_revision));
                    assert_ne!(was.map(|kv| kv.mod_revision), is.map(|kv| kv.mod_revision));
                    match is {
                        Some(is) => rebuilt.insert(key, is.mod_revision),
                        None => rebuilt.remove(&key),
                    };
                }
                assert_eq!(rebuilt, shape(&model, prefix).into_iter().collect());
            }
            (old, old_model) = (pieces.clone(), model.clone());
        }
        assert!(pieces.pieces.iter().all(|piece| (1..=MAX).contains(&piece.len())));
    }

    #[test]
    fn a_change_touches_one_piece() {
        let before: Pieces = (0..5_000).map(|n| kv(format!("/job/{n:05}"), 1)).collect();
        let mut after = before.clone();
        after.insert(kv("/job/02500".into(), 2));
        after.insert(kv("/job/99999".into(), 3));
        let shared =
            after.pieces.iter().filter(|one| before.pieces.iter().any(|other| Arc::ptr_eq(one, other)));
        assert_eq!(shared.count(), before.pieces.len() - 2);
        assert_eq!(after.differences(&before, b"/job/").len(), 2);
    }

    #[test]
    fn of_one_key_read_twice_the_last_counts() {
        let pieces: Pieces =
            [kv("/b".into(), 2), kv("/a".into(), 1), kv("/b".into(), 3)].into_iter().collect();
        let read: Vec<_> = pieces.iter().map(|kv| (kv.key.clone(), kv.mod_revision)).collect();
        assert_eq!(read, [(Bytes::from("/a"), 1), (Bytes::from("/b"), 3)]);
    }
}
