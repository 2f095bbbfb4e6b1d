//! The log on a good day, and its refusals.

use super::*;
use crate::disk::{MemDiskFaults, RealDisk};

fn numbered(range: Range<u64>) -> Vec<LogEntry> {
    range.map(|i| entry(i, 1 + i / 10, format!("payload {i}"))).collect()
}

#[test]
fn what_is_appended_is_read_before_and_after_sync_and_reopen() {
    let disk = MemDisk::new();
    let (wal, recovered) = open(&disk, tiny(1024)).unwrap();
    assert!(recovered.created && recovered.last.is_none());
    wal.append(numbered(0..100)).unwrap();
    wal.save_vote(Vote { term: 3, node_id: 9, committed: true }).unwrap();
    wal.save_committed(Some(Position { term: 2, index: 17 })).unwrap();
    assert_eq!(wal.read(0..100).unwrap(), numbered(0..100));
    let report = wal.sync().unwrap();
    assert_eq!(report.records, 102);
    assert_eq!(wal.sync().unwrap(), SyncReport::default());
    assert_eq!(wal.read(0..100).unwrap(), numbered(0..100));
    let before = Model::of(&wal);
    drop(wal);

    let (wal, recovered) = open(&disk, tiny(1024)).unwrap();
    assert!(!recovered.created && recovered.torn_tail.is_none());
    assert_eq!(recovered.first_index, Some(0));
    assert_eq!(recovered.last, Some(Position { term: 10, index: 99 }));
    assert_eq!(recovered.vote, Some(Vote { term: 3, node_id: 9, committed: true }));
    assert_eq!(recovered.committed, Some(Position { term: 2, index: 17 }));
    assert_eq!(Model::of(&wal), before);
    wal.append(numbered(100..101)).unwrap();
    wal.sync().unwrap();
}

#[test]
fn indexes_have_no_holes() {
    let (wal, _) = open(&MemDisk::new(), tiny(1024)).unwrap();
    wal.append(numbered(5..7)).unwrap();
    for bad in [0, 5, 6, 8] {
        let refused = wal.append(numbered(bad..bad + 1));
        assert!(matches!(refused, Err(WalError::NotNext { last: 6, .. })), "{bad}: {refused:?}");
    }
    let gap = wal.append([entry(7, 1, "a"), entry(9, 1, "b")]);
    assert!(matches!(gap, Err(WalError::NotNext { found: 9, last: 7 })));
    assert_eq!(wal.last().unwrap().index, 6, "nothing of a refused append is kept");
    for range in [4..6, 6..8, 7..8, 0..1] {
        assert!(matches!(wal.read(range.clone()), Err(WalError::NoSuchEntry { .. })), "{range:?}");
    }
    assert_eq!(wal.read(6..6).unwrap(), []);
}

#[test]
fn truncate_and_purge_survive() {
    let disk = MemDisk::new();
    let (wal, _) = open(&disk, tiny(1024)).unwrap();
    wal.append(numbered(0..20)).unwrap();
    wal.sync().unwrap();
    wal.truncate_after(Some(14)).unwrap();
    wal.append([entry(15, 9, "other")]).unwrap();
    wal.purge(Position { term: 1, index: 4 }).unwrap();
    wal.purge(Position { term: 1, index: 2 }).unwrap();
    assert_eq!(wal.first_index(), Some(5));
    assert_eq!(wal.position(4), Some(Position { term: 1, index: 4 }));
    assert_eq!(wal.position(3), None);
    wal.sync().unwrap();
    let before = Model::of(&wal);
    assert_eq!(before.entries[&15].payload, "other");
    drop(wal);
    let (wal, recovered) = open(&disk, tiny(1024)).unwrap();
    assert_eq!(recovered.purged, Some(Position { term: 1, index: 4 }));
    assert_eq!(Model::of(&wal), before);

    wal.truncate_after(None).unwrap();
    assert_eq!((wal.first_index(), wal.last().unwrap().index), (None, 4));
    wal.purge(Position { term: 20, index: 1000 }).unwrap();
    assert_eq!(wal.last(), Some(Position { term: 20, index: 1000 }));
    assert!(wal.append(numbered(5..6)).is_err());
    wal.append([entry(1001, 20, "next")]).unwrap();
    wal.sync().unwrap();
    let before = Model::of(&wal);
    drop(wal);
    assert_eq!(Model::of(&open(&disk, tiny(1024)).unwrap().0), before);
}

