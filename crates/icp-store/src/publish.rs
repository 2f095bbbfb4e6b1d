//! How a package becomes visible, and how it goes. Each is a list of steps; a crash after any of them leaves
//! something that the sweep of the next start completes or takes back.
//!
//! ```text
//! publish                               crash after it leaves          the sweep
//! 1 modes of the tree's directories     staging                        deletes it (keeps it if the op goes on)
//! 2 descriptor (op, inode, manifest)    a descriptor without its dir   deletes both
//! 3 rename tree -> icp/name/version     the package, whole             keeps it
//! 4 fsync of icp/name, icp              the package                    keeps it
//! 5 mode of the package's directory     the package                    sets the mode
//! 6 staging directory deleted           -
//!
//! retire
//! 1 trash/<op> with its marker          an empty trash directory       deletes it
//! 2 rename icp/name/version -> trash    a descriptor without its dir   deletes both
//! 3 fsync of icp/name                   "                              "
//! 4 descriptor deleted                  trash                          deletes it
//! then, when the caller has said so to the store: empty_trash
//!
//! replace: retire, publish, empty_trash, all of one op. A crash in between leaves no copy; the one that was to take
//! the place is still staged, and its files are blobs: the op takes them from there.
//! ```

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::descriptor::{DESCRIPTOR_VERSION, Descriptor, dir_inode};
use crate::error::StoreError;
use crate::fsx;
use crate::layout::{MARKER, check_id};
use crate::staging::Sealed;
use crate::store::PackageStore;

impl Sealed {
    /// Makes the package visible as `name`:`version`. Repeating it for the same op is harmless.
    pub fn publish(self, name: &str, version: &str) -> Result<(), StoreError> {
        let Some(publish) = Publish::new(self, name, version)? else { return Ok(()) };
        publish.set_modes()?;
        publish.write_descriptor()?;
        publish.rename()?;
        publish.sync()?;
        publish.protect()?;
        publish.clean_up()
    }

    /// Takes the place of a damaged copy of the same op, which goes whole, with whatever else lies in it. For a
    /// moment there is none: nothing may run on the package.
    pub fn replace(self, name: &str, version: &str) -> Result<(), StoreError> {
        let (store, op) = (self.store.clone(), self.op.clone());
        store.retire(name, version, &op)?;
        self.publish(name, version)?;
        store.empty_trash(&op)
    }
}

/// The steps of publishing, to be called in order (one by one in tests).
pub(crate) struct Publish {
    sealed: Sealed,
    name: String,
    version: String,
    target: PathBuf,
}

impl Publish {
    /// `None` if the op has published it already.
    pub(crate) fn new(sealed: Sealed, name: &str, version: &str) -> Result<Option<Self>, StoreError> {
        let target = sealed.store.layout().package(name, version)?;
        if let Some(there) = sealed.store.installed(name, version)? {
            if there.op != sealed.op {
                return Err(StoreError::OtherOp { expected: sealed.op, found: there.op });
            }
            fsx::delete_tree(&sealed.dir)?;
            return Ok(None);
        }
        if fsx::exists(&target) {
            return Err(StoreError::Occupied(target));
        }
        Ok(Some(Self { sealed, name: name.into(), version: version.into(), target }))
    }

    fn tree(&self) -> PathBuf {
        self.sealed.dir.join("tree")
    }

    pub(crate) fn set_modes(&self) -> Result<(), StoreError> {
        fsx::set_dir_modes_below(&self.tree(), 0o555)
    }

    pub(crate) fn write_descriptor(&self) -> Result<(), StoreError> {
        let inode = dir_inode(&self.tree())
            .ok_or_else(|| fsx::context("find", &self.tree())(io::Error::from(io::ErrorKind::NotFound)))?;
        let descriptor = Descriptor {
            v: DESCRIPTOR_VERSION,
            name: self.name.clone(),
            version: self.version.clone(),
            op: self.sealed.op.clone(),
            inode,
            manifest: self.sealed.manifest.clone(),
            adopted: None,
        };
        descriptor.write(self.sealed.store.layout())
    }

