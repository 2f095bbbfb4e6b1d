//! That who takes a blob and who collects blobs exclude each other: each waits while the other is between its look and
//! its deed. The test holds what the other would.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::store::{PackageStore, StoreOptions};
use crate::{Digest, FileEntry};

/// Something that has not ended after so long waits: without the lock it takes microseconds.
const WAITS: Duration = Duration::from_millis(200);
/// Everything ends.
const BOUND: Duration = Duration::from_secs(20);

/// A store with one blob that belongs to no tree.
fn store() -> (tempfile::TempDir, PackageStore, FileEntry, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let store = PackageStore::open(dir.path(), StoreOptions { min_free_bytes: 0 }).unwrap();
    let entry = FileEntry { path: "a.jar".into(), size: 6, blake3: Digest::of(b"shared") };
    let blob = store.layout().blob(&entry.blake3);
    fs::create_dir_all(blob.parent().unwrap()).unwrap();
    fs::write(&blob, b"shared").unwrap();
    (dir, store, entry, blob)
}

fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (told, done) = mpsc::channel();
    std::thread::spawn(move || told.send(work()));
    done
}

fn waits<T: std::fmt::Debug>(done: &Receiver<T>) {
    assert_eq!(done.recv_timeout(WAITS).unwrap_err(), RecvTimeoutError::Timeout, "it did not wait");
}

#[test]
fn the_collection_waits_for_who_takes_a_blob_and_leaves_it() {
    let (dir, store, _, blob) = store();
    let taking = store.blobs();
    let collecting = store.clone();
    let done = start(move || collecting.collect_blobs().unwrap());
    waits(&done);
    fs::hard_link(&blob, dir.path().join("taken")).unwrap();
    drop(taking);
    assert_eq!(done.recv_timeout(BOUND).unwrap(), 0);
    assert!(blob.exists());
}

#[test]
fn who_takes_a_blob_waits_for_the_collection_and_sees_that_it_is_gone() {
    let (_dir, store, entry, blob) = store();
    let mut staging = store.stage("op1").unwrap();
    let collecting = store.blobs();
    let wanted = entry.clone();
    let done = start(move || (staging.reuse(&wanted).unwrap(), staging));
    waits(&done);
    assert_eq!(fs::metadata(&blob).unwrap().nlink(), 1);
    fs::remove_file(&blob).unwrap();
    drop(collecting);
    let (reused, mut staging) = done.recv_timeout(BOUND).unwrap();
    assert!(!reused, "no error: it is fetched");

    // A file that was received gets its name among the blobs in the same way.
    let collecting = store.blobs();
    fs::write(staging.part(&entry), b"shared").unwrap();
    let done = start(move || (staging.add_part(&entry).unwrap(), staging));
    waits(&done);
    fs::remove_dir(blob.parent().unwrap()).unwrap();
    drop(collecting);
    let (_, staging) = done.recv_timeout(BOUND).unwrap();
    assert_eq!(fs::metadata(&blob).unwrap().nlink(), 2);
    staging.discard().unwrap();
    assert!(!blob.exists());
}
