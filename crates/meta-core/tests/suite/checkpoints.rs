//! Checkpoints: old bytes load for ever, bad ones are refused, and pins do not move.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use meta_core::{Core, ImportError, Record};
use meta_types::{
    Command, DeleteRangeRequest, KeyRange, Op, PutRequest, RangeRequest, Response, Sequenced, Txn,
};

use crate::rig::Rig;

fn put(key: &'static [u8], value: &'static str, lease: i64) -> Command {
    let (key, value) = (Bytes::from_static(key), Bytes::from(value));
    Command::Put(PutRequest { key, value, lease, ..PutRequest::default() })
}

fn delete(key: &'static str) -> Command {
    Command::DeleteRange(DeleteRangeRequest { range: KeyRange::one(key), prev_kv: false })
}

/// A bit of everything.
fn sample() -> Rig {
    let mut rig = Rig::new();
    rig.skip();
    rig.stamp(1_500);
    let txn = Txn { success: vec![Op::put("t2", "x"), Op::put("t1", "y")], ..Txn::default() };
    for command in [
        Command::SetCluster { cluster_id: 42, name: "golden".into(), feature_level: 1 },
        Command::LeaseGrant { id: 7, ttl: 60 },
        Command::LeaseGrant { id: -7, ttl: 5 },
        put(b"a", "1", 0),
        put(b"a", "2", 7),
        put(b"a\0b", "binary \0 key", -7),
        put(b"gone", "early", 0),
        delete("gone"),
        put(b"b", "1", 0),
        Command::Txn(txn),
        delete("b"),
        Command::Compact(8),
        put(b"a", "3", 7),
    ] {
        rig.ask(command).unwrap();
    }
    rig.origin.boot = 101;
    rig.ask(Command::RegisterOrigin).unwrap();
    rig.low_water = rig.next_seq + 1;
    rig.next_seq += 3;
    rig.ask(put(b"last", "one", 0)).unwrap();
    rig
}

fn records(core: &Core, max_bytes: usize) -> Vec<Record> {
    let mut frozen = core.freeze();
    let steps = std::iter::from_fn(|| Some(frozen.step(max_bytes)).filter(|step| !step.is_empty()));
    let records = steps.flatten().collect();
    assert_eq!(frozen.is_sound(), Some(true));
    records
}

fn golden_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/checkpoint-v1.hex")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn version_1_is_written_byte_for_byte_and_loads() {
    let rig = sample();
    let lines = records(&rig.core, usize::MAX).into_iter().map(|(k, v)| format!("{} {}\n", hex(&k), hex(&v)));
    let written: String = lines.collect();
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        fs::write(golden_file(), &written).unwrap();
    }
    let golden = fs::read_to_string(golden_file()).unwrap();
    assert_eq!(written, golden, "layout version 1 is frozen: add a new version instead");

    let loaded = Core::import(golden.lines().map(|line| {
        let (key, value) = line.split_once(' ').unwrap();
        (unhex(key), unhex(value))
    }))
    .unwrap();
    assert_eq!(loaded.state_hash(), rig.core.state_hash());
    assert_eq!(loaded.applied(), rig.core.applied());
    assert_eq!(loaded.revision(), 11);
    assert_eq!(loaded.lease(7), rig.core.lease(7));
    assert_eq!(loaded.history(8, 99), rig.core.history(8, 99));
}

#[test]
fn steps_are_bounded_and_sum_up_to_the_same_records() {
    let rig = sample();
    let whole = records(&rig.core, usize::MAX);
    assert_eq!(records(&rig.core, 1), whole);
    assert!(whole.is_sorted_by(|a, b| a.0 < b.0));
    let mut frozen = rig.core.freeze();
    assert_eq!(frozen.step(1).len(), 1);
}

#[test]
fn what_is_cut_short_reordered_or_changed_is_refused() {
    let rig = sample();
    let whole = records(&rig.core, usize::MAX);
    for missing in 0..whole.len() {
        let mut some = whole.clone();
        some.remove(missing);
        assert!(Core::import(some.into_iter()).is_err(), "record {missing} is missing");
    }
    for at in 1..whole.len() - 1 {
        let mut swapped = whole.clone();
        swapped.swap(at, at + 1);
        assert_eq!(
            Core::import(swapped.into_iter()).err(),
            Some(ImportError::Broken("records out of order"))
        );
    }
    for (at, record) in whole.iter().enumerate() {
        for bit in 0..record.1.len() * 8 {
            let mut changed = whole.clone();
            changed[at].1[bit / 8] ^= 1 << (bit % 8);
            match Core::import(changed.into_iter()) {
                Err(_) => {}
                // The hash covers the current state; older versions are covered by their container's checksum.
                Ok(core) => assert_eq!(core.state_hash(), rig.core.state_hash()),
            }
        }
    }
}

