//! The positive controls and what has to catch them: a net that lets one of them through is torn.
//!
//! Each known bug sits at its real place (search for its name in `Control`), and is turned on for a whole process.
//! `within` says within how many seeds, run one after the other from any first seed, at least one must be caught by
//! one of the checkers named. It is measured over several first seeds (see `docs/proof.md`) and then doubled.

use meta_types::controls::Control;

/// One known bug and its judges.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    /// The bug.
    pub control: Control,
    /// Names of checkers and invariants that may catch it; at least one of them must.
    pub by: &'static [&'static str],
    /// Within so many seeds.
    pub within: u32,
}

const fn judged(control: Control, within: u32, by: &'static [&'static str]) -> Judged {
    Judged { control, by, within }
}

/// All of them.
pub const JUDGED: [Judged; Control::ALL.len()] = [
    judged(Control::ReadWithoutReadIndex, 15, &["stale", "real-time", "linearizability"]),
    judged(Control::AckBeforeQuorum, 15, &["committed-quorum", "committed-immutable", "leader-completeness"]),
    // A log with a hole in it is refused at the start, and the cluster never becomes whole again.
    judged(Control::SkippedFsync, 15, &["durable-log", "committed-quorum", "lost", "heal"]),
    judged(Control::IndexApartFromData, 40, &["equal-state", "final-state", "seen-state", "revisions"]),
    judged(Control::DedupForgottenInCheckpoint, 30, &["equal-state", "final-state", "seen-state"]),
    judged(
        Control::RevokeByDeposedLeader,
        60,
        &[
            "lease-shortened",
            "lease-deposed",
            "wrong-revision",
            "seen-state",
            "final-state",
            "lost",
            "wrong-answer",
            "stale",
        ],
    ),
    judged(Control::ReadyWithoutGuard, 60, &["records", "package-bytes"]),
    judged(Control::TriggerOutsideTxn, 40, &["records", "one-job", "one-request", "lost-run"]),
    judged(Control::VoteNotDurable, 20, &["election-safety", "monotonic"]),
    judged(Control::WatchSkipsAtJump, 100, &["reliable", "resumable", "bookmarkable", "watch-complete"]),
    judged(Control::LeaseTimeWithoutLeader, 40, &["lease-shortened", "lease-bounds"]),
    judged(Control::PurgeBeforeVerified, 15, &["log-order"]),
];

/// Turns a known bug on, in a build that has them.
pub fn turn_on(control: Option<Control>) {
    #[cfg(feature = "positive-controls")]
    meta_types::controls::set(control);
    #[cfg(not(feature = "positive-controls"))]
    assert!(control.is_none(), "this build has no known bugs in it");
}

/// Turns it off; answers how often its place was passed.
pub fn turn_off() -> u64 {
    #[cfg(feature = "positive-controls")]
    {
        let passed = meta_types::controls::passed();
        meta_types::controls::set(None);
        passed
    }
    #[cfg(not(feature = "positive-controls"))]
    0
}

/// The bug's judges.
pub fn judges_of(control: Control) -> &'static Judged {
    JUDGED.iter().find(|judged| judged.control == control).unwrap_or(&JUDGED[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_is_judged_once() {
        for (judged, control) in JUDGED.iter().zip(Control::ALL) {
            assert_eq!(judged.control, control, "in the order of `Control::ALL`");
            assert!(!judged.by.is_empty() && judged.within > 0);
            assert_eq!(judges_of(control).control, control);
        }
    }
}