    pub(crate) fn rename(&self) -> Result<(), StoreError> {
        if let Some(parent) = self.target.parent() {
            fsx::create_dirs(parent)?;
        }
        fsx::rename_new(&self.tree(), &self.target)
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.target.parent().map_or(Ok(()), fsx::sync_dir)?;
        fsx::sync_dir(&self.sealed.store.layout().packages())
    }

    /// Last, because a directory that may not be written cannot be renamed to another parent.
    pub(crate) fn protect(&self) -> Result<(), StoreError> {
        fsx::set_mode(&self.target, 0o555)
    }

    pub(crate) fn clean_up(self) -> Result<(), StoreError> {
        fsx::delete_tree(&self.sealed.dir)
    }
}

impl PackageStore {
    /// Takes a package of `op` out of sight: from here on nothing new can open it, what is open stays readable.
    /// False if it is not here (any more). A directory that is not ours is never touched, and a registered one is only
    /// ours once it is [confirmed](PackageStore::confirm).
    pub fn retire(&self, name: &str, version: &str, op: &str) -> Result<bool, StoreError> {
        let Some(retire) = Retire::new(self, name, version, op)? else { return Ok(false) };
        retire.make_trash()?;
        retire.rename()?;
        retire.sync()?;
        retire.forget()?;
        Ok(true)
    }

    /// Deletes what `op` retired, and the blobs nobody needs any more.
    pub fn empty_trash(&self, op: &str) -> Result<(), StoreError> {
        check_id(op)?;
        fsx::delete_tree(&self.layout().trash().join(op))?;
        self.collect_blobs().map(drop)
    }
}

/// The steps of retiring, to be called in order.
pub(crate) struct Retire {
    store: PackageStore,
    name: String,
    version: String,
    package: PathBuf,
    trash: PathBuf,
    op: String,
}

impl Retire {
    pub(crate) fn new(
        store: &PackageStore,
        name: &str,
        version: &str,
        op: &str,
    ) -> Result<Option<Self>, StoreError> {
        check_id(op)?;
        let Some(there) = store.installed(name, version)? else { return Ok(None) };
        if there.op != op {
            return Err(StoreError::OtherOp { expected: op.into(), found: there.op });
        }
        if there.is_tentative() {
            return Err(StoreError::Tentative { name: name.into(), version: version.into() });
        }
        let layout = store.layout();
        Ok(Some(Self {
            package: layout.package(name, version)?,
            name: name.into(),
            version: version.into(),
            trash: layout.trash().join(op),
            store: store.clone(),
            op: op.into(),
        }))
    }

    pub(crate) fn make_trash(&self) -> Result<(), StoreError> {
        fsx::delete_tree(&self.trash)?;
        fsx::create_dirs(&self.trash)?;
        fsx::write_atomically(&self.trash.join(MARKER), self.op.as_bytes())
    }

    pub(crate) fn rename(&self) -> Result<(), StoreError> {
        fsx::set_mode(&self.package, 0o755)?;
        fsx::rename_new(&self.package, &self.trash.join("tree"))
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.package.parent().map_or(Ok(()), fsx::sync_dir)
    }

    pub(crate) fn forget(&self) -> Result<(), StoreError> {
        self.store.forget(&self.name, &self.version)
    }
}

impl PackageStore {
    /// Deletes the descriptor of a package whose directory is gone, and the name's directory if it is empty.
    pub(crate) fn forget(&self, name: &str, version: &str) -> Result<(), StoreError> {
        let descriptor = self.layout().descriptor(name, version)?;
        match fs::remove_file(&descriptor) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(fsx::context("delete", &descriptor)(e));
            }
            _ => fsx::sync_dir(&self.layout().descriptors())?,
        }
        self.adopted().remove(name, version);
        // Succeeds only if no other version is left.
        if fs::remove_dir(self.layout().packages().join(name)).is_ok() {
            fsx::sync_dir(&self.layout().packages())?;
        }
        Ok(())
    }
}
