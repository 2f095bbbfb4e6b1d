//! What lies below a directory, without reading a file: a stamp of each file and directory, and a refusal by name of
//! what no package may hold or what could be changed behind it.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::fsx;
use crate::inspect::InspectError;
use crate::limits::{MAX_DEPTH, MAX_FILES};
use crate::paths::check_path;

/// What the files are looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To become the package where they lie: they must be this node's alone to change.
    Adopt {
        /// The file system that packages lie on.
        device: u64,
    },
    /// To be copied.
    Copy,
}

/// By path below the directory; the directory itself has the empty path.
pub(crate) type Tree = BTreeMap<String, Stamp>;

/// What tells one content of a file or directory from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) is_dir: bool,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    size: u64,
    modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let is_dir = metadata.is_dir();
        Self {
            is_dir,
            inode: metadata.ino(),
            mode: metadata.mode() & 0o7777,
            // Of a directory it says nothing.
            size: if is_dir { 0 } else { metadata.len() },
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The same but for what a change of the mode changes.
    pub(crate) fn but_for_mode(self) -> Self {
        Self { mode: 0, changed: (0, 0), ..self }
    }
}

/// The path of something found below a directory.
pub(crate) fn at(dir: &Path, path: &str) -> PathBuf {
    if path.is_empty() { dir.into() } else { dir.join(path) }
}

pub(crate) fn gone_is_changed(error: StoreError, path: &str) -> InspectError {
    match error {
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            InspectError::Changed { path: path.into() }
        }
        other => other.into(),
    }
}

/// Looks at everything below `dir`.
pub(crate) fn walk(dir: &Path, purpose: Purpose) -> Result<Tree, InspectError> {
    let metadata = match dir.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(InspectError::Missing(dir.into()));
        }
        Err(e) => return Err(fsx::context("inspect", dir)(e).into()),
    };
    if !metadata.is_dir() {
        return Err(InspectError::Refused { path: ".".into(), why: "it is no directory".into() });
    }
    let mut walk =
        Walk { dir, purpose, me: rustix::process::geteuid().as_raw(), files: 0, seen: Tree::new() };
    walk.take("", &metadata)?;
    walk.below("", 0)?;
    Ok(walk.seen)
}

struct Walk<'a> {
    dir: &'a Path,
    purpose: Purpose,
    me: u32,
    files: usize,
    seen: Tree,
}

impl Walk<'_> {
    fn below(&mut self, prefix: &str, depth: usize) -> Result<(), InspectError> {
        let here = at(self.dir, prefix);
        for entry in fsx::read_dir(&here).map_err(|e| gone_is_changed(e, prefix))? {
            let name = entry.file_name();
            let shown = join(prefix, &name.to_string_lossy());
            let Some(name) = name.to_str() else {
                return refuse(&shown, "its name is not UTF-8");
            };
            let path = join(prefix, name);
            let metadata = match entry.path().symlink_metadata() {
                Ok(metadata) => metadata,
                Err(e) => return Err(gone_is_changed(fsx::context("inspect", &entry.path())(e), &path)),
            };
            self.take(&path, &metadata)?;
            if metadata.is_dir() {
                if depth == MAX_DEPTH {
                    return refuse(&path, &format!("it is deeper than {MAX_DEPTH} directories"));
                }
                self.below(&path, depth + 1)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, path: &str, metadata: &Metadata) -> Result<(), InspectError> {
        let kind = metadata.file_type();
        if kind.is_symlink() {
            return refuse(path, "it is a symbolic link: put the file itself there");
        }
        if !kind.is_dir() && !kind.is_file() {
            return refuse(path, "it is neither a regular file nor a directory");
        }
        if kind.is_file() {
            check_path(path).map_err(StoreError::from)?;
            self.files += 1;
            if self.files > MAX_FILES {
                return Err(StoreError::Limit(format!("there are more than {MAX_FILES} files")).into());
            }
        }
        if let Purpose::Adopt { device } = self.purpose {
            self.check_ours_to_change(path, metadata, device)?;
        }
        self.seen.insert(path.into(), Stamp::of(metadata));
        Ok(())
    }

    /// What becomes a package where it lies must be on the packages' file system (it goes by a rename), must let
    /// this process take the write permission away, and must have no other name through which it could be written.
    fn check_ours_to_change(&self, path: &str, metadata: &Metadata, device: u64) -> Result<(), InspectError> {
        let shown = if path.is_empty() { "." } else { path };
        if metadata.dev() != device {
            return refuse(shown, "it is on another file system than the work-dir");
        }
        if self.me != 0 && metadata.uid() != self.me {
            let why = format!(
                "user {} owns it, and this node runs as user {}, which cannot make it read-only: chown it, or \
                 register with --from, which copies",
                metadata.uid(),
                self.me
            );
            return refuse(shown, &why);
        }
        if metadata.is_file() && metadata.nlink() > 1 {
            let why = "it has another name (a hard link) through which it could be changed: copy it, or register with \
                       --from, which copies";
            return refuse(shown, why);
        }
        Ok(())
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.into() } else { format!("{prefix}/{name}") }
}

fn refuse<T>(path: &str, why: &str) -> Result<T, InspectError> {
    Err(InspectError::Refused { path: path.into(), why: why.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_files_and_another_file_system_are_refused_in_place_and_copied() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.jar"), "x").unwrap();
        let metadata = dir.path().metadata().unwrap();
        let look = |purpose, me| {
            let mut walk = Walk { dir: dir.path(), purpose, me, files: 0, seen: Tree::new() };
            walk.below("", 0).map_err(|e| e.to_string())
        };
        let here = Purpose::Adopt { device: metadata.dev() };
        look(here, metadata.uid()).unwrap();
        let refused = look(here, metadata.uid() + 1).unwrap_err();
        assert!(refused.contains("x.jar") && refused.contains("chown"), "{refused}");
        let refused = look(Purpose::Adopt { device: metadata.dev() + 1 }, metadata.uid()).unwrap_err();
        assert!(refused.contains("another file system"), "{refused}");
        look(Purpose::Copy, metadata.uid() + 1).unwrap();
    }
}
