//! Registered files: taken over where they lie, given back as they were, never lost. Each row of the crash table of
//! `adopt` is played by stopping after a step and starting again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::adopt::{Adopt, GivenUp, Release};
use crate::descriptor::Descriptor;
use crate::inspect::{InspectError, Inspection};
use crate::store::{DiskState, PackageStore, StoreOptions};
use crate::{Digest, StoreError};

type Step<'a> = &'a dyn Fn() -> Result<(), StoreError>;

pub(crate) fn open(dir: &Path) -> PackageStore {
    PackageStore::open(dir, StoreOptions { min_free_bytes: 0 }).unwrap()
}

/// A user's tree with modes of all kinds.
pub(crate) fn put_files(store: &PackageStore) -> PathBuf {
    let root = store.layout().package("app", "1.0.0").unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    for (path, bytes, mode) in [
        ("a/b/c.jar", "nested", 0o664),
        ("d.jar", "top", 0o600),
        ("run.sh", "#!", 0o755),
        ("fixed", "", 0o444),
    ] {
        fs::write(root.join(path), bytes).unwrap();
        set_mode(&root.join(path), mode);
    }
    set_mode(&root.join("a"), 0o775);
    set_mode(&root, 0o700);
    root
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// All that a user could miss: inodes, modes, times of change, bytes.
pub(crate) type Picture = BTreeMap<PathBuf, (u64, u32, (i64, i64), Vec<u8>)>;

pub(crate) fn picture(at: &Path) -> Picture {
    let metadata = at.symlink_metadata().unwrap();
    let mut found = Picture::new();
    let mut bytes = Vec::new();
    if metadata.is_dir() {
        for entry in fs::read_dir(at).unwrap() {
            found.extend(picture(&entry.unwrap().path()));
        }
    } else if metadata.is_file() {
        bytes = fs::read(at).unwrap();
    }
    let times = (metadata.mtime(), metadata.mtime_nsec());
    found.insert(at.into(), (metadata.ino(), metadata.mode(), times, bytes));
    found
}

fn is_read_only(root: &Path) -> bool {
    picture(root).values().all(|(_, mode, _, _)| mode & 0o222 == 0)
}

fn is_tentative(store: &PackageStore) -> bool {
    matches!(&store.list().unwrap()[0].state, DiskState::Published { op, tentative: true, .. } if op == "op1")
}

fn no_descriptor(store: &PackageStore) -> bool {
    fs::read_dir(store.layout().descriptors()).unwrap().next().is_none()
}

pub(crate) fn inspect(store: &PackageStore) -> Result<Inspection, InspectError> {
    store.inspect("app", "1.0.0", "op1")
}

fn adopted(dir: &Path) -> (PackageStore, PathBuf) {
    let store = open(dir);
    let root = put_files(&store);
    store.adopt("app", "1.0.0", "op1", &inspect(&store).unwrap()).unwrap();
    (store, root)
}

#[test]
fn a_crash_between_any_two_steps_of_adopting_loses_nothing_and_can_go_either_way() {
    for steps in 0..=4 {
        for undone in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let store = open(dir.path());
            let root = put_files(&store);
            let before = picture(&root);
            let found = inspect(&store).unwrap();
            let adopt = Adopt::new(&store, "app", "1.0.0", "op1", &found).unwrap().unwrap();
            let all: [Step<'_>; 4] = [
                &|| adopt.write_descriptor(),
                &|| adopt.protect_files(),
                &|| adopt.protect_directories(),
                &|| adopt.sync(),
            ];
            all.iter().take(steps).for_each(|step| step().unwrap());

            let store = open(dir.path());
            let interrupted = picture(&root);
            store.sweep(|_| false).unwrap();
            assert_eq!(picture(&root), interrupted, "the sweep leaves it as it is, after {steps}");
            assert!(steps == 0 || is_tentative(&store));
            if undone {
                let given_up = store.give_up("app", "1.0.0", "op1").unwrap();
                assert_eq!(given_up, if steps == 0 { GivenUp::Absent } else { GivenUp::Released });
                assert!(no_descriptor(&store), "after {steps}");
                assert_eq!(picture(&root), before, "after {steps}");
                continue;
            }
            // The create goes on: inspected and adopted anew, and what a later undoing gives back is still the
            // first look's.
            store.adopt("app", "1.0.0", "op1", &inspect(&store).unwrap()).unwrap();
            assert!(is_read_only(&root) && is_tentative(&store));
            assert!(store.release("app", "1.0.0", "op1").unwrap());
            assert_eq!(picture(&root), before, "after {steps}");
        }
    }
}

