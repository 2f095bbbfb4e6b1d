//! Walks over the tree in either direction.

use std::slice;

use super::Weigh;
use super::node::{Child, Node, child_index};

/// Entries in order. Holds one iterator per level.
pub(crate) struct Walk<'a, K, V> {
    stack: Vec<slice::Iter<'a, Child<K, V>>>,
    leaf: slice::Iter<'a, (K, V)>,
    descending: bool,
    weighted_only: bool,
}

impl<'a, K: Ord, V: Weigh> Walk<'a, K, V> {
    pub(super) fn ascending(root: &'a Node<K, V>, from: Option<&K>) -> Self {
        let mut stack = Vec::new();
        let mut node = root;
        loop {
            match node {
                Node::Branch(children) => {
                    let at = from.map_or(0, |key| child_index(children, key));
                    stack.push(children[at + 1..].iter());
                    node = &children[at].node;
                }
                Node::Leaf(entries) => {
                    let at = from.map_or(0, |from| entries.partition_point(|(key, _)| key < from));
                    let leaf = entries[at..].iter();
                    return Self { stack, leaf, descending: false, weighted_only: false };
                }
            }
        }
    }

    pub(super) fn descending(root: &'a Node<K, V>, below: Option<&K>) -> Self {
        let mut stack = Vec::new();
        let mut node = root;
        loop {
            match node {
                Node::Branch(children) => {
                    let at = below.map_or(children.len() - 1, |key| child_index(children, key));
                    stack.push(children[..at].iter());
                    node = &children[at].node;
                }
                Node::Leaf(entries) => {
                    let at =
                        below.map_or(entries.len(), |below| entries.partition_point(|(key, _)| key < below));
                    let leaf = entries[..at].iter();
                    return Self { stack, leaf, descending: true, weighted_only: false };
                }
            }
        }
    }

    /// Leaves entries of weight 0 out, whole subtrees at a time.
    pub(crate) fn weighted(mut self) -> Self {
        self.weighted_only = true;
        self
    }

    /// Moves to the next leaf that may hold something; false at the end.
    fn advance(&mut self) -> bool {
        while let Some(level) = self.stack.last_mut() {
            let child = if self.descending { level.next_back() } else { level.next() };
            match child {
                None => {
                    self.stack.pop();
                }
                Some(child) if self.weighted_only && child.weight == 0 => {}
                Some(child) => match &*child.node {
                    Node::Branch(children) => self.stack.push(children.iter()),
                    Node::Leaf(entries) => {
                        self.leaf = entries.iter();
                        return true;
                    }
                },
            }
        }
        false
    }
}

impl<'a, K: Ord, V: Weigh> Iterator for Walk<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = if self.descending { self.leaf.next_back() } else { self.leaf.next() };
            match entry {
                Some((_, value)) if self.weighted_only && value.weight() == 0 => {}
                Some((key, value)) => return Some((key, value)),
                None if self.advance() => {}
                None => return None,
            }
        }
    }
}
