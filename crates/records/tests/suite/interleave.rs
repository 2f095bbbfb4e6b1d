//! Random interleavings. A failing seed is printed; `SIM_SEED=N` runs that one alone, `SIM_SEEDS=N` so many.

use std::collections::BTreeMap;

use crate::sim::Sim;

const STEPS: usize = 150;

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_interleavings_keep_every_invariant_and_come_to_an_end() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(4),
    };
    let many = seeds.clone().count() >= 20;
    let mut carried: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in seeds {
        let mut sim = Sim::new(seed);
        let run = std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                sim.step();
            }
            sim.calm_down();
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("repeat with: SIM_SEED={seed} cargo test -p records --test suite interleav");
            std::panic::resume_unwind(panic);
        }
        for (what, count) in sim.carried {
            *carried.entry(what).or_default() += count;
        }
    }
    println!("{carried:?}");
    // The storm must reach every planner, or it proves nothing about it.
    for what in [
        "admit",
        "adopt",
        "advance",
        "delete",
        "cancel",
        "drive",
        "claim",
        "begin_use",
        "start_attempt",
        "created",
        "cancelling",
        "ended",
        "release",
        "release_unstarted",
        "main_failed",
        "resume",
        "give back",
        "cancel_by_force",
        "drain",
        "cancel_drain",
        "say_stopping",
        "reserve",
        "announce",
        "present",
        "failed",
        "ready",
        "abort",
        "coordinator_lost",
        "remove",
        "force_remove",
        "draining",
        "dropped",
        "dead_copy",
        "finish",
        "sweep_private",
    ] {
        assert!(!many || carried.contains_key(what), "never carried out: {what}; {carried:?}");
    }
}
