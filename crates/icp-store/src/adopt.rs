//! Files that lay on this node before there was a package become one where they lie, or go back to whoever put them
//! there. *A user's files are never deleted for a register that did not succeed*: as long as the descriptor is
//! tentative, [`PackageStore::retire`] refuses, whoever calls it; only [`PackageStore::confirm`], called by who read
//! in the records that the package was READY, makes the directory ours like any other.
//!
//! ```text
//! adopt                                   crash after it leaves              the sweep, then the package agent
//! 0 inspect: hash, stamps                 the user's tree                    nothing is known; inspected anew
//! 1 descriptor: op, inode, manifest,      tentative, the modes as they were  keeps it; CREATING: inspected and adopted
//!   tentative, the modes before                                              anew with the modes of the descriptor;
//! 2 write permission of the files taken,  tentative, some modes changed      undone or gone: released; READY or later:
//!   each file synced                                                         confirmed
//! 3 of the directories, each synced       tentative                          as after 1
//! 4 icp/name, icp synced; compared again  tentative                          as after 1
//!   (then the node's row says PRESENT, and when all do, the record READY)
//! confirm
//! 1 descriptor: not tentative             ours                               as any package; a removal deletes it
//!
//! release
//! 1 modes given back, each synced         tentative, some modes given back   keeps it; released again
//! 2 descriptor deleted                    the user's tree                    -
//! ```
//! A tentative descriptor whose directory is gone or was replaced is dropped by the sweep; what still has the inode it
//! had gets its mode back. A mode that is not the one that was set here is somebody's wish and stays.
//!
//! Registered files get no links among the blobs: an inode that a user may get back is not shared with another
//! package. They are served from where they lie, and another package that has the same file copies it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::descriptor::{Adopted, DESCRIPTOR_VERSION, Descriptor, Kept, TENTATIVE_VERSION, dir_inode};
use crate::error::StoreError;
use crate::fsx;
use crate::inspect::{InspectError, Inspection, allowed_dir};
use crate::store::PackageStore;
use crate::walk::{Purpose, at};

/// Permission to write, of anybody.
const WRITE: u32 = 0o222;

/// What became of a package's directory that is not needed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// There was none of this operation.
    Absent,
    /// The files are their owner's again.
    Released,
    /// The files are out of sight, for [`PackageStore::empty_trash`] to delete.
    Retired,
}

impl PackageStore {
    /// Looks at `icp/<name>/<version>` for the register `op`. A package of ours is refused, but for what this very
    /// operation adopted before a crash.
    pub fn inspect(&self, name: &str, version: &str, op: &str) -> Result<Inspection, InspectError> {
        self.inspect_with(name, version, op, |_| ())
    }

    /// The same, and tells when a file was hashed.
    pub(crate) fn inspect_with(
        &self,
        name: &str,
        version: &str,
        op: &str,
        hashed: impl FnMut(&str),
    ) -> Result<Inspection, InspectError> {
        let dir = self.layout().package(name, version)?;
        if let Some(there) = self.installed(name, version)?
            && (there.op != op || !there.is_tentative())
        {
            return Err(StoreError::OtherOp { expected: op.into(), found: there.op }.into());
        }
        let above = self.layout().packages().join(name);
        if fs::symlink_metadata(&above).is_ok_and(|m| m.is_symlink()) {
            let why = format!("{} is a symbolic link: put the directory itself there", above.display());
            return Err(InspectError::Refused { path: "..".into(), why });
        }
        let packages = self.layout().packages();
        let device = fs::metadata(&packages).map_err(fsx::context("inspect", &packages))?.dev();
        Inspection::take(&dir, Purpose::Adopt { device }, hashed)
    }

    /// Looks at a directory whose files are to be copied. It must lie below one of `roots`, whatever links lead there,
    /// and the package's own place must be free.
    pub fn inspect_elsewhere(
        &self,
        name: &str,
        version: &str,
        dir: &Path,
        roots: &[PathBuf],
    ) -> Result<Inspection, InspectError> {
        let dir = allowed_dir(dir, roots)?;
        let place = self.layout().package(name, version)?;
        if self.installed(name, version)?.is_none() && fsx::exists(&place) {
            return Err(StoreError::Occupied(place).into());
        }
        Inspection::take(&dir, Purpose::Copy, |_| ())
    }

