//! One suite that both kinds of generations pass, and damage to each kind's files.

use std::fs;
use std::sync::Arc;

use super::stream::BLOCK_BYTES;
use super::*;
use crate::disk::{MemDisk, MemDiskFaults};

const POSITION: Position = Position { term: 3, index: 70 };

fn record(i: u64) -> Record {
    (format!("key {i:08}").into_bytes(), vec![i as u8; (i % 300) as usize])
}

fn records(n: u64) -> Vec<Record> {
    (0..n).map(record).collect()
}

fn build(to: &dyn Generations, position: Position, records: &[Record]) -> Generation {
    to.build(position, b"members", &mut records.iter().cloned().map(Ok)).unwrap()
}

fn read(from: &dyn Generations, generation: &Generation) -> Result<Vec<Record>, GenerationError> {
    from.open(generation)?.collect()
}

fn listed(from: &dyn Generations) -> Vec<Generation> {
    from.list().unwrap().into_iter().map(Result::unwrap).collect()
}

/// `reopen` gives the same directory as after a restart.
fn suite(reopen: &dyn Fn() -> Box<dyn Generations>) {
    let generations = reopen();
    assert!(generations.list().unwrap().is_empty());
    what_is_built_is_read(&*generations);
    let newest = listed(&*generations).remove(0);
    drop(generations);

    let generations = reopen();
    assert_eq!(listed(&*generations)[0], newest, "after a restart");
    bad_sources_leave_nothing(&*generations);
    two_are_kept(&*generations);
}

fn what_is_built_is_read(generations: &dyn Generations) {
    let huge = vec![
        (b"a".to_vec(), vec![1; 10 * BLOCK_BYTES]),
        (vec![b'b'; 3 * BLOCK_BYTES], vec![]),
        (b"c".to_vec(), vec![2; BLOCK_BYTES]),
    ];
    for content in [vec![], records(1), records(2000), huge, vec![(vec![], vec![])]] {
        let built = build(generations, POSITION, &content);
        assert_eq!((built.position, built.records), (POSITION, content.len() as u64));
        assert_eq!(built.extra, b"members");
        assert_eq!(listed(generations)[0], built);
        assert_eq!(read(generations, &built).unwrap(), content);
        generations.verify(&built).unwrap();
        // A second reader beside the first.
        let mut first = generations.open(&built).unwrap();
        assert_eq!(first.next().transpose().unwrap(), content.first().cloned());
        assert_eq!(read(generations, &built).unwrap(), content);
    }
}

fn bad_sources_leave_nothing(generations: &dyn Generations) {
    let before = listed(generations);
    let mut broken = records(500).into_iter().map(Ok).chain([Err(io::ErrorKind::ConnectionReset.into())]);
    let refused = generations.build(POSITION, &[], &mut broken);
    assert!(matches!(refused, Err(GenerationError::Source(_))));
    let twice = [record(0), record(1), record(1)];
    let refused = generations.build(POSITION, &[], &mut twice.into_iter().map(Ok));
    assert!(matches!(refused, Err(GenerationError::NotSorted(2))));
    assert_eq!(listed(generations), before);
    assert!(generations.remove("../elsewhere").is_err());
}

fn two_are_kept(generations: &dyn Generations) {
    let older = build(generations, POSITION, &records(10));
    // The same position again: after a received checkpoint another is built at once.
    let newer = build(generations, POSITION, &records(10));
    assert!(newer.number > older.number);
    let stream = generations.open(&older).unwrap();
    generations.prune(2).unwrap();
    assert_eq!(listed(generations), [newer.clone(), older.clone()]);
    generations.remove(&newer.name).unwrap();
    assert_eq!(listed(generations), [older]);
    assert_eq!(stream.count(), 10);
}

#[test]
fn disk_generations_pass_the_suite() {
    let disk = std::cell::RefCell::new(MemDisk::new());
    suite(&|| {
        let crashed = disk.borrow().crash(1);
        disk.replace(crashed.clone());
        Box::new(DiskGenerations::open_dir(Arc::new(crashed), Path::new("/data/checkpoints")).unwrap())
    });
}

#[test]
fn sled_generations_pass_the_suite() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("checkpoints");
    suite(&|| Box::new(SledGenerations::open_dir(&dir).unwrap()));
}