#[test]
fn a_crash_between_the_steps_of_giving_back_is_made_good() {
    for steps in 0..=2 {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let root = put_files(&store);
        let before = picture(&root);
        store.adopt("app", "1.0.0", "op1", &inspect(&store).unwrap()).unwrap();
        let descriptor = Descriptor::read(store.layout(), "app", "1.0.0").unwrap().unwrap();
        let release = Release::new(&store, descriptor);
        let all: [Step<'_>; 2] = [&|| release.give_modes_back(), &|| release.delete_descriptor()];
        all.iter().take(steps).for_each(|step| step().unwrap());

        let store = open(dir.path());
        store.sweep(|_| false).unwrap();
        assert_eq!(store.release("app", "1.0.0", "op1").unwrap(), steps < 2);
        assert!(no_descriptor(&store));
        assert_eq!(picture(&root), before, "after {steps}");
    }
}

#[test]
fn only_what_was_confirmed_is_ever_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (store, root) = adopted(dir.path());
    let before = picture(&root);
    let refused = store.retire("app", "1.0.0", "op1");
    assert!(matches!(refused, Err(StoreError::Tentative { .. })), "{refused:?}");
    assert_eq!(picture(&root), before);
    assert!(!store.confirm("app", "1.0.0", "op2").unwrap(), "another operation proves nothing");
    assert!(store.retire("app", "1.0.0", "op1").is_err());

    assert!(store.confirm("app", "1.0.0", "op1").unwrap());
    assert!(!store.confirm("app", "1.0.0", "op1").unwrap());
    let store = open(dir.path());
    store.sweep(|_| false).unwrap();
    assert!(!is_tentative(&store) && store.verify("app", "1.0.0").unwrap().is_clean());
    assert!(!store.release("app", "1.0.0", "op1").unwrap(), "what is confirmed is not given back");
    assert_eq!(store.give_up("app", "1.0.0", "op1").unwrap(), GivenUp::Retired);
    store.empty_trash("op1").unwrap();
    assert!(!root.exists() && no_descriptor(&store));
}

/// A binary from before there were registers would take the directory for its own and delete it.
#[test]
fn an_older_binary_cannot_read_a_tentative_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = adopted(dir.path());
    let version = || {
        let json = fs::read(store.layout().descriptor("app", "1.0.0").unwrap()).unwrap();
        serde_json::from_slice::<serde_json::Value>(&json).unwrap()["v"].clone()
    };
    assert_eq!(version(), 2);
    store.confirm("app", "1.0.0", "op1").unwrap();
    assert_eq!(version(), 1);
}

#[test]
fn an_adopted_package_is_used_where_it_lies_and_shares_no_inode() {
    let dir = tempfile::tempdir().unwrap();
    let (store, root) = adopted(dir.path());
    assert!(is_read_only(&root));
    let path = store.class_path("app", "1.0.0", "op1").unwrap();
    assert_eq!(path[0], root.join("a/b/c.jar"));
    let digest = Digest::of(b"nested");
    assert_eq!(store.blob(&digest), Some(root.join("a/b/c.jar")), "served to other nodes");
    assert_eq!(open(dir.path()).blob(&digest), Some(root.join("a/b/c.jar")), "after a start too");

    // Another package with the same file copies it: what is given back later is nobody else's.
    let entry = crate::FileEntry { path: "x.jar".into(), size: 6, blake3: digest };
    let mut staging = store.stage("op9").unwrap();
    assert!(staging.reuse(&entry).unwrap());
    staging.seal().unwrap().publish("other", "1").unwrap();
    let theirs = store.layout().package("other", "1").unwrap().join("x.jar");
    assert_ne!(fs::metadata(theirs).unwrap().ino(), fs::metadata(root.join("a/b/c.jar")).unwrap().ino());
    assert_eq!(fs::metadata(root.join("a/b/c.jar")).unwrap().nlink(), 1);
    assert!(store.release("app", "1.0.0", "op1").unwrap());
    assert_ne!(store.blob(&digest), Some(root.join("a/b/c.jar")));
}

