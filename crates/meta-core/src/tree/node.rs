//! Nodes of the tree: search, copy-on-write insertion, change and removal, bulk building.

use std::sync::Arc;

use super::Weigh;

/// Most entries of a leaf, or children of a branch. Wide enough for a flat tree, narrow enough that copying a
/// shared node costs a microsecond.
pub(super) const MAX: usize = 32;
/// A node with fewer is joined with its neighbour.
const MIN: usize = MAX / 4;

/// A subtree, its weight, and a lower bound of its keys that is above every key of the child before it.
#[derive(Clone)]
pub(super) struct Child<K, V> {
    pub(super) first: K,
    pub(super) weight: u64,
    pub(super) node: Arc<Node<K, V>>,
}

#[derive(Clone)]
pub(super) enum Node<K, V> {
    Leaf(Vec<(K, V)>),
    Branch(Vec<Child<K, V>>),
}

/// The child that `key` belongs to.
pub(super) fn child_index<K: Ord, V>(children: &[Child<K, V>], key: &K) -> usize {
    children.partition_point(|child| child.first <= *key).saturating_sub(1)
}

fn weight_of<K, V: Weigh>(entries: &[(K, V)]) -> u64 {
    entries.iter().map(|(_, value)| value.weight()).sum()
}

impl<K: Ord + Clone, V: Weigh + Clone> Node<K, V> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Branch(children) => children.len(),
        }
    }

    fn weight(&self) -> u64 {
        match self {
            Self::Leaf(entries) => weight_of(entries),
            Self::Branch(children) => children.iter().map(|child| child.weight).sum(),
        }
    }

    fn first(&self) -> Option<&K> {
        match self {
            Self::Leaf(entries) => entries.first().map(|(key, _)| key),
            Self::Branch(children) => children.first().map(|child| &child.first),
        }
    }

    /// A new root above a split one.
    pub(super) fn grow(left: Arc<Self>, right: Child<K, V>) -> Self {
        // A root that was split holds entries; its bound only has to be below the right half's.
        let first = left.first().unwrap_or(&right.first).clone();
        let weight = left.weight();
        Self::Branch(vec![Child { first, weight, node: left }, right])
    }

    /// The only child, if this is a branch of one.
    pub(super) fn only_child(&self) -> Option<Arc<Self>> {
        match self {
            Self::Branch(children) if children.len() == 1 => Some(Arc::clone(&children[0].node)),
            Self::Branch(_) | Self::Leaf(_) => None,
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let mut node = self;
        loop {
            match node {
                Self::Leaf(entries) => {
                    let at = entries.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
                    return Some(&entries[at].1);
                }
                Self::Branch(children) => node = &children[child_index(children, key)].node,
            }
        }
    }

    pub(super) fn rank(&self, key: &K) -> u64 {
        let mut node = self;
        let mut below = 0;
        loop {
            match node {
                Self::Leaf(entries) => {
                    let at = entries.partition_point(|(k, _)| k < key);
                    return below + weight_of(&entries[..at]);
                }
                Self::Branch(children) => {
                    let at = child_index(children, key);
                    below += children[..at].iter().map(|child| child.weight).sum::<u64>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// Splits an overfull node; the right half comes back.
    fn split(&mut self) -> Option<Child<K, V>> {
        if self.len() <= MAX {
            return None;
        }
        let half = self.len() / 2;
        let right = match self {
            Self::Leaf(entries) => Self::Leaf(entries.split_off(half)),
            Self::Branch(children) => Self::Branch(children.split_off(half)),
        };
        let first = right.first()?.clone();
        Some(Child { first, weight: right.weight(), node: Arc::new(right) })
    }

    fn append(&mut self, right: Self) {
        match (self, right) {
            (Self::Leaf(left), Self::Leaf(mut right)) => left.append(&mut right),
            (Self::Branch(left), Self::Branch(mut right)) => left.append(&mut right),
            _ => unreachable!("siblings have the same height"),
        }
    }
}

/// What `alter` did below a node.
pub(super) struct Altered<K, V, R> {
    pub(super) result: R,
    /// Weight of the entry before; 0 if there was none.
    pub(super) before: u64,
    /// Weight of the entry after.
    pub(super) after: u64,
    /// The right half, if the node was split.
    pub(super) split: Option<Child<K, V>>,
}

/// Changes the value of `key`, which is a default one if there was none.
pub(super) fn alter<K: Ord + Clone, V: Weigh + Clone + Default, R>(
    node: &mut Arc<Node<K, V>>,
    key: &K,
    change: impl FnOnce(&mut V) -> R,
) -> Altered<K, V, R> {
    let node = Arc::make_mut(node);
    let mut altered = match node {
        Node::Leaf(entries) => {
            let found = entries.binary_search_by(|(k, _)| k.cmp(key));
            let (at, before) = match found {
                Ok(at) => (at, entries[at].1.weight()),
                Err(at) => {
                    entries.insert(at, (key.clone(), V::default()));
                    (at, 0)
                }
            };
            let value = &mut entries[at].1;
            let result = change(value);
            Altered { result, before, after: value.weight(), split: None }
        }
        Node::Branch(children) => {
            let at = child_index(children, key);
            let child = &mut children[at];
            if *key < child.first {
                child.first = key.clone();
            }
            let mut altered = alter(&mut child.node, key, change);
            child.weight = child.weight + altered.after - altered.before;
            if let Some(right) = altered.split.take() {
                child.weight -= right.weight;
                children.insert(at + 1, right);
            }
            altered
        }
    };
    altered.split = node.split();
    altered
}

/// Changes the value of `key` if there is one: the result, the weight before, the weight after.
pub(super) fn modify<K: Ord + Clone, V: Weigh + Clone, R>(
    node: &mut Arc<Node<K, V>>,
    key: &K,
    change: impl FnOnce(&mut V) -> R,
) -> Option<(R, u64, u64)> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            let at = entries.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
            let value = &mut entries[at].1;
            let before = value.weight();
            let result = change(value);
            Some((result, before, value.weight()))
        }
        Node::Branch(children) => {
            let at = child_index(children, key);
            let child = &mut children[at];
            let (result, before, after) = modify(&mut child.node, key, change)?;
            child.weight = child.weight + after - before;
            Some((result, before, after))
        }
    }
}

/// Removes `key`; a node that gets too small is joined with its neighbour.
pub(super) fn remove<K: Ord + Clone, V: Weigh + Clone>(node: &mut Arc<Node<K, V>>, key: &K) -> Option<V> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            let at = entries.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
            Some(entries.remove(at).1)
        }
        Node::Branch(children) => {
            let at = child_index(children, key);
            let child = &mut children[at];
            let old = remove(&mut child.node, key)?;
            child.weight -= old.weight();
            if child.node.len() < MIN && children.len() > 1 {
                join(children, at.saturating_sub(1));
            }
            Some(old)
        }
    }
}