    /// Makes what was inspected the package of `op`: in its place, tentatively, or as a copy that is ours. If it is
    /// refused, the user's files are as they were. Repeating it is harmless.
    pub fn adopt(&self, name: &str, version: &str, op: &str, found: &Inspection) -> Result<(), InspectError> {
        match found.purpose {
            Purpose::Copy => self.adopt_copy(name, version, op, found),
            Purpose::Adopt { .. } => self.adopt_in_place(name, version, op, found, || ()),
        }
    }

    /// `halfway` is called when the files cannot be opened for writing any more, and the directories still can.
    pub(crate) fn adopt_in_place(
        &self,
        name: &str,
        version: &str,
        op: &str,
        found: &Inspection,
        halfway: impl FnOnce(),
    ) -> Result<(), InspectError> {
        let _hands = self.hands();
        let Some(adopt) = Adopt::new(self, name, version, op, found)? else { return Ok(()) };
        let adopted = adopt.carry(halfway);
        if adopted.is_err()
            && let Err(error) = Release::new(self, adopt.descriptor).carry()
        {
            tracing::warn!(%error, package = name, "registered files cannot be given back yet");
        }
        adopted
    }

    fn adopt_copy(
        &self,
        name: &str,
        version: &str,
        op: &str,
        found: &Inspection,
    ) -> Result<(), InspectError> {
        if self.installed(name, version)?.is_some_and(|there| there.op == op) {
            return Ok(());
        }
        self.check_space(found.manifest.total_bytes())?;
        let mut staging = self.stage(op)?;
        let copied = found.manifest.files().iter().try_for_each(|entry| {
            if staging.reuse(entry)? || staging.copy_in(&entry.path, &at(&found.dir, &entry.path))? == *entry
            {
                return Ok(());
            }
            Err(InspectError::Changed { path: entry.path.clone() })
        });
        let published = copied
            .and_then(|()| found.check_unchanged())
            .and_then(|()| Ok(staging.seal()?.publish(name, version)?));
        if published.is_err() {
            self.discard(op)?;
        }
        published
    }

    /// The package of `op` was READY: registered files are ours from now on. False if there are none to confirm.
    pub fn confirm(&self, name: &str, version: &str, op: &str) -> Result<bool, StoreError> {
        let _hands = self.hands();
        let Some(mut there) = self.installed(name, version)? else { return Ok(false) };
        if there.op != op || !there.is_tentative() {
            return Ok(false);
        }
        there.v = DESCRIPTOR_VERSION;
        there.adopted = Some(Adopted { tentative: false, kept: Vec::new() });
        there.write(self.layout())?;
        Ok(true)
    }

