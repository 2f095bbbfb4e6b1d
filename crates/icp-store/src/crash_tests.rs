//! Crashes between every two steps of publishing and retiring, played by stopping after each step and starting
//! again.

use std::fs;
use std::path::Path;

use crate::publish::{Publish, Retire};
use crate::store::{DiskState, PackageStore, StoreOptions};
use crate::sweep::SweepReport;
use crate::{Sealed, StoreError};

const FILES: [(&str, &[u8]); 3] = [("a/b/c.jar", b"nested"), ("d.jar", b"top"), ("empty", b"")];

fn open(dir: &Path) -> PackageStore {
    PackageStore::open(dir, StoreOptions { min_free_bytes: 0 }).unwrap()
}

fn sealed(store: &PackageStore, op: &str) -> Sealed {
    let mut staging = store.stage(op).unwrap();
    for (path, bytes) in FILES {
        let mut writer = staging.create_file(path).unwrap();
        writer.write(bytes).unwrap();
        staging.add(writer).unwrap();
    }
    staging.seal().unwrap()
}

/// The two states a crash may leave: the whole package, or nothing of it.
fn whole(store: &PackageStore) -> bool {
    match store.list().unwrap().as_slice() {
        [] => {
            assert!(fs::read_dir(store.layout().descriptors()).unwrap().next().is_none());
            assert!(fs::read_dir(store.layout().blobs()).unwrap().next().is_none(), "a blob leaked");
            false
        }
        [one] => {
            assert!(matches!(&one.state, DiskState::Published { op, .. } if op == "op1"), "{one:?}");
            assert!(store.verify("app", "1.0.0").unwrap().is_clean());
            true
        }
        more => panic!("{more:?}"),
    }
}

#[test]
fn a_crash_between_any_two_steps_of_publish_leaves_all_or_nothing() {
    for steps in 0..=6 {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let publish = Publish::new(sealed(&store, "op1"), "app", "1.0.0").unwrap().unwrap();
        let all: [&dyn Fn() -> Result<(), StoreError>; 5] = [
            &|| publish.set_modes(),
            &|| publish.write_descriptor(),
            &|| publish.rename(),
            &|| publish.sync(),
            &|| publish.protect(),
        ];
        all.iter().take(steps).for_each(|step| step().unwrap());
        if steps == 6 {
            publish.clean_up().unwrap();
        }
        let store = open(dir.path());
        store.sweep(|_| false).unwrap();
        assert_eq!(whole(&store), steps >= 3, "after {steps} steps");
        assert_eq!(store.sweep(|_| false).unwrap(), SweepReport::default(), "the sweep is done at once");
        // Whatever happened: the same op can be done (again).
        sealed(&store, "op1").publish("app", "1.0.0").unwrap();
        assert!(whole(&store));
        assert!(fs::read_dir(store.layout().staging()).unwrap().next().is_none());
    }
}

#[test]
fn a_crash_between_any_two_steps_of_retire_leaves_all_or_nothing() {
    for steps in 0..=4 {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        sealed(&store, "op1").publish("app", "1.0.0").unwrap();
        let retire = Retire::new(&store, "app", "1.0.0", "op1").unwrap().unwrap();
        let all: [&dyn Fn() -> Result<(), StoreError>; 4] =
            [&|| retire.make_trash(), &|| retire.rename(), &|| retire.sync(), &|| retire.forget()];
        all.iter().take(steps).for_each(|step| step().unwrap());
        let store = open(dir.path());
        store.sweep(|_| false).unwrap();
        assert_eq!(whole(&store), steps < 2, "after {steps} steps");
        assert_eq!(store.retire("app", "1.0.0", "op1").unwrap(), steps < 2);
        store.empty_trash("op1").unwrap();
        assert!(!whole(&store));
        assert!(fs::read_dir(store.layout().packages()).unwrap().next().is_none());
    }
}

/// Flips a bit of a published file, which is its blob too.
fn damage(store: &PackageStore) {
    let file = store.layout().package("app", "1.0.0").unwrap().join("d.jar");
    crate::fsx::set_mode(&file, 0o644).unwrap();
    fs::write(&file, b"tOp").unwrap();
}

/// A copy that is whole, beside the damaged one: what is good is taken from the blobs, `d.jar` comes from elsewhere.
fn sealed_beside(store: &PackageStore) -> Sealed {
    let files = sealed_files(store);
    let mut staging = store.stage("op1").unwrap();
    for entry in files {
        let is_good = staging.reuse(&entry).unwrap();
        assert_eq!(is_good, entry.path != "d.jar", "{}", entry.path);
        if !is_good {
            fs::write(staging.part(&entry), b"top").unwrap();
            staging.add_part(&entry).unwrap();
        }
    }
    staging.seal().unwrap()
}

fn sealed_files(store: &PackageStore) -> Vec<crate::FileEntry> {
    store.installed("app", "1.0.0").unwrap().unwrap().manifest.files().to_vec()
}

