//! Power cuts. A random workload runs on a disk whose power goes at its n-th operation, for every n; the disk
//! is found again with any part of what was not synced. The log must open, and hold what was acknowledged
//! followed by nothing or by the first records of what was in flight: never less, never a hole. Repeat one
//! with its printed seeds.

use super::*;
use crate::disk::MemDiskFaults;

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Batches of records that make sense one after another on top of `model`.
fn workload(chance: &mut Chance, mut model: Model, batches: usize) -> Vec<Vec<Record>> {
    let mut work = Vec::new();
    for _ in 0..batches {
        let mut batch = Vec::new();
        for _ in 0..1 + chance.below(4) {
            let record = record(chance, &model);
            model.follow(&record);
            batch.push(record);
        }
        work.push(batch);
    }
    work
}

fn record(chance: &mut Chance, model: &Model) -> Record {
    let next = model.next_index();
    let position = |index| Position { term: 1, index };
    match chance.below(20) {
        0 | 1 => Record::Vote(Vote { term: chance.below(9), node_id: 3, committed: chance.below(2) == 0 }),
        2 => Record::Committed(Some(position(next - 1))),
        3 => Record::TruncateAfter(Some(next.saturating_sub(1 + chance.below(4)))),
        4 | 5 => {
            let first = model.entries.keys().next().copied().unwrap_or(next);
            Record::Purge(position(first + chance.below(8)))
        }
        kind => {
            let len = if kind < 9 { chance.below(2500) } else { chance.below(120) };
            // Some payloads are zeros: they must not confuse what a lost sector looks like.
            let byte = if chance.below(4) == 0 { 0 } else { chance.below(256) as u8 };
            Record::Entry { position: position(next), payload: vec![byte; len as usize].into() }
        }
    }
}

/// Runs the workload until the disk fails. Returns the states the log may be found in.
fn run(wal: &Wal, work: &[Vec<Record>], mut model: Model) -> (Vec<Model>, bool) {
    for batch in work {
        let mut possible = vec![model.clone()];
        for record in batch {
            queue(wal, record).unwrap();
            model.follow(record);
            possible.push(model.clone());
        }
        assert_eq!(Model::of(wal), model, "readable at once");
        if wal.sync().is_err() {
            return (possible, false);
        }
    }
    (vec![model], true)
}

fn cut_at(operation: u64) -> MemDiskFaults {
    MemDiskFaults { power_off_at: Some(operation), ..MemDiskFaults::default() }
}

/// Opens what a crash left and checks it; cuts the power again at each step of that open.
fn check_recovery(crashed: &MemDisk, possible: &[Model], seeds: &str, crash_seed: u64) -> Model {
    for step in 0..8 {
        let again = crashed.crash(0);
        again.set_faults(cut_at(step));
        if open(&again, tiny(2048)).is_ok() {
            break;
        }
        check_open(&again.crash(crash_seed ^ step), possible, &format!("{seeds}, again at {step}"));
    }
    check_open(crashed, possible, seeds)
}

fn check_open(disk: &MemDisk, possible: &[Model], seeds: &str) -> Model {
    let (wal, _) = open(disk, tiny(2048)).unwrap_or_else(|e| panic!("{seeds}: {e}"));
    let found = Model::of(&wal);
    assert!(possible.contains(&found), "{seeds}: found {found:#?}\n none of {possible:#?}");
    found
}

fn crash_everywhere(seed: u64) {
    let work = workload(&mut Chance(seed), Model::default(), 25);
    let mut operation = 0;
    loop {
        let disk = MemDisk::with_faults(cut_at(operation));
        let opened = open(&disk, tiny(2048));
        let (possible, done) = match &opened {
            Ok((wal, _)) => run(wal, &work, Model::default()),
            Err(_) => (vec![Model::default()], false),
        };
        for crash_seed in 0..6 {
            let seeds = format!("workload {seed}, power off at {operation}, crash {crash_seed}");
            let crashed = disk.crash(crash_seed);
            let found = check_recovery(&crashed, &possible, &seeds, crash_seed);
            // The log goes on from there, and what it then acknowledges is kept as well.
            let more = workload(&mut Chance(seed ^ operation), found.clone(), 3);
            let (wal, _) = open(&crashed, tiny(2048)).unwrap();
            let (after, finished) = run(&wal, &more, found);
            assert!(finished);
            check_open(&crashed.crash(crash_seed + 1), &after, &format!("{seeds}, then more"));
        }
        if done {
            return;
        }
        operation += 1;
    }
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_power_goes() {
    for seed in 0..6 {
        crash_everywhere(seed);
    }
}

/// The process ends after a sync that failed, and starts again on what the page cache shows. What it builds on that,
/// and what it then acknowledges, must survive a power cut.
#[test]
fn what_is_read_after_a_failed_sync_is_made_durable() {
    for seed in 200..210 {
        let work = workload(&mut Chance(seed), Model::default(), 12);
        for at in 3.. {
            let faults =
                MemDiskFaults { fail_sync_at: Some(at), fail_syncs_after: true, ..MemDiskFaults::default() };
            let disk = MemDisk::with_faults(faults);
            let Ok((wal, _)) = open(&disk, tiny(2048)) else { continue };
            let (_, done) = run(&wal, &work, Model::default());
            drop(wal);
            if done {
                break;
            }
            disk.set_faults(MemDiskFaults::default());
            let (wal, _) = open(&disk, tiny(2048)).unwrap();
            let found = Model::of(&wal);
            let more = workload(&mut Chance(seed ^ at), found.clone(), 2);
            for crash_seed in 0..4 {
                let seeds = format!("{seed}, sync {at}, crash {crash_seed}");
                check_open(&disk.crash(crash_seed), std::slice::from_ref(&found), &seeds);
            }
            let (after, finished) = run(&wal, &more, found);
            assert!(finished);
            for crash_seed in 0..4 {
                let seeds = format!("{seed}, sync {at}, more, crash {crash_seed}");
                check_open(&disk.crash(crash_seed), &after, &seeds);
            }
        }
    }
}

#[test]
fn a_sync_that_failed_acknowledges_nothing() {
    for seed in 100..110 {
        let work = workload(&mut Chance(seed), Model::default(), 25);
        for at in 0.. {
            let faults = MemDiskFaults { fail_sync_at: Some(at), ..MemDiskFaults::default() };
            let disk = MemDisk::with_faults(faults);
            let Ok((wal, _)) = open(&disk, tiny(2048)) else { continue };
            let (possible, done) = run(&wal, &work, Model::default());
            for crash_seed in 0..4 {
                check_open(
                    &disk.crash(crash_seed),
                    &possible,
                    &format!("{seed}, sync {at}, crash {crash_seed}"),
                );
            }
            if done {
                break;
            }
        }
    }
}
