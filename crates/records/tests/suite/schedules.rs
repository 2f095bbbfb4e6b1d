//! The planners of packages under a seeded scheduler: two dispatchers, three nodes, every operation on two packages
//! and the jobs that run on them; each schedule ends in a calm after which nothing may be left behind. A failing
//! schedule is named; `PACKAGE_SCHEDULE=N` runs that one alone, `PACKAGE_SCHEDULES=N` so many (docs/proof.md).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::interleave::number;
use crate::sim::Sim;
use crate::sim_literal::Literal;

/// Schedules of the normal suite: a few seconds without optimisation.
const SCHEDULES: u64 = 100;
/// So many must reach every planner.
const MANY: u64 = 1000;
/// Steps of the storm.
const STEPS: usize = 80;
/// Schedules within which the literal protocol must be caught.
const CAUGHT_WITHIN: u64 = 200;

/// One schedule, to its end.
fn schedule(seed: u64, literal: Literal) -> Sim {
    let mut sim = Sim::bare(seed);
    sim.literal = literal;
    sim.world.unguarded = literal != Literal::default();
    // Half of them begin with a package that jobs can run on.
    if sim.roll(2) == 0 {
        sim.begin_with("a:1", "c0");
    }
    for _ in 0..STEPS {
        sim.package_step();
    }
    sim.calm_down();
    sim
}

type Carried = BTreeMap<&'static str, u64>;

fn run(seeds: std::ops::Range<u64>) -> Carried {
    let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Carried::new()));
    let work = || {
        let mut carried = Carried::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| schedule(seed, Literal::default()))) {
                Ok(sim) => {
                    for (what, count) in sim.carried {
                        *carried.entry(what).or_default() += u64::from(count);
                    }
                }
                Err(panic) => {
                    eprintln!(
                        "repeat with: PACKAGE_SCHEDULE={seed} cargo test -p records --test suite schedules"
                    );
                    resume_unwind(panic);
                }
            }
        }
        let mut total = total.lock().expect("nobody panics with it");
        carried.into_iter().for_each(|(what, count)| *total.entry(what).or_default() += count);
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    total.into_inner().expect("nobody panics with it")
}

#[test]
fn every_schedule_keeps_the_promises_about_packages_and_leaves_nothing() {
    if let Some(seed) = number("PACKAGE_SCHEDULE") {
        return drop(run(seed..seed + 1));
    }
    let schedules = number("PACKAGE_SCHEDULES").unwrap_or(SCHEDULES);
    let carried = run(0..schedules);
    println!("{schedules} schedules: {carried:?}");
    // They must reach every planner, or they prove nothing about it.
    for what in [
        "reserve",
        "announce",
        "uploaded",
        "take_over",
        "stranded",
        "coordinator_lost",
        "ready",
        "abort",
        "register",
        "inspected",
        "announce_found",
        "adopted",
        "abort_register",
        "fetching",
        "present",
        "failed",
        "corrupt",
        "remove",
        "force_remove",
        "draining",
        "dropped",
        "dead_copy",
        "finish",
        "sweep_private",
        "admit",
        "claim",
        "begin_use",
        "start_attempt",
        "ended",
        "release",
    ] {
        assert!(carried.contains_key(what) || schedules < MANY, "never carried out: {what}; {carried:?}");
    }
}

/// The first schedule in which the checker finds just this breach, and its words.
fn caught(literal: Literal, breach: &str) -> (u64, String) {
    for seed in 0..CAUGHT_WITHIN {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| schedule(seed, literal))) {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            if text.contains(breach) {
                return (seed, text.lines().next().unwrap_or_default().to_owned());
            }
        }
    }
    panic!("{literal:?}: no {breach:?} within {CAUGHT_WITHIN} schedules");
}

#[test]
fn the_literal_protocol_is_caught() {
    for (literal, breach) in [
        (Literal { create: true, remove: false }, "invariant: "),
        (Literal { create: false, remove: true }, " is not on Proc"),
    ] {
        let (seed, text) = caught(literal, breach);
        println!("{literal:?} is caught by schedule {seed}: {text}");
    }
}