#[test]
fn a_good_copy_takes_the_place_of_a_damaged_one_and_a_crash_between_leaves_all_or_nothing() {
    for steps in 0..=5 {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        sealed(&store, "op1").publish("app", "1.0.0").unwrap();
        let manifest = store.installed("app", "1.0.0").unwrap().unwrap().manifest;
        damage(&store);
        let good = sealed_beside(&store);
        let report = store.verify_against("app", "1.0.0", "op1", &manifest).unwrap().unwrap();
        assert_eq!(report.damage().collect::<Vec<_>>(), [("d.jar", crate::FileState::Corrupt)]);
        if steps == 5 {
            good.replace("app", "1.0.0").unwrap();
        } else {
            let retire = Retire::new(&store, "app", "1.0.0", "op1").unwrap().unwrap();
            let all: [&dyn Fn() -> Result<(), StoreError>; 4] =
                [&|| retire.make_trash(), &|| retire.rename(), &|| retire.sync(), &|| retire.forget()];
            all.iter().take(steps).for_each(|step| step().unwrap());
        }
        let store = open(dir.path());
        store.sweep(|op| op == "op1").unwrap();
        let found = store.verify_against("app", "1.0.0", "op1", &manifest).unwrap();
        match steps {
            // The damaged one is still there, and still known to be damaged.
            0 | 1 => assert!(!found.unwrap().is_clean()),
            5 => {
                assert!(found.unwrap().is_clean() && whole(&store));
                assert!(fs::read_dir(store.layout().trash()).unwrap().next().is_none());
            }
            // Nothing, and every file is a blob yet.
            _ => {
                assert_eq!(found, None, "after {steps} steps");
                let mut again = store.stage("op1").unwrap();
                assert!(manifest.files().iter().all(|entry| again.reuse(entry).unwrap()));
                again.seal().unwrap().publish("app", "1.0.0").unwrap();
                assert!(whole(&store));
            }
        }
    }
}

#[test]
fn a_copy_is_compared_with_the_manifest_that_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    sealed(&store, "op1").publish("app", "1.0.0").unwrap();
    // The descriptor says that all is well; the cluster's manifest is another.
    let mut files = sealed_files(&store);
    files[0].blake3 = crate::Digest::of(b"other");
    let theirs = crate::Manifest::new(files).unwrap();
    assert!(store.verify("app", "1.0.0").unwrap().is_clean());
    assert!(!store.verify_against("app", "1.0.0", "op1", &theirs).unwrap().unwrap().is_clean());
    assert_eq!(store.verify_against("app", "1.0.0", "op2", &theirs).unwrap(), None, "another op's copy");
    assert_eq!(store.verify_against("app", "2.0.0", "op1", &theirs).unwrap(), None);
}

#[test]
fn a_directory_put_there_after_a_crash_is_not_taken_for_ours() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let publish = Publish::new(sealed(&store, "op1"), "app", "1.0.0").unwrap().unwrap();
    publish.write_descriptor().unwrap();
    let theirs = store.layout().package("app", "1.0.0").unwrap();
    fs::create_dir_all(&theirs).unwrap();
    fs::write(theirs.join("precious"), "mine").unwrap();

    let report = store.sweep(|_| false).unwrap();
    assert_eq!(report.dropped, ["app:1.0.0"]);
    assert!(matches!(store.list().unwrap()[0].state, DiskState::Unregistered));
    assert!(!store.retire("app", "1.0.0", "op1").unwrap());
    assert!(matches!(sealed(&store, "op1").publish("app", "1.0.0"), Err(StoreError::Occupied(_))));
    assert_eq!(fs::read(theirs.join("precious")).unwrap(), b"mine");
}

#[test]
fn a_restored_backup_is_ours_if_every_byte_is() {
    for damage in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        sealed(&store, "op1").publish("app", "1.0.0").unwrap();
        let package = store.layout().package("app", "1.0.0").unwrap();
        let aside = dir.path().join("aside");
        crate::fsx::set_mode(&package, 0o755).unwrap();
        fs::rename(&package, &aside).unwrap();
        for (path, bytes) in FILES {
            fs::create_dir_all(package.join(path).parent().unwrap()).unwrap();
            fs::write(package.join(path), bytes).unwrap();
        }
        if damage {
            fs::write(package.join("d.jar"), b"tOp").unwrap();
        }
        store.sweep(|_| false).unwrap();
        assert_eq!(store.installed("app", "1.0.0").unwrap().is_some(), !damage);
    }
}

#[test]
fn the_sweep_keeps_what_goes_on_and_what_is_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    drop(sealed(&store, "going"));
    drop(sealed(&store, "gone"));
    let stranger = store.layout().staging().join("stranger");
    fs::create_dir_all(&stranger).unwrap();
    fs::write(stranger.join("file"), "x").unwrap();
    let report = store.sweep(|op| op == "going").unwrap();
    assert_eq!(report.deleted, ["gone"]);
    assert_eq!(report.unknown, [stranger]);
    assert!(store.layout().staging().join("going/tree/d.jar").exists());
}