#[test]
fn purged_segments_are_unlinked_and_the_rest_still_opens() {
    let disk = MemDisk::new();
    let (wal, _) = open(&disk, tiny(1024)).unwrap();
    wal.save_vote(Vote { term: 5, node_id: 2, committed: false }).unwrap();
    for index in 0..200 {
        wal.append([entry(index, 5, vec![index as u8; 40])]).unwrap();
        wal.sync().unwrap();
    }
    let before = disk.list(dir()).unwrap().len();
    assert!(before > 10, "{before} segments");
    wal.purge(Position { term: 5, index: 150 }).unwrap();
    assert_eq!(disk.list(dir()).unwrap().len(), before, "nothing goes before the purge is durable");
    wal.sync().unwrap();
    assert!(disk.list(dir()).unwrap().len() < before / 2);
    let before = Model::of(&wal);
    drop(wal);
    let (wal, recovered) = open(&disk, tiny(1024)).unwrap();
    assert_eq!(recovered.vote, Some(Vote { term: 5, node_id: 2, committed: false }));
    assert_eq!(recovered.first_index, Some(151));
    assert_eq!(Model::of(&wal), before);
}

#[test]
fn payloads_leave_memory_and_come_back_from_disk() {
    let (wal, _) = open(&MemDisk::new(), tiny(4096)).unwrap();
    let entries: Vec<_> = (0..50).map(|i| entry(i, 1, vec![i as u8; 100])).collect();
    wal.append(entries.clone()).unwrap();
    assert_eq!(wal.read(0..50).unwrap(), entries);
    wal.sync().unwrap();
    assert_eq!(wal.read(0..50).unwrap(), entries);
    assert_eq!(wal.read(47..50).unwrap(), entries[47..]);
    let some = wal.read_limited(10..50, 1000).unwrap();
    assert!((2..10).contains(&some.len()) && some[..] == entries[10..10 + some.len()]);
    assert_eq!(wal.read_limited(10..50, 0).unwrap(), entries[10..11], "at least one");
}

#[test]
fn a_batch_larger_than_a_segment_gets_its_own() {
    let disk = MemDisk::new();
    let (wal, _) = open(&disk, tiny(1024)).unwrap();
    let entries: Vec<_> = (0..4).map(|i| entry(i, 1, vec![i as u8; 3000])).collect();
    wal.append(entries.clone()).unwrap();
    wal.sync().unwrap();
    wal.append([entry(4, 1, "small")]).unwrap();
    wal.sync().unwrap();
    drop(wal);
    let (wal, _) = open(&disk, tiny(1024)).unwrap();
    assert_eq!(wal.read(0..4).unwrap(), entries);
    let huge = wal.append([entry(5, 1, vec![0; MAX_ENCODED_BYTES])]);
    assert!(matches!(huge, Err(WalError::TooLarge { .. })));
}

#[test]
fn bytes_after_counts_what_a_checkpoint_would_save() {
    let (wal, _) = open(&MemDisk::new(), tiny(1 << 20)).unwrap();
    assert_eq!(wal.bytes_after(0), 0);
    wal.append((1..=10).map(|i| entry(i, 1, vec![0; 1003]))).unwrap();
    assert_eq!(wal.bytes_after(0), 10 * 1040);
    assert_eq!(wal.bytes_after(4), 6 * 1040);
    assert_eq!(wal.bytes_after(10), 0);
    wal.purge(Position { term: 1, index: 7 }).unwrap();
    assert_eq!(wal.bytes_after(7), 3 * 1040);
    assert_eq!(wal.bytes_after(9), 1040);
}

