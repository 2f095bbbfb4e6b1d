//! What a start finds after a crash, and what nobody needs any more. Only what carries our own mark is touched.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::descriptor::{Descriptor, dir_inode};
use crate::error::StoreError;
use crate::fsx;
use crate::layout::{check_id, marked_op};
use crate::store::PackageStore;
use crate::verify::verify_tree;

/// What a sweep did and saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Staging and trash directories deleted, by op.
    pub deleted: Vec<String>,
    /// Descriptors whose directory was gone (or replaced by somebody's): dropped.
    pub dropped: Vec<String>,
    /// Directories inside `icp-store` that do not carry our mark: left alone.
    pub unknown: Vec<PathBuf>,
}

impl PackageStore {
    /// Puts the disk in order after a start. `keep` says which operations go on: their staging stays. Must run
    /// before anything is staged, and after every program of an earlier process is dead.
    pub fn sweep(&self, keep: impl Fn(&str) -> bool) -> Result<SweepReport, StoreError> {
        let mut report = SweepReport::default();
        self.sweep_descriptors(&mut report)?;
        sweep_marked(&self.layout().trash(), |_| false, &mut report)?;
        sweep_marked(&self.layout().staging(), keep, &mut report)?;
        self.collect_blobs()?;
        Ok(report)
    }

    fn sweep_descriptors(&self, report: &mut SweepReport) -> Result<(), StoreError> {
        for entry in fsx::read_dir(&self.layout().descriptors())? {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "tmp") {
                fs::remove_file(&path).map_err(fsx::context("delete", &path))?;
                continue;
            }
            let descriptor = match Descriptor::read_file(&path) {
                Ok(Some(descriptor)) => descriptor,
                Ok(None) => continue,
                Err(e) => {
                    tracing::warn!(error = %e, "a package's descriptor cannot be read; the package stays UNREGISTERED");
                    report.unknown.push(path);
                    continue;
                }
            };
            if !self.settle(&descriptor)? {
                report.dropped.push(format!("{}:{}", descriptor.name, descriptor.version));
                if descriptor.is_tentative() {
                    self.release(&descriptor.name, &descriptor.version, &descriptor.op)?;
                } else {
                    self.forget(&descriptor.name, &descriptor.version)?;
                }
            }
        }
        Ok(())
    }

    /// True if the descriptor's package is there.
    fn settle(&self, descriptor: &Descriptor) -> Result<bool, StoreError> {
        let dir = self.layout().package(&descriptor.name, &descriptor.version)?;
        let Some(inode) = dir_inode(&dir) else { return Ok(false) };
        if descriptor.is_tentative() {
            // Still its owner's: left as it is, whatever step a crash interrupted.
            return Ok(inode == descriptor.inode);
        }
        if inode != descriptor.inode {
            // Not the directory we renamed: a restored backup, or somebody's. Ours only if every byte is.
            if !verify_tree(&dir, &descriptor.manifest)?.is_clean() {
                return Ok(false);
            }
            Descriptor { inode, ..descriptor.clone() }.write(self.layout())?;
        }
        fsx::set_mode(&dir, 0o555)?;
        Ok(true)
    }

    /// Operations that have something in staging or in the trash.
    pub fn unfinished(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut ops = BTreeSet::new();
        for parent in [self.layout().staging(), self.layout().trash()] {
            ops.extend(fsx::read_dir(&parent)?.iter().filter_map(|entry| marked_op(&entry.path())));
        }
        Ok(ops)
    }

    /// Deletes what is left of an operation that is over, without its blobs. False if there was nothing.
    pub fn drop_unfinished(&self, op: &str) -> Result<bool, StoreError> {
        check_id(op)?;
        let mut found = false;
        for parent in [self.layout().staging(), self.layout().trash()] {
            let dir = parent.join(op);
            if marked_op(&dir).is_some() {
                fsx::delete_tree(&dir)?;
                found = true;
            }
        }
        Ok(found)
    }

    /// Deletes the blobs that no tree links to, neither a package's nor one that is being received; answers how many.
    /// Who takes a blob links it first, and reads it then: it either is found here with a second link, or is not
    /// found there.
    pub fn collect_blobs(&self) -> Result<u64, StoreError> {
        let mut collected = 0;
        let mut shelves = fsx::read_dir_if_any(&self.layout().blobs())?;
        // Whatever else somebody put there is not ours.
        shelves.retain(|shelf| shelf.file_type().is_ok_and(|kind| kind.is_dir()));
        for shelf in shelves {
            for blob in fsx::read_dir_if_any(&shelf.path())? {
                let ours = blob.file_name().to_str().is_some_and(|n| n.parse::<crate::Digest>().is_ok());
                let _blobs = self.blobs();
                let unlinked = blob.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1);
                if unlinked && ours {
                    collected += u64::from(fs::remove_file(blob.path()).is_ok());
                }
            }
            let _blobs = self.blobs();
            // Succeeds only on an empty shelf.
            let _ = fs::remove_dir(shelf.path());
        }
        Ok(collected)
    }
}

fn sweep_marked(
    parent: &Path,
    keep: impl Fn(&str) -> bool,
    report: &mut SweepReport,
) -> Result<(), StoreError> {
    for entry in fsx::read_dir(parent)? {
        match marked_op(&entry.path()) {
            Some(op) if keep(&op) => {}
            Some(op) => {
                fsx::delete_tree(&entry.path())?;
                report.deleted.push(op);
            }
            // A crash between making the directory and marking it leaves it empty: then it is harmless.
            None if fs::remove_dir(entry.path()).is_ok() => {}
            None => report.unknown.push(entry.path()),
        }
    }
    Ok(())
}