/// Joins the children at `left` and `left + 1`, and splits the result evenly if it is overfull.
fn join<K: Ord + Clone, V: Weigh + Clone>(children: &mut Vec<Child<K, V>>, left: usize) {
    let right = children.remove(left + 1);
    let target = &mut children[left];
    target.weight += right.weight;
    let node = Arc::make_mut(&mut target.node);
    node.append(Arc::try_unwrap(right.node).unwrap_or_else(|shared| (*shared).clone()));
    if let Some(split) = node.split() {
        target.weight -= split.weight;
        children.insert(left + 1, split);
    }
}

/// Builds a tree of sorted entries, level by level: the root and its weight.
pub(super) fn build<K: Ord + Clone, V: Weigh + Clone>(
    entries: impl Iterator<Item = (K, V)>,
) -> (Node<K, V>, u64) {
    let mut entries = entries.peekable();
    let mut level = Vec::new();
    while entries.peek().is_some() {
        // Three quarters full: room for inserts, and the last leaf of any number of entries is merely small.
        let leaf: Vec<(K, V)> = entries.by_ref().take(MAX * 3 / 4).collect();
        level.push(child_of(Node::Leaf(leaf)));
    }
    while level.len() > 1 {
        let mut above = Vec::with_capacity(level.len() / MIN + 1);
        let mut rest = level.into_iter().peekable();
        while rest.peek().is_some() {
            above.push(child_of(Node::Branch(rest.by_ref().take(MAX * 3 / 4).collect())));
        }
        level = above;
    }
    match level.pop() {
        Some(root) => {
            let node = Arc::try_unwrap(root.node).unwrap_or_else(|shared| (*shared).clone());
            (node, root.weight)
        }
        None => (Node::Leaf(Vec::new()), 0),
    }
}

fn child_of<K: Ord + Clone, V: Weigh + Clone>(node: Node<K, V>) -> Child<K, V> {
    let Some(first) = node.first().cloned() else { unreachable!("a built node is not empty") };
    Child { first, weight: node.weight(), node: Arc::new(node) }
}