#[test]
fn what_changes_while_it_is_hashed_is_refused_by_name() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        ("d.jar", |root| fs::write(root.join("d.jar"), "tOp").unwrap()),
        ("a/b/c.jar", |root| fs::write(root.join("a/b/c.jar"), "longer than before").unwrap()),
        ("a/new", |root| fs::write(root.join("a/new"), "new").unwrap()),
        ("run.sh", |root| fs::remove_file(root.join("run.sh")).unwrap()),
        ("d.jar", |root| {
            // The time of the change is set back: the inode's own time tells.
            let file = fs::File::options().write(true).open(root.join("d.jar")).unwrap();
            let was = file.metadata().unwrap().modified().unwrap();
            std::io::Write::write_all(&mut &file, b"tOp").unwrap();
            file.set_modified(was).unwrap();
        }),
        ("fixed", |root| {
            fs::rename(root.join("fixed"), root.join("aside")).unwrap();
            fs::write(root.join("fixed"), "").unwrap();
            fs::remove_file(root.join("aside")).unwrap();
        }),
    ];
    for (blamed, change) in changes {
        // While it is hashed, after the first file.
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let root = put_files(&store);
        let mut once = Some(change);
        let hook = |_: &str| {
            if let Some(change) = once.take() {
                change(&root);
            }
        };
        let found = store.inspect_with("app", "1.0.0", "op1", hook);
        let Err(InspectError::Changed { path }) = found else { panic!("{blamed}: {found:?}") };
        assert_eq!(path, blamed);
        assert!(no_descriptor(&store));

        // Between the look and the taking over.
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let root = put_files(&store);
        let found = inspect(&store).unwrap();
        change(&root);
        let changed = picture(&root);
        let refused = store.adopt("app", "1.0.0", "op1", &found);
        let Err(InspectError::Changed { path }) = refused else { panic!("{blamed}: {refused:?}") };
        assert_eq!(path, blamed);
        assert_eq!(picture(&root), changed, "not touched");
        assert!(no_descriptor(&store));
    }
}

/// Between the last comparison and the last permission taken a writer may slip in: it is seen, and all goes back.
#[test]
fn what_changes_while_it_is_taken_over_goes_back() {
    type Slip = fn(&Path, &mut fs::File);
    let slips: [(&str, Slip); 2] = [
        ("d.jar", |_, open| std::io::Write::write_all(open, b"!").unwrap()),
        ("a/new", |root, _| fs::write(root.join("a/new"), "new").unwrap()),
    ];
    for (blamed, slip) in slips {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let root = put_files(&store);
        let modes = || {
            let all = picture(&root).into_iter().map(|(path, (inode, mode, ..))| (path, (inode, mode)));
            all.filter(|(path, _)| !path.ends_with("new")).collect::<BTreeMap<_, _>>()
        };
        let before = modes();
        let found = inspect(&store).unwrap();
        let mut writer = fs::File::options().append(true).open(root.join("d.jar")).unwrap();
        let halfway = || {
            assert_ne!(modes(), before, "the files are read-only by now");
            slip(&root, &mut writer);
        };
        let refused = store.adopt_in_place("app", "1.0.0", "op1", &found, halfway);
        assert!(matches!(&refused, Err(InspectError::Changed { path }) if path == blamed), "{refused:?}");
        assert_eq!(modes(), before);
        assert!(no_descriptor(&store));
    }
}

#[test]
fn a_directory_that_was_replaced_meanwhile_is_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    let (store, root) = adopted(dir.path());
    let aside = dir.path().join("aside");
    set_mode(&root, 0o755);
    fs::rename(&root, &aside).unwrap();
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("precious"), "mine").unwrap();
    let before = picture(&root);
    let report = open(dir.path()).sweep(|_| false).unwrap();
    assert_eq!(report.dropped, ["app:1.0.0"]);
    assert_eq!(picture(&root), before);
    assert!(no_descriptor(&store));
    assert_eq!(store.give_up("app", "1.0.0", "op1").unwrap(), GivenUp::Absent);
    assert!(aside.join("d.jar").exists());
}

#[test]
fn a_mode_that_somebody_set_meanwhile_stays_and_a_package_of_ours_is_not_inspected() {
    let dir = tempfile::tempdir().unwrap();
    let (store, root) = adopted(dir.path());
    set_mode(&root.join("d.jar"), 0o640);
    store.release("app", "1.0.0", "op1").unwrap();
    assert_eq!(fs::metadata(root.join("d.jar")).unwrap().mode() & 0o777, 0o640);

    store.adopt("app", "1.0.0", "op1", &inspect(&store).unwrap()).unwrap();
    assert_eq!(store.inspect("app", "1.0.0", "op2").unwrap_err().state(), "OTHER_OP");
    store.confirm("app", "1.0.0", "op1").unwrap();
    assert_eq!(inspect(&store).unwrap_err().state(), "OTHER_OP", "confirmed: it is a package");
}
