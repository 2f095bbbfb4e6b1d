//! Positive controls: known bugs, put back on purpose, that show that the proof catches them.
//!
//! Each bug sits at its real place behind [`active`]. Without the cargo feature `positive-controls`, which is never
//! on by default and which `cargo xtask tidy` keeps out of everything that ships, [`active`] is the constant
//! `false` and the compiler removes the bug. With it one control at a time can be turned on in a process.

use std::fmt;

/// True if this build has the bugs in it. A binary that ships must not.
pub const BUILT_IN: bool = cfg!(feature = "positive-controls");

/// A known bug. Most are named after what happened to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Control {
    /// A linearizable read is answered from what is here, without asking a leader how far it must see (Consul and
    /// etcd 0.4 under Jepsen: stale reads).
    ReadWithoutReadIndex = 1,
    /// The leader answers for a batch once it is in its own log, before a quorum has it (openraft #1802).
    AckBeforeQuorum = 2,
    /// A log's sync says that it is done and leaves the bytes to the kernel (NATS 2.12, sled's `flush`).
    SkippedFsync = 3,
    /// An entry takes effect in one step and its index is recorded in another; a checkpoint in between has the one
    /// without the other (etcd #13766).
    IndexApartFromData = 4,
    /// A checkpoint leaves out which commands were applied, so a second copy is executed again.
    DedupForgottenInCheckpoint = 5,
    /// Leases are revoked by a replica that only believes that it leads, whatever term decides meanwhile (etcd
    /// #15247).
    RevokeByDeposedLeader = 6,
    /// A package becomes READY without a guard on the operation that was planned with.
    ReadyWithoutGuard = 7,
    /// "This trigger is new" is looked up before the transaction and not guarded in it: two jobs for one trigger.
    TriggerOutsideTxn = 8,
    /// A vote is answered before it is durable: after a power cut the same term is voted in twice.
    VoteNotDurable = 9,
    /// After a checkpoint replaced the state, live watches go on from its revision as if nothing were missing.
    WatchSkipsAtJump = 10,
    /// Lease time goes on without a leader, by each replica's own clock.
    LeaseTimeWithoutLeader = 11,
    /// The log is purged up to the newest checkpoint before that was read back.
    PurgeBeforeVerified = 12,
}

impl Control {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::ReadWithoutReadIndex,
        Self::AckBeforeQuorum,
        Self::SkippedFsync,
        Self::IndexApartFromData,
        Self::DedupForgottenInCheckpoint,
        Self::RevokeByDeposedLeader,
        Self::ReadyWithoutGuard,
        Self::TriggerOutsideTxn,
        Self::VoteNotDurable,
        Self::WatchSkipsAtJump,
        Self::LeaseTimeWithoutLeader,
        Self::PurgeBeforeVerified,
    ];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadWithoutReadIndex => "read-without-read-index",
            Self::AckBeforeQuorum => "ack-before-quorum",
            Self::SkippedFsync => "skipped-fsync",
            Self::IndexApartFromData => "index-apart-from-data",
            Self::DedupForgottenInCheckpoint => "dedup-forgotten-in-checkpoint",
            Self::RevokeByDeposedLeader => "revoke-by-deposed-leader",
            Self::ReadyWithoutGuard => "ready-without-guard",
            Self::TriggerOutsideTxn => "trigger-outside-txn",
            Self::VoteNotDurable => "vote-not-durable",
            Self::WatchSkipsAtJump => "watch-skips-at-jump",
            Self::LeaseTimeWithoutLeader => "lease-time-without-leader",
            Self::PurgeBeforeVerified => "purge-before-verified",
        }
    }

    /// The control of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(not(feature = "positive-controls"))]
mod switch {
    use super::Control;

    /// Whether the bug is to take place here: never in this build.
    #[inline(always)]
    pub const fn active(_: Control) -> bool {
        false
    }
}

#[cfg(feature = "positive-controls")]
mod switch {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    use super::Control;

    /// The control that is on, or 0. Of the process and not of a thread: a log may be flushed by a thread of its
    /// own. One process proves one control.
    static ON: AtomicU8 = AtomicU8::new(0);
    /// How often the place of the control that is on was passed.
    static PASSED: AtomicU64 = AtomicU64::new(0);

    /// Stays in every binary that has the bugs in it: `cargo xtask dist` looks for it and ships none that has it.
    static MARK: &str = "known bugs are built in";

    /// Whether the bug is to take place here.
    #[inline]
    pub fn active(control: Control) -> bool {
        let is_on = ON.load(Ordering::Relaxed) == control as u8;
        if is_on {
            black_box(MARK);
            PASSED.fetch_add(1, Ordering::Relaxed);
        }
        is_on
    }

    /// Turns one control on, or all off, for the whole process.
    pub fn set(control: Option<Control>) {
        ON.store(control.map_or(0, |control| control as u8), Ordering::SeqCst);
        PASSED.store(0, Ordering::SeqCst);
    }

    /// How often the place of the control was passed since it was set: 0 means that nothing was proved.
    pub fn passed() -> u64 {
        PASSED.load(Ordering::SeqCst)
    }
}

pub use switch::*;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_controls() {
        for control in Control::ALL {
            assert_eq!(Control::by_name(control.name()), Some(control));
        }
        assert_eq!(Control::by_name("nonsense"), None);
    }

    #[cfg(not(feature = "positive-controls"))]
    #[test]
    fn nothing_is_active_in_a_normal_build() {
        const { assert!(!BUILT_IN && !active(Control::SkippedFsync)) };
    }

    #[cfg(feature = "positive-controls")]
    #[test]
    fn one_control_is_on_at_a_time_and_counted() {
        assert!(Control::ALL.into_iter().all(|control| !active(control)));
        set(Some(Control::SkippedFsync));
        let on: Vec<_> = Control::ALL.into_iter().filter(|control| active(*control)).collect();
        assert_eq!((on, passed()), (vec![Control::SkippedFsync], 1));
        set(None);
        assert!(Control::ALL.into_iter().all(|control| !active(control)) && passed() == 0);
    }
}
