//! Which command numbers were applied, in the naive model: all of them, for ever.

use std::collections::{BTreeMap, BTreeSet};

use meta_types::{Origin, Refusal};

/// The boots of members and the numbers they used.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins {
    boots: BTreeMap<u64, Vec<u64>>,
    settled: BTreeMap<Origin, u64>,
    applied: BTreeSet<(Origin, u64)>,
}

impl Origins {
    fn is_current(&self, origin: Origin) -> bool {
        self.boots.get(&origin.member).and_then(|boots| boots.last()) == Some(&origin.boot)
    }

    /// Numbers below the mark are settled.
    pub(super) fn settle(&mut self, origin: Origin, below: u64) {
        if self.is_current(origin) {
            let mark = self.settled.entry(origin).or_default();
            *mark = below.max(*mark);
        }
    }

    /// The origin's boot is the member's current one from now on, unless a later boot retired it.
    pub(super) fn register(&mut self, origin: Origin, below: u64) -> Result<(), Refusal> {
        let boots = self.boots.entry(origin.member).or_default();
        match boots.iter().position(|boot| *boot == origin.boot) {
            Some(at) if at + 1 == boots.len() => Ok(()),
            Some(_) => Err(Refusal::OriginRetired),
            None => {
                boots.push(origin.boot);
                self.settled.insert(origin, below);
                Ok(())
            }
        }
    }

    /// True if the number is new, false if it was applied before.
    pub(super) fn admit(&mut self, origin: Origin, seq: u64) -> Result<bool, Refusal> {
        if !self.is_current(origin) {
            return Err(Refusal::OriginRetired);
        }
        let is_settled = seq < self.settled.get(&origin).copied().unwrap_or(0);
        if is_settled {
            return Err(Refusal::BelowLowWater);
        }
        Ok(self.applied.insert((origin, seq)))
    }
}
