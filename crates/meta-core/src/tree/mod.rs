//! A counted, persistent B-tree: cloning is one pointer, a clone never changes, and the number of weighted entries
//! in any range is known in O(log n).
//!
//! Nodes are shared through `Arc` and copied when a shared one is written, so that a checkpoint or a long read can
//! hold the whole map at one position while writes go on. Each child carries the weight of all below it; a walk
//! may skip subtrees of weight 0 (keys that are deleted but not yet compacted).

mod node;
mod walk;

use std::sync::Arc;

use self::node::Node;
pub(crate) use self::walk::Walk;

/// What an entry counts for.
pub(crate) trait Weigh {
    /// The weight of this entry; the same until the entry is modified through the tree.
    fn weight(&self) -> u64;
}

/// The map, see the module.
pub(crate) struct Tree<K, V> {
    root: Arc<Node<K, V>>,
    weight: u64,
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self { root: Arc::clone(&self.root), weight: self.weight }
    }
}

impl<K: Ord + Clone, V: Weigh + Clone> Tree<K, V> {
    /// An empty map.
    pub(crate) fn new() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), weight: 0 }
    }

    /// A map of entries that come in strictly ascending order of keys (not checked); linear time.
    pub(crate) fn from_sorted(entries: impl Iterator<Item = (K, V)>) -> Self {
        let (root, weight) = node::build(entries);
        Self { root: Arc::new(root), weight }
    }

    /// The weight of all entries.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// The entry of `key`.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.root.get(key)
    }

    /// Changes the entry of `key`, which is a default one if there was none.
    pub(crate) fn alter<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        let altered = node::alter(&mut self.root, key, change);
        if let Some(right) = altered.split {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new())));
            self.root = Arc::new(Node::grow(left, right));
        }
        self.weight = self.weight + altered.after - altered.before;
        altered.result
    }

    /// Changes the entry of `key` if there is one.
    pub(crate) fn modify<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let (result, before, after) = node::modify(&mut self.root, key, change)?;
        self.weight = self.weight + after - before;
        Some(result)
    }

    /// Takes the entry of `key` out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let old = node::remove(&mut self.root, key)?;
        self.weight -= old.weight();
        while let Some(only) = self.root.only_child() {
            self.root = only;
        }
        Some(old)
    }

    /// The weight of all entries with a key below `key`.
    pub(crate) fn rank(&self, key: &K) -> u64 {
        self.root.rank(key)
    }

    /// Every entry from `from` on (from the first without it), ascending.
    pub(crate) fn ascend(&self, from: Option<&K>) -> Walk<'_, K, V> {
        Walk::ascending(&self.root, from)
    }

    /// Every entry below `below` (from the last without it), descending.
    pub(crate) fn descend(&self, below: Option<&K>) -> Walk<'_, K, V> {
        Walk::descending(&self.root, below)
    }
}

#[cfg(test)]
mod tests;