#[test]
fn a_pin_stays_where_it_is() {
    let mut rig = sample();
    let expected = records(&rig.core, usize::MAX);
    let mut frozen = rig.core.freeze();
    let mut found = rig.core.export_step(&mut frozen, 100);
    for n in 0..200 {
        let key = Bytes::from(format!("later/{n}"));
        rig.ask(Command::Put(PutRequest { key, ..PutRequest::default() })).unwrap();
        rig.ask(Command::LeaseKeepAlive { ids: vec![7, -7] }).unwrap();
    }
    rig.ask(Command::LeaseRevoke { id: 7 }).unwrap();
    rig.ask(Command::Compact(rig.core.revision())).unwrap();
    rig.core.sweep(usize::MAX);
    loop {
        let step = rig.core.export_step(&mut frozen, 100);
        if step.is_empty() {
            break;
        }
        found.extend(step);
    }
    assert_eq!(found, expected);
    rig.core.thaw(frozen);
}

#[test]
fn a_restored_replica_still_knows_what_was_applied() {
    let rig = sample();
    let core = Core::import(records(&rig.core, 50).into_iter()).unwrap();
    let mut restored = Rig { core, ..sample() };
    let mut batch = restored.batch(vec![put(b"new", "1", 0)], None);
    batch.commands.push(Sequenced { seq: restored.next_seq - 2, command: put(b"twice", "1", 0) });
    let applied = restored.apply(batch);
    assert_eq!(applied.outcomes.len(), 1, "the second number was applied before the checkpoint");
    assert!(matches!(applied.outcomes[0].1.result, Ok(Response::Put(_))));
    assert_eq!(restored.core.range(&RangeRequest::get("twice")).unwrap().count, 0);
}

#[test]
fn an_empty_store_survives_too() {
    let core = Core::import(records(&Core::new(), 1).into_iter()).unwrap();
    assert_eq!((core.revision(), core.applied(), core.cluster()), (1, None, None));
    assert_eq!(core.state_hash(), Core::new().state_hash());
    assert_eq!(
        Core::import(Vec::<Record>::new().into_iter()).err(),
        Some(ImportError::Broken("it does not begin with a header"))
    );
}

#[test]
fn a_checkpoint_in_the_middle_of_a_sweep_is_that_of_its_end() {
    let mut rig = Rig::new();
    for batch in 0..40 {
        // One busy key first, whose events use up the step of an entry; then 1,000 keys put twice.
        let key = |n| {
            if batch < 20 { "busy".into() } else { Bytes::from(format!("k{}", (batch * 100 + n) % 1_000)) }
        };
        let puts = (0..100).map(|n| Command::Put(PutRequest { key: key(n), ..PutRequest::default() }));
        let batch = rig.batch(puts.collect(), None);
        rig.apply(batch);
    }
    rig.ask(Command::Compact(4_000)).unwrap();
    assert!(!rig.core.sweep(0), "one entry does not sweep 4,000 events");
    let (before, bytes) = (records(&rig.core, 1_000), rig.core.history_bytes());
    assert_eq!(rig.core.compaction_for(0), None, "one at a time");
    assert!(rig.core.sweep(usize::MAX));
    assert_eq!(records(&rig.core, 1_000), before);
    assert!(rig.core.history_bytes() < bytes / 100);
}

#[test]
fn a_compaction_for_a_size_reaches_it_and_keeps_what_it_can() {
    let mut rig = Rig::new();
    for n in 0..200u8 {
        let request = PutRequest { key: "k".into(), value: vec![n; 500].into(), ..PutRequest::default() };
        rig.ask(Command::Put(request)).unwrap();
    }
    let bytes = rig.core.history_bytes();
    assert_eq!(rig.core.compaction_for(bytes), None);
    let revision = rig.core.compaction_for(bytes / 2).unwrap();
    rig.ask(Command::Compact(revision)).unwrap();
    assert!(rig.core.sweep(usize::MAX));
    let left = rig.core.history_bytes();
    assert!(left <= bytes / 2 && left > bytes / 2 - 2_000, "{left} of {bytes}");
    let all = rig.core.compaction_for(0).unwrap();
    assert_eq!(all, rig.core.revision());
}
