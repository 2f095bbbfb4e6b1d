//! The packages of one node: what is there, what may come, what goes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::adopted_files::AdoptedFiles;
use crate::descriptor::{Descriptor, dir_inode};
use crate::digest::Digest;
use crate::error::StoreError;
use crate::fsx;
use crate::layout::Layout;
use crate::limits::DEFAULT_MIN_FREE_BYTES;
use crate::staging::Staging;

/// Settings of a node's package store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct StoreOptions {
    /// A package is refused if less than this would be left free on the disk.
    pub min_free_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { min_free_bytes: DEFAULT_MIN_FREE_BYTES }
    }
}

/// The store. Cheap to clone. Its calls block: use them off the async threads. One process at a time may own a
/// work directory; the owner holds a lock on it (not taken here).
#[derive(Debug, Clone)]
pub struct PackageStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    layout: Layout,
    options: StoreOptions,
    /// Files of registered packages, which have no links among the blobs.
    adopted: AdoptedFiles,
    /// Held by whoever changes whose a registered directory is: a caller may give up waiting for such a change, and
    /// the thread that makes it goes on.
    hands: Mutex<()>,
    /// Held while a blob gets a link or loses its last one, so that what is being taken is not taken for unneeded.
    blobs: Mutex<()>,
}

/// A directory where packages are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDisk {
    /// Name, by its directory.
    pub name: String,
    /// Version, by its directory.
    pub version: String,
    /// Whose it is.
    pub state: DiskState,
}

/// Whose a directory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DiskState {
    /// Published by us.
    Published {
        /// By this operation.
        op: String,
        /// Digest of the manifest.
        digest: Digest,
        /// Bytes of all files.
        bytes: u64,
        /// Number of files.
        files: usize,
        /// Registered, and not yet seen READY: the files are still their owner's.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tentative: bool,
    },
    /// Put there by somebody else: never touched.
    Unregistered,
}

impl PackageStore {
    /// Opens the store below `work_dir`, creating its directories.
    pub fn open(work_dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let layout = Layout::new(work_dir);
        for dir in [layout.packages(), layout.descriptors(), layout.staging(), layout.trash(), layout.blobs()]
        {
            fsx::create_dirs(&dir)?;
        }
        let adopted = AdoptedFiles::load(&layout)?;
        Ok(Self {
            inner: Arc::new(Inner { layout, options, adopted, hands: Mutex::new(()), blobs: Mutex::new(()) }),
        })
    }

    pub(crate) fn adopted(&self) -> &AdoptedFiles {
        &self.inner.adopted
    }

    pub(crate) fn hands(&self) -> MutexGuard<'_, ()> {
        self.inner.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn blobs(&self) -> MutexGuard<'_, ()> {
        self.inner.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where everything is.
    pub fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    /// Refuses a package that would leave too little space.
    pub fn check_space(&self, need: u64) -> Result<(), StoreError> {
        let free = fsx::free_bytes(&self.layout().store())?;
        let reserve = self.inner.options.min_free_bytes;
        if free < reserve.saturating_add(need) {
            return Err(StoreError::Full { need, reserve, free });
        }
        Ok(())
    }

    /// Starts (or starts again) to receive the package of `op`.
    pub fn stage(&self, op: &str) -> Result<Staging, StoreError> {
        Staging::open(self, op)
    }

    /// Drops what an operation received, if anything.
    pub fn discard(&self, op: &str) -> Result<(), StoreError> {
        let dir = self.layout().staging().join(op);
        if crate::layout::marked_op(&dir).is_some() {
            fsx::delete_tree(&dir)?;
            self.collect_blobs()?;
        }
        Ok(())
    }

    /// The descriptor of a published package; `None` if it is not here or not ours.
    pub fn installed(&self, name: &str, version: &str) -> Result<Option<Descriptor>, StoreError> {
        let dir = self.layout().package(name, version)?;
        let descriptor = Descriptor::read(self.layout(), name, version)?;
        Ok(descriptor.filter(|d| dir_inode(&dir) == Some(d.inode)))
    }

    /// Every file of a package, for a class path, in order of the paths. Refused if the package is of another op.
    pub fn class_path(&self, name: &str, version: &str, op: &str) -> Result<Vec<PathBuf>, StoreError> {
        let Some(descriptor) = self.installed(name, version)? else {
            return Err(StoreError::Absent { name: name.into(), version: version.into() });
        };
        if descriptor.op != op {
            return Err(StoreError::OtherOp { expected: op.into(), found: descriptor.op });
        }
        let dir = self.layout().package(name, version)?;
        Ok(descriptor.manifest.files().iter().map(|f| dir.join(&f.path)).collect())
    }

    /// The file with this hash, if any package here (or being received) has it.
    pub fn blob(&self, digest: &Digest) -> Option<PathBuf> {
        let linked = Some(self.layout().blob(digest)).filter(|path| path.is_file());
        linked.or_else(|| self.adopted().find(digest))
    }

    /// The disk's truth: every `icp/<name>/<version>`, ours or not.
    pub fn list(&self) -> Result<Vec<OnDisk>, StoreError> {
        let mut found = Vec::new();
        for name_dir in fsx::read_dir(&self.layout().packages())? {
            let name = name_dir.file_name().to_string_lossy().into_owned();
            if !name_dir.path().is_dir() {
                found.push(OnDisk { name, version: String::new(), state: DiskState::Unregistered });
                continue;
            }
            for version_dir in fsx::read_dir(&name_dir.path())? {
                let version = version_dir.file_name().to_string_lossy().into_owned();
                let state = self.disk_state(&name, &version);
                found.push(OnDisk { name: name.clone(), version, state });
            }
        }
        found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(found)
    }

    fn disk_state(&self, name: &str, version: &str) -> DiskState {
        match self.installed(name, version) {
            Ok(Some(d)) => DiskState::Published {
                tentative: d.is_tentative(),
                op: d.op,
                digest: d.manifest.digest(),
                bytes: d.manifest.total_bytes(),
                files: d.manifest.files().len(),
            },
            // A name that is no name of ours, or a descriptor that cannot be read: not to be touched either.
            Ok(None) | Err(_) => DiskState::Unregistered,
        }
    }
}
