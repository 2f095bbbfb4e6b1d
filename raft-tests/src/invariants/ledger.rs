//! What was ever committed: the entry at each index, when it was first known, and by a replica of which term.

use std::collections::BTreeMap;
use std::time::Duration;

use super::mirror::Mirror;
use super::view::{ClusterView, EntryMark, ReplicaId};

/// Committed entries, see the module.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By index - 1; `None` where the one who knew had purged the entry already.
    entries: Vec<(Option<EntryMark>, Duration)>,
    /// The highest index known to be committed to a replica in this term or an earlier one.
    by_term: BTreeMap<u64, u64>,
    /// How far each replica was followed.
    followed: BTreeMap<ReplicaId, (u64, u64)>,
}

/// A replica takes another entry for committed than was committed.
#[derive(Debug, Clone, Copy)]
pub struct Conflict {
    /// The replica.
    pub replica: ReplicaId,
    /// The entry it has.
    pub has: EntryMark,
    /// The committed one.
    pub committed: EntryMark,
}

impl Ledger {
    /// Index of the last entry known to be committed.
    pub fn last(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The committed entry at an index, if it is known.
    pub fn get(&self, index: u64) -> Option<EntryMark> {
        self.entries.get(usize::try_from(index.checked_sub(1)?).ok()?)?.0
    }

    /// When it was first known to be committed.
    pub fn committed_at(&self, index: u64) -> Option<Duration> {
        self.entries.get(usize::try_from(index.checked_sub(1)?).ok()?).map(|(_, at)| *at)
    }

    /// The last entry that was known to be committed to somebody before `term`.
    pub fn last_before_term(&self, term: u64) -> Option<EntryMark> {
        self.get(self.by_term.range(..term).map(|(_, index)| *index).max()?)
    }

    /// Takes in what replicas know by now.
    pub fn follow(&mut self, view: &ClusterView, logs: &BTreeMap<ReplicaId, Mirror>) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for replica in view.replicas.iter().filter(|replica| replica.alive) {
            let (boot, from) = self.followed.get(&replica.id).copied().unwrap_or_default();
            // A new boot tells again what it takes for committed.
            let from = if boot == replica.incarnation { from } else { 0 };
            let Some(log) = logs.get(&replica.id) else { continue };
            for index in from.max(log.purged()) + 1..=replica.committed {
                self.learn(replica.id, log.get(index), index, view.at, &mut conflicts);
            }
            self.followed.insert(replica.id, (replica.incarnation, from.max(replica.committed)));
            if replica.committed > from {
                let known = self.by_term.entry(replica.term).or_default();
                *known = replica.committed.max(*known);
            }
        }
        conflicts
    }

    fn learn(
        &mut self,
        replica: ReplicaId,
        has: Option<EntryMark>,
        index: u64,
        at: Duration,
        conflicts: &mut Vec<Conflict>,
    ) {
        while self.last() < index {
            self.entries.push((None, at));
        }
        let Some(has) = has else { return };
        let known = &mut self.entries[index as usize - 1].0;
        match *known {
            None => *known = Some(has),
            Some(committed) if committed != has => conflicts.push(Conflict { replica, has, committed }),
            Some(_) => {}
        }
    }
}
