//! Looks at files that somebody else put on this node: what a package made of them would consist of, and a stamp of
//! each file and directory by which a later change is noticed. Only reads.
//!
//! A hash says what a file was while it was read. Whether it stayed so is told by the stamps: they are taken before
//! the first file is hashed and compared after the last one, and again by whoever takes the files over. The time of
//! the last change of an inode cannot be set back by a program, but it moves in ticks; so nothing is hashed within
//! the tick of its last change.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::Digest;
use crate::error::StoreError;
use crate::fsx;
use crate::manifest::{FileEntry, Manifest};
use crate::walk::{Purpose, Stamp, Tree, at, gone_is_changed, walk};

/// A file system's clock ticks at least as often as this.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// Why files cannot become a package.
#[derive(Debug, Error)]
pub enum InspectError {
    /// No such directory.
    #[error("{} is not there", .0.display())]
    Missing(PathBuf),
    /// A directory without a file.
    #[error("{} holds no file", .0.display())]
    Empty(PathBuf),
    /// Something that no package may hold.
    #[error("`{path}` cannot be registered: {why}")]
    Refused {
        /// Below the directory.
        path: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A file that is not what it was when the look at it began.
    #[error("`{path}` changed while it was hashed")]
    Changed {
        /// Below the directory.
        path: String,
    },
    /// A directory from which this node registers nothing.
    #[error(
        "{} is not below a directory of this node's icp.register-from = [{allowed}]: add one there, or put the files \
         where packages lie",
        dir.display()
    )]
    NotAllowed {
        /// The directory.
        dir: PathBuf,
        /// What the key holds.
        allowed: String,
    },
    /// The disk, a path, a limit.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl InspectError {
    /// The state of the node, or of the file, in one word.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Missing(_) => "MISSING",
            Self::Empty(_) => "EMPTY",
            Self::Refused { .. } | Self::Store(StoreError::Path(_) | StoreError::Limit(_)) => "REFUSED",
            Self::Changed { .. } => "CHANGED",
            Self::NotAllowed { .. } => "NOT_ALLOWED",
            Self::Store(error) => error.code(),
        }
    }

    /// The file that is to blame, if it is one.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Refused { path, .. } | Self::Changed { path } => Some(path),
            Self::Store(StoreError::Path(error)) => Some(&error.path),
            Self::Missing(_) | Self::Empty(_) | Self::NotAllowed { .. } | Self::Store(_) => None,
        }
    }
}

/// What a node found, as it tells a coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Finding {
    /// Files that could be a package.
    Found {
        /// They.
        files: Manifest,
    },
    /// None.
    Refused {
        /// In one word: `EMPTY`.
        state: String,
        /// The file that is to blame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// In a sentence.
        error: String,
    },
}

impl From<&InspectError> for Finding {
    fn from(error: &InspectError) -> Self {
        Self::Refused {
            state: error.state().into(),
            file: error.file().map(Into::into),
            error: error.to_string(),
        }
    }
}

/// Files as they were found, each hashed.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// What a package made of them consists of.
    pub manifest: Manifest,
    pub(crate) dir: PathBuf,
    pub(crate) purpose: Purpose,
    pub(crate) seen: Tree,
}

impl Inspection {
    /// Hashes every file below `dir`. `hashed` is told the path of each file when it has been read.
    pub(crate) fn take(
        dir: &Path,
        purpose: Purpose,
        mut hashed: impl FnMut(&str),
    ) -> Result<Self, InspectError> {
        let seen = walk(dir, purpose)?;
        let files = seen.iter().filter(|(_, stamp)| !stamp.is_dir);
        let mut entries = Vec::new();
        if files.clone().next().is_none() {
            return Err(InspectError::Empty(dir.into()));
        }
        wait_for_the_next_tick(&seen);
        for (path, _) in files {
            let file = at(dir, path);
            let opened = fsx::open_plain(&file).map_err(|e| gone_is_changed(e, path))?;
            let (size, blake3) = fsx::hash_open(opened, &file)?;
            entries.push(FileEntry { path: path.clone(), size, blake3 });
            hashed(path);
        }
        let found = Self { manifest: Manifest::new(entries)?, dir: dir.into(), purpose, seen };
        found.check_unchanged()?;
        Ok(found)
    }

    /// Digest of the manifest.
    pub fn digest(&self) -> Digest {
        self.manifest.digest()
    }

    /// Refused if a file or directory was changed, added or removed since the look.
    pub(crate) fn check_unchanged(&self) -> Result<(), InspectError> {
        self.compare(|stamp| stamp)
    }

    /// The same, after the modes were changed.
    pub(crate) fn check_content_unchanged(&self) -> Result<(), InspectError> {
        self.compare(Stamp::but_for_mode)
    }

    fn compare(&self, relevant: impl Fn(Stamp) -> Stamp) -> Result<(), InspectError> {
        let now = walk(&self.dir, self.purpose)?;
        let changed = |path: &String| InspectError::Changed {
            path: if path.is_empty() { ".".into() } else { path.clone() },
        };
        if let Some(added) = now.keys().find(|path| !self.seen.contains_key(*path)) {
            return Err(changed(added));
        }
        // A file before the directories above it: they change with it.
        let differs = |(path, stamp): &(&String, &Stamp)| {
            now.get(*path).is_none_or(|again| relevant(*again) != relevant(**stamp))
        };
        match self.seen.iter().rev().find(differs) {
            Some((path, _)) => Err(changed(path)),
            None => Ok(()),
        }
    }
}

/// The directory by its real name, if it lies below one of `roots`. One that does not exist is only said to be missing
/// where it would be allowed: the rest of the disk is nobody's business.
pub(crate) fn allowed_dir(dir: &Path, roots: &[PathBuf]) -> Result<PathBuf, InspectError> {
    let not_allowed = || {
        let allowed: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        InspectError::NotAllowed { dir: dir.into(), allowed: allowed.join(", ") }
    };
    let plain = dir.is_absolute() && dir.components().all(|part| !matches!(part, Component::ParentDir));
    match dir.canonicalize() {
        _ if !plain => Err(not_allowed()),
        Ok(real) => {
            let below = |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
            if roots.iter().any(below) { Ok(real) } else { Err(not_allowed()) }
        }
        Err(_) if !roots.iter().any(|root| dir.starts_with(root)) => Err(not_allowed()),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(InspectError::Missing(dir.into()))
        }
        Err(e) => Err(fsx::context("find", dir)(e).into()),
    }
}

/// A change in the tick of the stamps would not move them, so the hashing begins in a later one.
fn wait_for_the_next_tick(seen: &Tree) {
    let newest = seen.values().map(|stamp| stamp.changed).max().unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let newest = Duration::new(newest.0.try_into().unwrap_or(0), newest.1.try_into().unwrap_or(0));
    if now.saturating_sub(newest) < CLOCK_TICK {
        std::thread::sleep(CLOCK_TICK);
    }
}
