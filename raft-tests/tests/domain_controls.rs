//! The known bugs of the domain are caught by the workload already on a store without Raft.
//! `cargo test -p raft-tests --features positive-controls --test domain_controls`
#![cfg(feature = "positive-controls")]

use meta_types::controls::{Control, passed, set};
use raft_tests::workload::testing::{check, run};

/// Virtual seconds of storm.
const STORM_S: u64 = 20;

/// The first seed from `first` on that shows the bug, and what it showed.
fn caught(control: Control, first: u64, within: u64) -> Option<(u64, Vec<String>)> {
    (first..first + within).find_map(|seed| {
        set(Some(control));
        let seen = run(seed, STORM_S);
        let was_passed = passed() > 0;
        set(None);
        let found = check(&seen);
        (was_passed && !found.is_empty()).then_some((seed, found))
    })
}

#[test]
fn the_bugs_of_the_domain_are_caught_in_a_few_seeds() {
    // One test: the switch is of the process.
    for (control, within) in [(Control::ReadyWithoutGuard, 8), (Control::TriggerOutsideTxn, 4)] {
        for first in [1, 100] {
            let caught = caught(control, first, within);
            let (seed, found) = caught.unwrap_or_else(|| panic!("{control}: not in {within} seeds"));
            println!("{control}: seed {seed}: {}", found[0]);
        }
    }
}