#[test]
fn what_was_interrupted_is_removed_at_open() {
    let home = tempfile::tempdir().unwrap();
    let leftovers = ["generation-0000000000000007.building/sled", "generation-0000000000000006-0.reading"];
    for name in leftovers {
        fs::create_dir_all(home.path().join(name)).unwrap();
    }
    fs::create_dir(home.path().join("somebody-elses")).unwrap();
    let generations = SledGenerations::open_dir(home.path()).unwrap();
    assert!(generations.list().unwrap().is_empty());
    assert_eq!(tree::names(home.path()).unwrap(), ["somebody-elses"]);
}

/// Every damage is reported by `list` or by reading, and the older generation is untouched.
fn check_damaged(generations: &dyn Generations, older: &Generation, content: &[Record], what: &str) {
    let mut found = generations.list().unwrap();
    let newest = found.remove(0);
    let bad = match &newest {
        Err(bad) => bad.name.clone(),
        Ok(newest) => {
            let error = read(generations, newest).expect_err(what);
            assert!(!matches!(error, GenerationError::Source(_) | GenerationError::NotSorted(_)));
            newest.name.clone()
        }
    };
    assert_ne!(bad, older.name);
    let fallback = found.pop().unwrap().unwrap();
    assert_eq!(&fallback, older, "{what}");
    assert_eq!(read(generations, &fallback).unwrap(), content, "{what}");
}

#[test]
fn any_damaged_bit_of_a_disk_generation_is_reported() {
    let disk = MemDisk::new();
    let dir = Path::new("/checkpoints");
    let generations = DiskGenerations::open_dir(Arc::new(disk.clone()), dir).unwrap();
    let content = records(20);
    let older = build(&generations, POSITION, &content);
    let newer = build(&generations, POSITION, &content);
    let path = dir.join(&newer.name);
    let good = disk.contents(&path).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        disk.put(&path, bad);
        check_damaged(&generations, &older, &content, &format!("bit {bit}"));
    }
    for len in 0..good.len() {
        disk.put(&path, good[..len].to_vec());
        check_damaged(&generations, &older, &content, &format!("cut to {len}"));
    }
    disk.put(&path, [good.clone(), vec![0]].concat());
    check_damaged(&generations, &older, &content, "a byte more");
    disk.put(&path, good.clone());
    disk.put(&dir.join("generation-0000000000000009"), good);
    check_damaged(&generations, &older, &content, "renamed");
}

#[test]
fn any_damaged_file_of_a_sled_generation_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let generations = SledGenerations::open_dir(home.path()).unwrap();
    let content = records(300);
    let older = build(&generations, POSITION, &content);
    let newer = build(&generations, POSITION, &content);
    let dir = home.path().join(&newer.name);
    for name in ["DESCRIPTION", "sled/db", "sled/conf"] {
        let path = dir.join(name);
        let good = fs::read(&path).unwrap();
        let step = (good.len() / 40).max(1);
        for at in (0..good.len()).step_by(step).chain([good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, bad).unwrap();
            check_damaged(&generations, &older, &content, &format!("byte {at} of {name}"));
            fs::write(&path, &good[..at]).unwrap();
            check_damaged(&generations, &older, &content, &format!("{name} cut to {at}"));
        }
        fs::remove_file(&path).unwrap();
        check_damaged(&generations, &older, &content, &format!("no {name}"));
        fs::write(&path, &good).unwrap();
    }
    generations.verify(&newer).unwrap();
    fs::remove_dir_all(dir.join("sled")).unwrap();
    check_damaged(&generations, &older, &content, "no sled directory");
}

#[test]
fn reading_leaves_a_sled_generation_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let generations = SledGenerations::open_dir(home.path()).unwrap();
    let built = build(&generations, POSITION, &records(3000));
    let sled_dir = home.path().join(&built.name).join("sled");
    let before = tree::sum_files(&sled_dir).unwrap();
    for _ in 0..3 {
        generations.verify(&built).unwrap();
    }
    assert_eq!(tree::sum_files(&sled_dir).unwrap(), before);
    assert_eq!(tree::names(&sled_dir.join("blobs")).unwrap(), Vec::<String>::new());
    assert_eq!(tree::names(home.path()).unwrap(), [built.name], "the readers' copies are gone");
}