#[test]
fn a_failed_sync_is_for_ever() {
    for later_syncs_fail in [true, false] {
        let disk = MemDisk::new();
        let (wal, _) = open(&disk, tiny(1 << 16)).unwrap();
        wal.append([entry(0, 1, "kept")]).unwrap();
        wal.sync().unwrap();
        let faults = MemDiskFaults {
            fail_sync_at: Some(disk.syncs()),
            fail_syncs_after: later_syncs_fail,
            ..MemDiskFaults::default()
        };
        disk.set_faults(faults);
        wal.append([entry(1, 1, "lost")]).unwrap();
        assert!(matches!(wal.sync(), Err(WalError::Io { what: "sync", .. })));
        let operations = disk.operations();
        assert!(matches!(wal.sync(), Err(WalError::Stopped(_))));
        assert!(matches!(wal.append([entry(2, 1, "x")]), Err(WalError::Stopped(_))));
        assert!(matches!(
            wal.save_vote(Vote { term: 1, node_id: 1, committed: false }),
            Err(WalError::Stopped(_))
        ));
        assert!(matches!(wal.purge(Position { term: 1, index: 0 }), Err(WalError::Stopped(_))));
        assert!(matches!(wal.read(0..1), Err(WalError::Stopped(_))));
        assert_eq!(disk.operations(), operations, "nothing more is written");
        let (wal, _) = open(&disk.crash(1), tiny(1 << 16)).unwrap();
        assert_eq!(wal.read(0..1).unwrap(), [entry(0, 1, "kept")]);
    }
}

#[test]
fn a_full_disk_stops_the_log_and_loses_nothing() {
    let disk = MemDisk::new();
    let (wal, _) = open(&disk, tiny(1024)).unwrap();
    disk.set_faults(MemDiskFaults { capacity_bytes: Some(2500), ..MemDiskFaults::default() });
    let mut acknowledged = 0;
    let error = loop {
        wal.append([entry(acknowledged, 1, vec![1; 50])]).unwrap();
        match wal.sync() {
            Ok(_) => acknowledged += 1,
            Err(e) => break e,
        }
    };
    assert!(error.to_string().contains("reserve space"), "{error}");
    assert!(acknowledged > 5);
    disk.set_faults(MemDiskFaults::default());
    let (wal, recovered) = open(&disk, tiny(1024)).unwrap();
    assert_eq!(recovered.last.unwrap().index, acknowledged - 1);
    assert_eq!(disk.list(dir()).unwrap().len(), 2, "the unfinished segment is gone");
    wal.append([entry(acknowledged, 1, "there is room again")]).unwrap();
    wal.sync().unwrap();
}

#[test]
fn readers_and_syncs_run_beside_each_other_on_a_real_disk() {
    let home = tempfile::tempdir().unwrap();
    let options = WalOptions { segment_bytes: 16 << 10, cache_bytes: 4096, ..WalOptions::default() };
    let (wal, _) = Wal::open(Arc::new(RealDisk), &home.path().join("wal"), options.clone()).unwrap();
    let payload = |i: u64| vec![i as u8; 60 + (i % 90) as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..2000 {
                wal.append([entry(i, 1, payload(i))]).unwrap();
            }
        });
        scope.spawn(|| {
            while wal.last().is_none_or(|last| last.index < 1999) {
                wal.sync().unwrap();
            }
        });
        scope.spawn(|| {
            let mut next = 0;
            while next < 2000 {
                let Some(last) = wal.last() else { continue };
                for found in wal.read_limited(next..last.index + 1, 5000).unwrap() {
                    assert_eq!(found, entry(next, 1, payload(next)));
                    next += 1;
                }
            }
        });
    });
    wal.sync().unwrap();
    wal.purge(Position { term: 1, index: 1000 }).unwrap();
    wal.sync().unwrap();
    let before = Model::of(&wal);
    drop(wal);
    let (wal, _) = Wal::open(Arc::new(RealDisk), &home.path().join("wal"), options).unwrap();
    assert_eq!(Model::of(&wal), before);
}
