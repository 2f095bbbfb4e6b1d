//! Revisions are gapless: the store starts at 1 and an entry adds exactly the revisions it wrote.
//!
//! Source: DESIGN section 5 ("each effective write takes exactly the next"); etcd's data model. Checked where states
//! after consecutive entries are given.

use std::collections::BTreeMap;

use meta_types::Revision;

use super::step::{Invariant, Step};
use super::view::ReplicaId;

/// Revision of an empty store.
const EMPTY: Revision = 1;

/// The last state of each replica: boot, index, revision.
#[derive(Default)]
pub struct Revisions {
    last: BTreeMap<ReplicaId, (u64, u64, Revision)>,
}

impl Invariant for Revisions {
    fn name(&self) -> &'static str {
        "revisions"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        for replica in step.alive() {
            if replica.revision < EMPTY {
                found.push(format!("{} is at revision {}", replica.id, replica.revision));
            }
            for mark in &replica.states {
                let last = self.last.get(&replica.id).copied();
                let before = match last {
                    Some((boot, index, revision))
                        if boot == replica.incarnation && index + 1 == mark.index =>
                    {
                        Some(revision)
                    }
                    _ => (mark.index == 1).then_some(EMPTY),
                };
                let expected = before.map(|before| before + mark.written as Revision);
                if expected.is_some_and(|expected| expected != mark.revision) {
                    found.push(format!(
                        "{}: entry {} wrote {} revisions and went from {before:?} to {}",
                        replica.id, mark.index, mark.written, mark.revision
                    ));
                }
                self.last.insert(replica.id, (replica.incarnation, mark.index, mark.revision));
            }
        }
    }
}
