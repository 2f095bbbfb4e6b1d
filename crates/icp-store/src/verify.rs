//! Reads a published package again and compares every byte with its manifest.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::fsx;
use crate::manifest::Manifest;
use crate::store::PackageStore;

/// What became of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FileState {
    /// As published.
    Ok,
    /// Gone.
    Missing,
    /// Not in the manifest.
    Extra,
    /// Other bytes, or no file any more.
    Corrupt,
    /// It cannot be read.
    Unreadable,
}

impl FileState {
    /// The word, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Missing => "MISSING",
            Self::Extra => "EXTRA",
            Self::Corrupt => "CORRUPT",
            Self::Unreadable => "UNREADABLE",
        }
    }
}

/// The state of every file, by path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Path -> state.
    pub files: BTreeMap<String, FileState>,
}

impl VerifyReport {
    /// True if every file is as published and there is no other.
    pub fn is_clean(&self) -> bool {
        self.damage().next().is_none()
    }

    /// What is not as published, by path.
    pub fn damage(&self) -> impl Iterator<Item = (&str, FileState)> {
        let bad = self.files.iter().filter(|(_, state)| **state != FileState::Ok);
        bad.map(|(path, state)| (path.as_str(), *state))
    }
}

impl PackageStore {
    /// Verifies a published package.
    pub fn verify(&self, name: &str, version: &str) -> Result<VerifyReport, StoreError> {
        let Some(descriptor) = self.installed(name, version)? else {
            return Err(StoreError::Absent { name: name.into(), version: version.into() });
        };
        verify_tree(&self.layout().package(name, version)?, &descriptor.manifest)
    }

    /// Compares the copy that `op` published with a manifest that somebody else vouches for. `None` if nothing that
    /// `op` published is here. A copy that is replaced meanwhile is read again.
    pub fn verify_against(
        &self,
        name: &str,
        version: &str,
        op: &str,
        manifest: &Manifest,
    ) -> Result<Option<VerifyReport>, StoreError> {
        let published = || Ok::<_, StoreError>(self.installed(name, version)?.filter(|d| d.op == op));
        let dir = self.layout().package(name, version)?;
        loop {
            let Some(before) = published()? else { return Ok(None) };
            let report = verify_tree(&dir, manifest);
            match published()? {
                None => return Ok(None),
                Some(after) if after.inode == before.inode => return report.map(Some),
                // A repair took its place: it has an inode of its own.
                Some(_) => {}
            }
        }
    }
}

pub(crate) fn verify_tree(dir: &Path, manifest: &Manifest) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport::default();
    for file in manifest.files() {
        report.files.insert(file.path.clone(), file_state(&dir.join(&file.path), file));
    }
    add_extras(dir, "", &mut report)?;
    Ok(report)
}

fn file_state(path: &Path, file: &crate::FileEntry) -> FileState {
    match path.symlink_metadata() {
        Err(_) => return FileState::Missing,
        Ok(m) if !m.is_file() || m.len() != file.size => return FileState::Corrupt,
        Ok(_) => {}
    }
    match fsx::hash_file(path) {
        Ok((size, hash)) if size == file.size && hash == file.blake3 => FileState::Ok,
        Ok(_) => FileState::Corrupt,
        Err(_) => FileState::Unreadable,
    }
}

fn add_extras(dir: &Path, prefix: &str, report: &mut VerifyReport) -> Result<(), StoreError> {
    for entry in fsx::read_dir(dir)? {
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // Of the entry itself: a symbolic link is an extra, never followed.
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            add_extras(&entry.path(), &format!("{path}/"), report)?;
        } else {
            report.files.entry(path).or_insert(FileState::Extra);
        }
    }
    Ok(())
}
