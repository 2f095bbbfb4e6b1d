//! Tests of the identity and the lock.

use std::sync::Arc;

use super::*;
use crate::disk::{MemDisk, MemDiskFaults, RealDisk};

const IDENTITY_V1: &[u8] = include_bytes!("../../testdata/identity-v1");

fn identity() -> Identity {
    Identity {
        cluster_id: 0xC1,
        member_id: 0x17,
        cluster_name: "orders".to_owned(),
        node_name: "r1".to_owned(),
    }
}

#[test]
fn what_is_stored_is_loaded_and_checked() {
    let disk = MemDisk::new();
    let dir = Path::new("/data");
    let _lock = DirectoryLock::acquire(&disk, dir).unwrap();
    assert_eq!(Identity::load(&disk, dir).unwrap(), None);
    identity().store(&disk, dir).unwrap();
    let loaded = Identity::load(&disk.crash(1), dir).unwrap().unwrap();
    assert_eq!(loaded, identity());
    loaded.check(dir, "orders", "r1").unwrap();
    let other = loaded.check(dir, "payments", "r1").unwrap_err().to_string();
    assert!(other.contains("/data belongs to cluster \"orders\", not \"payments\""), "{other}");
    let other = loaded.check(dir, "orders", "r2").unwrap_err().to_string();
    assert!(other.contains("/data belongs to replica \"r1\", not \"r2\""), "{other}");
}

#[test]
fn version_1_loads_and_is_what_is_written() {
    let disk = MemDisk::new();
    disk.put(Path::new("/data/identity"), IDENTITY_V1.to_vec());
    assert_eq!(Identity::load(&disk, Path::new("/data")).unwrap(), Some(identity()));
    identity().store(&disk, Path::new("/data")).unwrap();
    assert_eq!(disk.contents(Path::new("/data/identity")).unwrap(), IDENTITY_V1);
}

#[test]
fn damage_is_an_error_and_not_a_fresh_directory() {
    let disk = MemDisk::new();
    for bit in 0..IDENTITY_V1.len() * 8 {
        let mut bad = IDENTITY_V1.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        disk.put(Path::new("/data/identity"), bad);
        assert!(matches!(Identity::load(&disk, Path::new("/data")), Err(IdentityError::Damaged { .. })));
    }
    disk.put(Path::new("/data/identity"), Vec::new());
    assert!(matches!(Identity::load(&disk, Path::new("/data")), Err(IdentityError::Damaged { .. })));
}

#[test]
fn a_power_cut_leaves_the_identity_whole_or_absent() {
    for power_off_at in 0.. {
        let disk =
            MemDisk::with_faults(MemDiskFaults { power_off_at: Some(power_off_at), ..Default::default() });
        disk.create_dir_all(Path::new("/data")).unwrap();
        let stored = identity().store(&disk, Path::new("/data"));
        for seed in 0..16 {
            let crashed = disk.crash(seed);
            let loaded = Identity::load(&crashed, Path::new("/data")).unwrap();
            assert!(
                loaded == Some(identity()) || loaded.is_none() && stored.is_err(),
                "{power_off_at}, {seed}"
            );
            identity().store(&crashed, Path::new("/data")).unwrap();
        }
        if stored.is_ok() {
            return;
        }
    }
}

#[test]
fn one_process_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let disks: [(Arc<dyn Disk>, PathBuf); 2] =
        [(Arc::new(MemDisk::new()), PathBuf::from("/data")), (Arc::new(RealDisk), home.path().join("a/b"))];
    for (disk, dir) in disks {
        let lock = DirectoryLock::acquire(&*disk, &dir).unwrap();
        let refused = DirectoryLock::acquire(&*disk, &dir).err().unwrap();
        assert!(matches!(refused, IdentityError::Locked(_)));
        assert!(refused.to_string().contains("is in use by another process"));
        drop(lock);
        DirectoryLock::acquire(&*disk, &dir).unwrap();
    }
}
