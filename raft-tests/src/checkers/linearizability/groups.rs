//! Keys that are tied together by transactions, and their actions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::actions::Action;

/// Keys that have to be searched together.
#[derive(Debug, Default)]
pub struct Group {
    /// The keys.
    pub keys: BTreeSet<Bytes>,
    /// What happened to them.
    pub actions: Vec<Action>,
}

/// Puts actions with a common key, directly or by way of others, into one group.
pub fn of(actions: Vec<Action>) -> Vec<Group> {
    let mut numbers: BTreeMap<Bytes, usize> = BTreeMap::new();
    let mut parents: Vec<usize> = Vec::new();
    for action in &actions {
        let mut first = None;
        for key in &action.keys {
            let number = *numbers.entry(key.clone()).or_insert_with(|| {
                parents.push(parents.len());
                parents.len() - 1
            });
            let root = root(&mut parents, number);
            match first {
                None => first = Some(root),
                Some(first) => parents[root] = first,
            }
        }
    }
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for action in actions {
        // An action without a key has nothing to say.
        let Some(number) = action.keys.first().map(|key| numbers[key]) else { continue };
        let group = groups.entry(root(&mut parents, number)).or_default();
        group.keys.extend(action.keys.iter().cloned());
        group.actions.push(action);
    }
    groups.into_values().collect()
}

fn root(parents: &mut [usize], mut number: usize) -> usize {
    while parents[number] != number {
        parents[number] = parents[parents[number]];
        number = parents[number];
    }
    number
}
