//! Operations that receive the same content at once, and one of them gives up.

use crate::digest::Digest;
use crate::manifest::FileEntry;
use crate::staging::Staging;
use crate::store::{PackageStore, StoreOptions};

const ROUNDS: usize = 100;
const CONTENT: &[u8] = b"the same";

fn entry(path: &str) -> FileEntry {
    FileEntry { path: path.into(), size: CONTENT.len() as u64, blake3: Digest::of(CONTENT) }
}

fn receive(store: &PackageStore, op: &str) -> Staging {
    let mut staging = store.stage(op).unwrap();
    let mut writer = staging.create_file("a").unwrap();
    writer.write(CONTENT).unwrap();
    staging.add(writer).unwrap();
    staging
}

/// What ends collects the blobs that nobody links to, whoever is about to link to them.
#[test]
fn one_operation_that_is_given_up_disturbs_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = PackageStore::open(directory.path(), StoreOptions { min_free_bytes: 0 }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let op = format!("op{thread}-{round}");
                    if thread > 0 {
                        receive(store, &op).discard().unwrap();
                        continue;
                    }
                    let mut staging = store.stage(&op).unwrap();
                    let was_there = staging.reuse(&entry("a")).unwrap();
                    drop(staging);
                    let mut staging = if was_there { store.stage(&op).unwrap() } else { receive(store, &op) };
                    let _ = staging.reuse(&entry("b")).unwrap();
                    staging.discard().unwrap();
                }
            });
        }
    });
    let left = std::fs::read_dir(store.layout().blobs()).unwrap().count();
    assert_eq!(left, 0, "and nothing stays");
}