    /// Gives registered files back that `op` adopted and nobody confirmed: with the modes they had, where they lie.
    /// False if there are none.
    pub fn release(&self, name: &str, version: &str, op: &str) -> Result<bool, StoreError> {
        let _hands = self.hands();
        match Descriptor::read(self.layout(), name, version)? {
            Some(there) if there.op == op && there.is_tentative() => {
                Release::new(self, there).carry()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The package of `op` is not needed any more: registered files that nobody confirmed go back, everything else
    /// goes out of sight.
    pub fn give_up(&self, name: &str, version: &str, op: &str) -> Result<GivenUp, StoreError> {
        if self.release(name, version, op)? {
            return Ok(GivenUp::Released);
        }
        Ok(if self.retire(name, version, op)? { GivenUp::Retired } else { GivenUp::Absent })
    }
}

/// The steps of adopting in place, to be called in order (one by one in tests).
pub(crate) struct Adopt<'a> {
    store: &'a PackageStore,
    found: &'a Inspection,
    descriptor: Descriptor,
}

impl<'a> Adopt<'a> {
    /// `None` if the files are this operation's and confirmed already.
    pub(crate) fn new(
        store: &'a PackageStore,
        name: &str,
        version: &str,
        op: &str,
        found: &'a Inspection,
    ) -> Result<Option<Self>, InspectError> {
        let before = Descriptor::read(store.layout(), name, version)?;
        let before = before.filter(|there| dir_inode(&found.dir) == Some(there.inode));
        if let Some(there) = &before {
            if there.op != op {
                return Err(StoreError::OtherOp { expected: op.into(), found: there.op.clone() }.into());
            }
            if !there.is_tentative() {
                return Ok(None);
            }
        }
        found.check_unchanged()?;
        let inode = found.seen.get("").map(|dir| dir.inode).unwrap_or_default();
        let descriptor = Descriptor {
            v: TENTATIVE_VERSION,
            name: name.into(),
            version: version.into(),
            op: op.into(),
            inode,
            manifest: found.manifest.clone(),
            adopted: Some(Adopted { tentative: true, kept: modes_before(found, before.as_ref()) }),
        };
        Ok(Some(Self { store, found, descriptor }))
    }

    fn carry(&self, halfway: impl FnOnce()) -> Result<(), InspectError> {
        self.write_descriptor()?;
        self.protect_files()?;
        halfway();
        self.protect_directories()?;
        self.sync()?;
        self.found.check_content_unchanged()
    }

    pub(crate) fn write_descriptor(&self) -> Result<(), StoreError> {
        self.descriptor.write(self.store.layout())?;
        self.store.adopted().add(&self.descriptor, self.store.layout());
        Ok(())
    }

    pub(crate) fn protect_files(&self) -> Result<(), StoreError> {
        self.protect(false)
    }

    pub(crate) fn protect_directories(&self) -> Result<(), StoreError> {
        self.protect(true)
    }

    /// What lies deeper first, so that a directory is synced after what is in it. The sync also makes the bytes of a
    /// file durable that its user only wrote.
    fn protect(&self, directories: bool) -> Result<(), StoreError> {
        for (path, stamp) in self.found.seen.iter().rev().filter(|(_, stamp)| stamp.is_dir == directories) {
            change_mode(&at(&self.found.dir, path), stamp.inode, |mode| Some(mode & !WRITE))?;
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.found.dir.parent().map_or(Ok(()), fsx::sync_dir)?;
        fsx::sync_dir(&self.store.layout().packages())
    }
}

/// The modes to give back. What an adoption before a crash took the permission from had another mode before.
fn modes_before(found: &Inspection, before: Option<&Descriptor>) -> Vec<Kept> {
    let adopted = before.and_then(|there| there.adopted.as_ref());
    let earlier: BTreeMap<&str, &Kept> =
        adopted.iter().flat_map(|adopted| &adopted.kept).map(|kept| (kept.path.as_str(), kept)).collect();
    let kept = found.seen.iter().map(|(path, stamp)| {
        let earlier = earlier.get(path.as_str());
        let taken = earlier.filter(|kept| kept.inode == stamp.inode && kept.mode & !WRITE == stamp.mode);
        Kept { path: path.clone(), inode: stamp.inode, mode: taken.map_or(stamp.mode, |kept| kept.mode) }
    });
    kept.collect()
}

/// Sets the mode of a file or directory, durably, if it is still the one with this inode and `to` wants it. One that is
/// gone or replaced is passed over.
fn change_mode(path: &Path, inode: u64, to: impl Fn(u32) -> Option<u32>) -> Result<(), StoreError> {
    let is_the_one = |m: &fs::Metadata| m.ino() == inode && !m.is_symlink();
    if !path.symlink_metadata().is_ok_and(|m| is_the_one(&m)) {
        return Ok(());
    }
    let file = fsx::open_plain(path)?;
    let metadata = file.metadata().map_err(fsx::context("inspect", path))?;
    if let Some(mode) = to(metadata.mode() & 0o7777)
        && is_the_one(&metadata)
    {
        let set = file.set_permissions(fs::Permissions::from_mode(mode));
        set.map_err(fsx::context("set the mode of", path))?;
    }
    file.sync_all().map_err(fsx::context("sync", path))
}

/// The steps of giving files back, to be called in order.
pub(crate) struct Release<'a> {
    store: &'a PackageStore,
    descriptor: Descriptor,
}

impl<'a> Release<'a> {
    pub(crate) fn new(store: &'a PackageStore, descriptor: Descriptor) -> Self {
        Self { store, descriptor }
    }

    fn carry(&self) -> Result<(), StoreError> {
        self.give_modes_back()?;
        self.delete_descriptor()
    }

    pub(crate) fn give_modes_back(&self) -> Result<(), StoreError> {
        let Descriptor { name, version, adopted, .. } = &self.descriptor;
        let dir = self.store.layout().package(name, version)?;
        for kept in adopted.iter().flat_map(|adopted| &adopted.kept) {
            let back = |mode| (mode == kept.mode & !WRITE).then_some(kept.mode);
            change_mode(&at(&dir, &kept.path), kept.inode, back)?;
        }
        Ok(())
    }

    /// The directories above stay, empty or not: they are the user's too.
    pub(crate) fn delete_descriptor(&self) -> Result<(), StoreError> {
        let Descriptor { name, version, .. } = &self.descriptor;
        self.store.adopted().remove(name, version);
        let path = self.store.layout().descriptor(name, version)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(fsx::context("delete", &path)(e)),
            _ => fsx::sync_dir(&self.store.layout().descriptors()),
        }
    }
}
