//! What happened at each revision from the compact revision on, for watches that start in the past.

use std::collections::VecDeque;

use meta_types::{Event, Revision, RevisionEvents};

/// Revisions without a gap, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    revisions: VecDeque<RevisionEvents>,
}

impl History {
    /// The oldest revision held.
    pub(crate) fn first(&self) -> Option<Revision> {
        self.revisions.front().map(|events| events.revision)
    }

    pub(crate) fn push(&mut self, events: RevisionEvents) {
        debug_assert!(self.revisions.back().is_none_or(|last| last.revision + 1 == events.revision));
        self.revisions.push_back(events);
    }

    pub(crate) fn pop(&mut self) -> Option<RevisionEvents> {
        self.revisions.pop_front()
    }

    /// The revisions from `from` on.
    pub(crate) fn from(&self, from: Revision) -> impl Iterator<Item = &RevisionEvents> {
        let skip = self.first().map_or(0, |first| usize::try_from(from - first).unwrap_or(0));
        self.revisions.range(skip.min(self.revisions.len())..)
    }
}

/// The same revision without what was before it: at the compact revision that is compacted away.
pub(crate) fn without_previous(events: &RevisionEvents) -> RevisionEvents {
    let stripped = events.events.iter().map(|event| Event { prev: None, ..event.clone() });
    RevisionEvents { revision: events.revision, events: stripped.collect() }
}
