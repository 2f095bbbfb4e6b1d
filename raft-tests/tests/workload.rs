//! The workload on a store of one replica without Raft: its histories are accepted by the checkers, the same seed
//! does the same, and every kind of call happens.

use std::collections::BTreeMap;

use raft_tests::workload::testing::{Seen, check, run};

/// What has to have happened, somewhere in a few seeds, for the workload to be worth anything.
const EXPECTED: &[&str] = &[
    "put",
    "delete",
    "read",
    "read serializable",
    "read at a revision",
    "compare-and-set",
    "compare-and-set again",
    "compare-and-set won",
    "compare-and-set lost",
    "txn",
    "txn that reads",
    "compact",
    "watch from now",
    "watch from before",
    "watch from later",
    "watch resumed",
    "watch compacted",
    "watch batch",
    "lease grant",
    "lease keep-alive",
    "lease found gone",
    "lease revoke",
    "lease time-to-live",
    "lease ran out",
    "put on a lease",
    "process registered",
    "process waits for its predecessor",
    "process killed",
    "process died in the middle",
    "process frozen",
    "thawed process was refused",
    "run POST",
    "run POST unanswered",
    "run POST of another request",
    "run POST after DELETE",
    "run GET",
    "run DELETE",
    "run seen completed",
    "run admitted",
    "run admitted before",
    "run adopted",
    "run advanced",
    "run deleted",
    "job driven",
    "job claimed",
    "job created",
    "job ended",
    "job released",
    "job released unstarted",
    "main failed",
    "node drained",
    "drain ended",
    "job cancel asked",
    "job cancelling",
    "attempt started",
    "use begun",
    "package create asked",
    "package reserved",
    "package announced",
    "package ready",
    "package aborted",
    "package removed",
    "package removed by force",
    "package gone",
    "package seen",
    "create taken over",
    "create without coordinator undone",
    "copy fetching",
    "copy present",
    "copy failed",
    "copy draining",
    "copy dropped",
    "dead copy removed",
    "plan met a conflict",
];

/// Virtual seconds of storm.
const STORM_S: u64 = 15;

fn good(seed: u64, seen: &Seen) {
    let found = check(seen);
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
    assert!(seen.unsettled.is_empty(), "seed {seed}: still going on: {:#?}", seen.unsettled);
}

#[test]
fn its_histories_are_accepted_and_every_kind_of_call_happens() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    // `WORKLOAD_SEED=N` runs that one alone.
    let alone = std::env::var("WORKLOAD_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in alone.map_or(1..7, |seed| seed..seed + 1) {
        let start = std::time::Instant::now();
        let seen = run(seed, STORM_S);
        println!("seed {seed}: {} calls in {:?}", seen.history.operations.len(), start.elapsed());
        good(seed, &seen);
        println!("seed {seed}: judged after {:?}", start.elapsed());
        for (what, count) in &seen.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    let missing: Vec<_> = EXPECTED.iter().filter(|what| !counts.contains_key(**what)).collect();
    assert!(missing.is_empty(), "never happened: {missing:?} of {counts:#?}");
}

#[test]
fn a_seed_does_the_same_twice() {
    let (one, two) = (run(7, 8), run(7, 8));
    for (at, (left, right)) in one.history.operations.iter().zip(&two.history.operations).enumerate() {
        assert_eq!(left, right, "call {at}");
    }
    assert_eq!(one.history.operations.len(), two.history.operations.len());
    assert_eq!((&one.history.runs, &one.history.jobs), (&two.history.runs, &two.history.jobs));
    assert_eq!(one.history.packages, two.history.packages);
    for (at, (left, right)) in one.history.watches.iter().zip(&two.history.watches).enumerate() {
        assert!(format!("{left:?}") == format!("{right:?}"), "watch {at}");
    }
    assert_eq!(one.history.watches.len(), two.history.watches.len());
    assert_eq!(one.counts, two.counts);
    let other = run(8, 8);
    assert!(one.history.operations != other.history.operations, "another seed does other things");
}
