//! What cannot be registered is refused by name, and a register from elsewhere only reads.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::adopt::GivenUp;
use crate::adopt_tests::{inspect, open, picture, put_files};

#[test]
fn what_no_package_may_hold_is_refused_by_name() {
    type Spoil = fn(&Path);
    let spoils: [(&str, &str, Spoil); 7] = [
        ("REFUSED", "a/link", |root| symlink("/etc/passwd", root.join("a/link")).unwrap()),
        ("REFUSED", "dirlink", |root| symlink("a", root.join("dirlink")).unwrap()),
        ("REFUSED", "socket", |root| {
            std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        }),
        ("REFUSED", "d.jar", |root| fs::hard_link(root.join("d.jar"), root.join("../elsewhere")).unwrap()),
        ("REFUSED", "con.txt", |root| fs::write(root.join("con.txt"), "x").unwrap()),
        ("REFUSED", "D.JAR", |root| fs::write(root.join("D.JAR"), "x").unwrap()),
        ("REFUSED", "bad\u{fffd}name", |root| {
            let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"bad\xffname");
            fs::write(root.join(name), "x").unwrap();
        }),
    ];
    for (state, file, spoil) in spoils {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let root = put_files(&store);
        spoil(&root);
        let before = picture(&root);
        let refused = inspect(&store).unwrap_err();
        let named = refused.file().unwrap_or_default().to_lowercase();
        assert_eq!((refused.state(), named), (state, file.to_lowercase()), "{refused}");
        assert_eq!(picture(&root), before);
    }
}

#[test]
fn a_missing_and_an_empty_directory_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(inspect(&store).unwrap_err().state(), "MISSING");
    let root = store.layout().package("app", "1.0.0").unwrap();
    fs::create_dir_all(root.join("only/directories")).unwrap();
    assert_eq!(inspect(&store).unwrap_err().state(), "EMPTY");
    fs::remove_dir_all(&root).unwrap();
    fs::write(&root, "a file").unwrap();
    assert_eq!(inspect(&store).unwrap_err().state(), "REFUSED");
    let name = store.layout().packages().join("app");
    fs::rename(&name, dir.path().join("aside")).unwrap();
    symlink(dir.path().join("aside"), &name).unwrap();
    assert_eq!(inspect(&store).unwrap_err().state(), "REFUSED", "a name that is a link");
}

#[test]
fn a_copy_leaves_its_source_alone_and_only_allowed_directories_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("node"));
    let root = put_files(&open(&dir.path().join("elsewhere")));
    let before = picture(&root);
    let allowed = dir.path().join("elsewhere");
    let look = |from: &Path, roots: &[PathBuf]| store.inspect_elsewhere("app", "1.0.0", from, roots);
    for (from, roots) in [
        (root.clone(), vec![]),
        (root.clone(), vec![dir.path().join("node")]),
        (allowed.join("../node/icp"), vec![allowed.clone()]),
        (PathBuf::from("elsewhere"), vec![allowed.clone()]),
        (dir.path().join("nowhere"), vec![allowed.clone()]),
    ] {
        let refused = look(&from, &roots).unwrap_err();
        assert_eq!(refused.state(), "NOT_ALLOWED", "{from:?}: {refused}");
        assert!(refused.to_string().contains("icp.register-from"), "{refused}");
    }
    // A link out of the allowed directory leads nowhere allowed; one into it does.
    symlink(dir.path().join("node"), allowed.join("out")).unwrap();
    symlink(&allowed, dir.path().join("in")).unwrap();
    assert_eq!(
        look(&allowed.join("out"), std::slice::from_ref(&allowed)).unwrap_err().state(),
        "NOT_ALLOWED"
    );
    assert_eq!(look(&allowed.join("none"), std::slice::from_ref(&allowed)).unwrap_err().state(), "MISSING");
    look(&dir.path().join("in/icp/app/1.0.0"), std::slice::from_ref(&allowed)).unwrap();

    let found = look(&root, std::slice::from_ref(&allowed)).unwrap();
    store.adopt("app", "1.0.0", "op1", &found).unwrap();
    assert!(store.verify("app", "1.0.0").unwrap().is_clean());
    assert_eq!(store.give_up("app", "1.0.0", "op1").unwrap(), GivenUp::Retired, "a copy is ours");
    assert_eq!(picture(&root), before);

    // What changed since the look is not taken, and nothing stays of the try.
    fs::write(root.join("d.jar"), "later").unwrap();
    let refused = store.adopt("app", "1.0.0", "op2", &found).unwrap_err();
    assert_eq!((refused.state(), refused.file()), ("CHANGED", Some("d.jar")));
    assert!(fs::read_dir(store.layout().staging()).unwrap().next().is_none());
    assert!(!store.layout().package("app", "1.0.0").unwrap().exists());

    // Whatever lies in the package's place is not overwritten.
    fs::create_dir_all(store.layout().package("app", "1.0.0").unwrap()).unwrap();
    assert_eq!(look(&root, &[allowed]).unwrap_err().state(), "OCCUPIED");
}
