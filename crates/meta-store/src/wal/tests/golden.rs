//! Old bytes load for ever, and today's writer still writes them. A new format version adds a file to
//! `testdata/` beside the old ones, which stay.

use super::format::{SegmentHeader, Snapshot};
use super::*;

const WAL_V1: &[u8] = include_bytes!("../../../testdata/wal-v1.log");

/// One record of each kind, in three syncs.
fn golden_log(disk: &MemDisk) -> Wal {
    let (wal, _) = open(disk, WalOptions { salt: 0x0123_4567_89AB_CDEF, ..tiny(1024) }).unwrap();
    wal.save_vote(Vote { term: 2, node_id: 0xA1, committed: false }).unwrap();
    wal.sync().unwrap();
    wal.append([entry(1, 2, "one"), entry(2, 2, ""), entry(3, 2, vec![0xFF; 21])]).unwrap();
    wal.append([entry(4, 2, "replaced")]).unwrap();
    wal.save_vote(Vote { term: 3, node_id: 0xA2, committed: true }).unwrap();
    wal.sync().unwrap();
    wal.truncate_after(Some(3)).unwrap();
    wal.append([entry(4, 3, "four")]).unwrap();
    wal.save_committed(Some(Position { term: 3, index: 4 })).unwrap();
    wal.purge(Position { term: 2, index: 1 }).unwrap();
    wal.sync().unwrap();
    wal
}

#[test]
fn version_1_loads() {
    let disk = MemDisk::new();
    disk.put(&dir().join("wal-0000000000000001.log"), WAL_V1.to_vec());
    let (wal, recovered) = open(&disk, tiny(1024)).unwrap();
    assert_eq!(recovered.torn_tail, None);
    assert_eq!(recovered.vote, Some(Vote { term: 3, node_id: 0xA2, committed: true }));
    assert_eq!(recovered.committed, Some(Position { term: 3, index: 4 }));
    assert_eq!(recovered.purged, Some(Position { term: 2, index: 1 }));
    let expected = [entry(2, 2, ""), entry(3, 2, vec![0xFF; 21]), entry(4, 3, "four")];
    assert_eq!(wal.read(2..5).unwrap(), expected);
}

#[test]
fn version_1_is_what_is_written() {
    let disk = MemDisk::new();
    golden_log(&disk);
    let written = disk.contents(&dir().join("wal-0000000000000001.log")).unwrap();
    assert_eq!(written, WAL_V1);
}

#[test]
fn a_segment_header_keeps_everything() {
    let position = |index| Some(Position { term: 9, index });
    let before = Snapshot {
        vote: Some(Vote { term: 1, node_id: 2, committed: true }),
        committed: position(3),
        purged: position(4),
        last_index: Some(5),
    };
    for before in [before, Snapshot::default()] {
        let header = SegmentHeader { sequence: 6, salt: 7, previous_end: 8, before };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes).unwrap(), header);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }
}
