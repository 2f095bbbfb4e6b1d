//! What a start finds after a crash. Only what carries our own mark is touched.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::descriptor::{Descriptor, dir_inode};
use crate::error::StoreError;
use crate::fsx;
use crate::layout::marked_op;
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

    /// Deletes the blobs that no tree links to. Needs no lock: a blob that is being taken keeps its bytes under
    /// the taker's name, it only stops being found by its hash; whoever gives or takes one is prepared for that.
    pub(crate) fn collect_blobs(&self) -> Result<(), StoreError> {
        for shelf in fsx::read_dir_if_any(&self.layout().blobs())? {
            for blob in fsx::read_dir_if_any(&shelf.path())? {
                let unlinked = blob.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1);
                let ours = blob.file_name().to_str().is_some_and(|n| n.parse::<crate::Digest>().is_ok());
                if unlinked && ours {
                    let _ = fs::remove_file(blob.path());
                }
            }
            // Succeeds only on an empty shelf.
            let _ = fs::remove_dir(shelf.path());
        }
        Ok(())
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
