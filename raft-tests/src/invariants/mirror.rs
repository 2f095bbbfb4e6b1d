//! A replica's log as its changes tell it: which entries there are, and which of them survive a power cut.

use std::collections::VecDeque;

use super::view::{EntryMark, LogChange};

/// The entries of one log, see the module.
#[derive(Debug, Clone, Default)]
pub struct Mirror {
    purged: (u64, u64),
    entries: VecDeque<EntryMark>,
    durable: u64,
}

/// An entry that came into a log, and the term of the one before it (`None` if that is not known).
#[derive(Debug, Clone, Copy)]
pub struct Came {
    /// The entry.
    pub mark: EntryMark,
    /// Term of the entry before it; 0 before the first.
    pub before: u64,
}

/// What a change did beyond the mirror.
#[derive(Debug, Default)]
pub struct Effects {
    /// Entries that came.
    pub came: Vec<Came>,
    /// The lowest index that was dropped from the end.
    pub truncated: Option<u64>,
    /// What was durable and is not there after a restart: the first such index.
    pub lost: Option<u64>,
    /// Why the change cannot be one of a log without holes.
    pub broken: Option<String>,
}

impl Mirror {
    /// Index of the last entry, or of what was purged.
    pub fn last(&self) -> u64 {
        self.entries.back().map_or(self.purged.0, |last| last.index)
    }

    /// Index of the last entry that was purged.
    pub fn purged(&self) -> u64 {
        self.purged.0
    }

    /// The entry at an index, if it is in the log.
    pub fn get(&self, index: u64) -> Option<EntryMark> {
        let first = self.entries.front()?.index;
        let at = usize::try_from(index.checked_sub(first)?).ok()?;
        self.entries.get(at).copied()
    }

    /// The term at an index; 0 at index 0.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.purged.0 {
            return Some(self.purged.1);
        }
        self.get(index).map(|mark| mark.term)
    }

    /// True if the log has this entry, or a checkpoint has what it did.
    pub fn covers(&self, mark: EntryMark) -> bool {
        mark.index <= self.purged.0 || self.get(mark.index) == Some(mark)
    }

    /// True if it would still after a power cut.
    pub fn covers_durably(&self, mark: EntryMark) -> bool {
        mark.index <= self.purged.0 || (mark.index <= self.durable && self.get(mark.index) == Some(mark))
    }

    /// Takes a change in.
    pub fn change(&mut self, change: &LogChange, effects: &mut Effects) {
        match change {
            LogChange::Appended(mark) => self.append(*mark, effects),
            LogChange::Durable { up_to } => self.durable = self.durable.max((*up_to).min(self.last())),
            LogChange::Truncated { from } => self.truncate(*from, effects),
            LogChange::Purged { up_to, term } => self.purge(*up_to, *term),
            LogChange::Stopped => {}
            LogChange::Found { purged, entries } => self.found(*purged, entries, effects),
        }
    }

    fn append(&mut self, mark: EntryMark, effects: &mut Effects) {
        if mark.index != self.last() + 1 {
            effects.broken = Some(format!("entry {} appended after {}", mark.index, self.last()));
            return;
        }
        let before = self.term_at(self.last()).unwrap_or(0);
        self.entries.push_back(mark);
        effects.came.push(Came { mark, before });
    }

    fn truncate(&mut self, from: u64, effects: &mut Effects) {
        if from <= self.purged.0 {
            effects.broken = Some(format!("truncated from {from}, but purged up to {}", self.purged.0));
            return;
        }
        if from > self.last() {
            return;
        }
        while self.entries.back().is_some_and(|last| last.index >= from) {
            self.entries.pop_back();
        }
        self.durable = self.durable.min(self.last());
        effects.truncated = Some(effects.truncated.map_or(from, |earlier| earlier.min(from)));
    }

    fn purge(&mut self, up_to: u64, term: u64) {
        if up_to <= self.purged.0 {
            return;
        }
        while self.entries.front().is_some_and(|first| first.index <= up_to) {
            self.entries.pop_front();
        }
        self.purged = (up_to, term);
        self.durable = self.durable.max(up_to);
    }

    fn found(&mut self, purged: (u64, u64), entries: &[EntryMark], effects: &mut Effects) {
        let was = std::mem::take(self);
        self.purged = purged;
        for mark in entries {
            self.append(*mark, effects);
        }
        self.durable = self.last();
        let kept = was.entries.iter().filter(|mark| mark.index <= was.durable);
        effects.lost = kept.copied().find(|mark| !self.covers(*mark)).map(|mark| mark.index);
        if purged.0 < was.purged.0 {
            effects.lost = Some(was.purged.0);
        }
    }
}
