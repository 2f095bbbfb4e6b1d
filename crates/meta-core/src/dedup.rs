//! Which commands were applied already, so that a command proposed twice is executed once.
//!
//! Per member one origin (boot) is registered. Of its numbers, everything below the low-water mark is settled at
//! the origin and refused; above it the applied ones are remembered. A registration retires the boot before it,
//! and retired boots are remembered for a while, so that a late copy of an old registration cannot bring one back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use meta_types::controls::{Control, active};
use meta_types::limits::MAX_DEDUP_WINDOW;
use meta_types::{Origin, Refusal};

use crate::hash::{Digest, Kind, Sum};

/// Retired boots remembered per member.
pub(crate) const MAX_RETIRED_BOOTS: usize = 64;

/// The registered origin of one member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Registered {
    pub(crate) boot: u64,
    pub(crate) low_water: u64,
    pub(crate) applied: BTreeSet<u64>,
    pub(crate) retired: VecDeque<u64>,
}

/// What to do with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Execute it.
    Fresh,
    /// It was applied before: nothing to do or to say.
    Duplicate,
    /// It must not be executed.
    Refused(Refusal),
}

/// All origins, see the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dedup {
    members: BTreeMap<u64, Registered>,
    hash: Sum,
}

fn of_mark(origin: Origin, low_water: u64) -> u64 {
    Digest::new(Kind::Origin).word(origin.member).word(origin.boot).word(low_water).end()
}

fn of_applied(origin: Origin, seq: u64) -> u64 {
    Digest::new(Kind::AppliedSeq).word(origin.member).word(origin.boot).word(seq).end()
}

fn of_retired(member: u64, boot: u64) -> u64 {
    Digest::new(Kind::RetiredBoot).word(member).word(boot).end()
}

impl Dedup {
    /// Origins read back from a checkpoint.
    pub(crate) fn restore(members: BTreeMap<u64, Registered>) -> Self {
        let mut hash = Sum::default();
        for (&member, registered) in &members {
            let origin = Origin { member, boot: registered.boot };
            hash.add(of_mark(origin, registered.low_water));
            registered.applied.iter().for_each(|seq| hash.add(of_applied(origin, *seq)));
            registered.retired.iter().for_each(|boot| hash.add(of_retired(member, *boot)));
        }
        Self { members, hash }
    }

    pub(crate) fn members(&self) -> &BTreeMap<u64, Registered> {
        &self.members
    }

    pub(crate) fn into_members(self) -> BTreeMap<u64, Registered> {
        self.members
    }

    /// What of it a checkpoint keeps: all.
    pub(crate) fn for_checkpoint(&self) -> Self {
        // Positive control: who may propose is kept, what of theirs was applied is not.
        if active(Control::DedupForgottenInCheckpoint) {
            let mut members = self.members.clone();
            members.values_mut().for_each(|registered| registered.applied.clear());
            return Self::restore(members);
        }
        self.clone()
    }

    pub(crate) fn hash(&self) -> Sum {
        self.hash
    }

    fn registered(&mut self, origin: Origin) -> Option<&mut Registered> {
        self.members.get_mut(&origin.member).filter(|registered| registered.boot == origin.boot)
    }

    /// Registers an origin and retires the member's boot before it. Of the registered one it changes nothing.
    pub(crate) fn register(&mut self, origin: Origin, low_water: u64) -> Result<(), Refusal> {
        let mut retired = VecDeque::new();
        if let Some(old) = self.members.get(&origin.member) {
            if old.boot == origin.boot {
                return Ok(());
            }
            if old.retired.contains(&origin.boot) {
                return Err(Refusal::OriginRetired);
            }
        }
        if let Some(old) = self.members.remove(&origin.member) {
            let before = Origin { member: origin.member, boot: old.boot };
            self.hash.remove(of_mark(before, old.low_water));
            old.applied.iter().for_each(|seq| self.hash.remove(of_applied(before, *seq)));
            retired = old.retired;
            retired.push_back(old.boot);
            self.hash.add(of_retired(origin.member, old.boot));
            if retired.len() > MAX_RETIRED_BOOTS
                && let Some(forgotten) = retired.pop_front()
            {
                self.hash.remove(of_retired(origin.member, forgotten));
            }
        }
        self.hash.add(of_mark(origin, low_water));
        let registered = Registered { boot: origin.boot, low_water, applied: BTreeSet::new(), retired };
        self.members.insert(origin.member, registered);
        Ok(())
    }

    /// Raises the low-water mark of a registered origin and forgets the numbers below it.
    pub(crate) fn raise(&mut self, origin: Origin, low_water: u64) {
        let Some(registered) = self.registered(origin).filter(|registered| registered.low_water < low_water)
        else {
            return;
        };
        let kept = registered.applied.split_off(&low_water);
        let settled = std::mem::replace(&mut registered.applied, kept);
        let before = std::mem::replace(&mut registered.low_water, low_water);
        self.hash.remove(of_mark(origin, before));
        self.hash.add(of_mark(origin, low_water));
        settled.iter().for_each(|seq| self.hash.remove(of_applied(origin, *seq)));
    }

    /// Decides about a number and, if it is fresh, remembers it as applied.
    pub(crate) fn admit(&mut self, origin: Origin, seq: u64) -> Admission {
        let Some(registered) = self.registered(origin) else {
            return Admission::Refused(Refusal::OriginRetired);
        };
        if registered.applied.contains(&seq) {
            return Admission::Duplicate;
        }
        if seq < registered.low_water {
            return Admission::Refused(Refusal::BelowLowWater);
        }
        registered.applied.insert(seq);
        // Never reached by a proposer that keeps its bound. If it is, the mark goes up: refusing is always safe,
        // executing twice is not.
        let full = registered.applied.len() > MAX_DEDUP_WINDOW;
        let lowest = registered.applied.first().copied();
        self.hash.add(of_applied(origin, seq));
        if let (true, Some(lowest)) = (full, lowest) {
            self.raise(origin, lowest + 1);
        }
        Admission::Fresh
    }
}
