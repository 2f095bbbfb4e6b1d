//! Files of registered packages by their hash. They have no links among the blobs (see [`crate::adopt`]): they are
//! served from where they lie, and another package that has the same file copies it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::error::StoreError;
use crate::fsx;
use crate::layout::Layout;
use crate::manifest::{FileEntry, Manifest};
use crate::staging::{Staging, is_good};

/// Where the files of registered packages lie, to be found by their hash.
#[derive(Debug, Default)]
pub(crate) struct AdoptedFiles {
    packages: Mutex<BTreeMap<(String, String), (PathBuf, Manifest)>>,
}

impl AdoptedFiles {
    pub(crate) fn load(layout: &Layout) -> Result<Self, StoreError> {
        let files = Self::default();
        for entry in fsx::read_dir(&layout.descriptors())? {
            // One that cannot be read is told of by the sweep.
            if let Ok(Some(descriptor)) = Descriptor::read_file(&entry.path())
                && descriptor.adopted.is_some()
            {
                files.add(&descriptor, layout);
            }
        }
        Ok(files)
    }

    fn packages(&self) -> MutexGuard<'_, BTreeMap<(String, String), (PathBuf, Manifest)>> {
        self.packages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, descriptor: &Descriptor, layout: &Layout) {
        let Descriptor { name, version, manifest, .. } = descriptor;
        if let Ok(dir) = layout.package(name, version) {
            self.packages().insert((name.clone(), version.clone()), (dir, manifest.clone()));
        }
    }

    pub(crate) fn remove(&self, name: &str, version: &str) {
        self.packages().remove(&(name.to_owned(), version.to_owned()));
    }

    pub(crate) fn find(&self, digest: &Digest) -> Option<PathBuf> {
        let packages = self.packages();
        let all = packages.values().flat_map(|(dir, manifest)| {
            let same = manifest.files().iter().filter(|file| file.blake3 == *digest);
            same.map(move |file| dir.join(&file.path))
        });
        all.into_iter().find(|path| path.symlink_metadata().is_ok_and(|m| m.is_file()))
    }
}

impl Staging {
    /// Takes a file as a copy of a registered package's, if one here has the bytes.
    pub(crate) fn copy_adopted(&mut self, entry: &FileEntry) -> Result<bool, StoreError> {
        let Some(theirs) = self.store.adopted().find(&entry.blake3) else { return Ok(false) };
        if !is_good(&theirs, entry) {
            return Ok(false);
        }
        let copied = self.copy_in(&entry.path, &theirs)?;
        if copied.blake3 != entry.blake3 {
            // Changed since it was looked at, a moment ago.
            return Err(StoreError::Hash {
                path: entry.path.clone(),
                expected: entry.blake3,
                found: copied.blake3,
            });
        }
        Ok(true)
    }

    /// Copies a file of this machine into the package.
    pub(crate) fn copy_in(&mut self, path: &str, from: &Path) -> Result<FileEntry, StoreError> {
        let mut source = fsx::open_plain(from)?;
        let mut writer = self.create_file(path)?;
        let mut chunk = vec![0; fsx::CHUNK_BYTES];
        loop {
            let read = source.read(&mut chunk).map_err(fsx::context("read", from))?;
            if read == 0 {
                return self.add(writer);
            }
            writer.write(&chunk[..read])?;
        }
    }
}
