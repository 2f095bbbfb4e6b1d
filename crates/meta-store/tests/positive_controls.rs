//! That the known bug which sits in this crate breaks what it is said to break, and only while it is on.
//! `cargo test -p meta-store --features positive-controls --test positive_controls`
#![cfg(feature = "positive-controls")]

use std::path::Path;
use std::sync::Arc;

use meta_store::{LogEntry, MemDisk, Position, Wal, WalOptions};
use meta_types::controls::{Control, passed, set};

const CUTS: u64 = 40;

/// In how many of the power cuts an entry is lost whose sync had returned.
fn lost() -> usize {
    let options = || WalOptions { segment_bytes: 1 << 20, prewrite_bytes: 4096, cache_bytes: 512, salt: 7 };
    let disk = MemDisk::new();
    let (wal, _) = Wal::open(Arc::new(disk.clone()), Path::new("/wal"), options()).expect("an empty log");
    let entry = LogEntry { position: Position { term: 1, index: 1 }, payload: vec![7; 600].into() };
    wal.append([entry]).expect("appended");
    wal.sync().expect("synced, it says");
    let found = |cut: u64| {
        let after = Wal::open(Arc::new(disk.crash(cut)), Path::new("/wal"), options());
        after.is_ok_and(|(wal, _)| wal.last().is_some_and(|last| last.index == 1))
    };
    (0..CUTS).filter(|cut| !found(*cut)).count()
}

#[test]
fn a_skipped_fsync_loses_what_was_acknowledged() {
    assert_eq!(lost(), 0);
    set(Some(Control::SkippedFsync));
    let lost = lost();
    assert!(passed() > 0, "its place was not passed");
    set(None);
    assert!(lost > 0, "none of {CUTS} power cuts lost it");
}