#[test]
fn a_build_survives_power_cuts_whole_or_not_at_all() {
    let dir = Path::new("/checkpoints");
    let content = records(200);
    for operation in 0.. {
        let disk = MemDisk::new();
        let generations = DiskGenerations::open_dir(Arc::new(disk.clone()), dir).unwrap();
        let older = build(&generations, POSITION, &content[..50]);
        let power_off_at = Some(disk.operations() + operation);
        disk.set_faults(MemDiskFaults { power_off_at, ..MemDiskFaults::default() });
        let built = generations.build(POSITION, b"x", &mut content.iter().cloned().map(Ok));
        for seed in 0..8 {
            let crashed = disk.crash(seed);
            let generations = DiskGenerations::open_dir(Arc::new(crashed), dir).unwrap();
            let mut found = listed(&generations);
            for generation in &found {
                let expected = if generation.number == older.number { &content[..50] } else { &content[..] };
                assert_eq!(read(&generations, generation).unwrap(), expected, "cut at {operation}, {seed}");
            }
            assert_eq!(found.pop().unwrap(), older, "cut at {operation}, {seed}");
            assert!(built.is_err() || found.len() == 1, "what was acknowledged is there");
        }
        if built.is_ok() {
            return;
        }
    }
}

#[test]
fn until_error_hands_over_what_went_wrong() {
    let good: RecordStream = Box::new([Ok(record(1)), Ok(record(2))].into_iter());
    let mut error = None;
    assert_eq!(until_error(good, &mut error).count(), 2);
    assert!(error.is_none());
    let damaged = GenerationError::damaged(Path::new("x"), "y");
    let bad: RecordStream = Box::new([Ok(record(1)), Err(damaged), Ok(record(2))].into_iter());
    assert_eq!(until_error(bad, &mut error).count(), 1);
    assert!(error.is_some());
}

const DISK_V1: &[u8] = include_bytes!("../../testdata/disk-generation-v1");
const SLED_V1: [(&str, &[u8]); 3] = [
    ("DESCRIPTION", include_bytes!("../../testdata/sled-generation-v1/DESCRIPTION")),
    ("sled/conf", include_bytes!("../../testdata/sled-generation-v1/sled/conf")),
    ("sled/db", include_bytes!("../../testdata/sled-generation-v1/sled/db")),
];
const GOLDEN_RECORDS: u64 = 60;

#[test]
fn version_1_of_a_disk_generation_loads_and_is_what_is_written() {
    let disk = MemDisk::new();
    let path = Path::new("/checkpoints/generation-0000000000000001");
    disk.put(path, DISK_V1.to_vec());
    let generations = DiskGenerations::open_dir(Arc::new(disk.clone()), Path::new("/checkpoints")).unwrap();
    let golden = listed(&generations).remove(0);
    assert_eq!((golden.position, &golden.extra[..]), (POSITION, &b"members"[..]));
    assert_eq!(read(&generations, &golden).unwrap(), records(GOLDEN_RECORDS));
    generations.remove(&golden.name).unwrap();
    assert_eq!(build(&generations, POSITION, &records(GOLDEN_RECORDS)), golden);
    assert_eq!(disk.contents(path).unwrap(), DISK_V1);
}

#[test]
fn version_1_of_a_sled_generation_loads() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("generation-0000000000000001");
    fs::create_dir_all(dir.join("sled")).unwrap();
    for (name, bytes) in SLED_V1 {
        fs::write(dir.join(name), bytes).unwrap();
    }
    let generations = SledGenerations::open_dir(home.path()).unwrap();
    let golden = listed(&generations).remove(0);
    assert_eq!((golden.position, &golden.extra[..]), (POSITION, &b"members"[..]));
    assert_eq!(read(&generations, &golden).unwrap(), records(GOLDEN_RECORDS));
    // The same records, so the same blocks, whatever sled makes of them.
    let again = build(&generations, POSITION, &records(GOLDEN_RECORDS));
    assert_eq!((again.checksum, again.blocks), (golden.checksum, golden.blocks));
}
