//! File system steps with their context in the error, and with the fsync each owes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{CWD, OFlags, RenameFlags};

use crate::digest::Digest;
use crate::error::StoreError;

/// Bytes read or written at a time.
pub const CHUNK_BYTES: usize = 256 * 1024;

pub fn context(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_path_buf();
    move |source| StoreError::Io { doing, path, source }
}

/// Creates a directory and its parents, each durable in its parent.
pub fn create_dirs(dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        create_dirs(parent)?;
    }
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(context("create", dir)(e)),
        _ => {}
    }
    dir.parent().map_or(Ok(()), sync_dir)
}

pub fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(context("sync", dir))
}

/// Syncs every directory of a tree, deepest first. Its files are synced when they are written.
pub fn sync_dirs_below(dir: &Path) -> Result<(), StoreError> {
    for entry in read_dir(dir)? {
        if entry.file_type().map_err(context("inspect", &entry.path()))?.is_dir() {
            sync_dirs_below(&entry.path())?;
        }
    }
    sync_dir(dir)
}

pub fn read_dir(dir: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    fs::read_dir(dir).and_then(Iterator::collect).map_err(context("list", dir))
}

/// Like [`read_dir`], and empty if there is no such directory.
pub fn read_dir_if_any(dir: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    match read_dir(dir) {
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// Writes a small file whole or not at all, durably.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary).map_err(context("create", &temporary))?;
    file.write_all(content).map_err(context("write", &temporary))?;
    file.sync_all().map_err(context("sync", &temporary))?;
    fs::rename(&temporary, path).map_err(context("rename into", path))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Creates a file that must not exist; a symbolic link in its place is never followed.
pub fn create_new(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map_err(context("create", path))
}

/// Renames, refusing if something is at `to` already.
pub fn rename_new(from: &Path, to: &Path) -> Result<(), StoreError> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => Err(StoreError::Occupied(to.into())),
        // A file system without the flag: the callers hold the node's lock on the work directory.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !exists(to) => {
            fs::rename(from, to).map_err(context("rename into", to))
        }
        Err(e) => Err(context("rename into", to)(e.into())),
    }
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Makes a second name for a file; a copy where the file system has no (more) hard links.
pub fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists && e.kind() != io::ErrorKind::NotFound => {
            let mut source = File::open(from)?;
            let mut target = OpenOptions::new().write(true).create_new(true).open(to)?;
            io::copy(&mut source, &mut target)?;
            target.set_permissions(Permissions::from_mode(0o444))?;
            target.sync_all()
        }
        other => other,
    }
}

pub fn set_mode(path: &Path, mode: u32) -> Result<(), StoreError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(context("set the mode of", path))
}

/// Sets the mode of every directory below `dir`, not of `dir` itself.
pub fn set_dir_modes_below(dir: &Path, mode: u32) -> Result<(), StoreError> {
    for entry in read_dir(dir)? {
        if entry.file_type().map_err(context("inspect", &entry.path()))?.is_dir() {
            set_dir_modes_below(&entry.path(), mode)?;
            set_mode(&entry.path(), mode)?;
        }
    }
    Ok(())
}

/// Deletes a tree of ours, read-only directories included.
pub fn delete_tree(dir: &Path) -> Result<(), StoreError> {
    if !exists(dir) {
        return Ok(());
    }
    set_mode(dir, 0o755)?;
    make_writable_below(dir)?;
    fs::remove_dir_all(dir).map_err(context("delete", dir))
}

/// Top down: a directory must be writable before what is in it can go.
fn make_writable_below(dir: &Path) -> Result<(), StoreError> {
    for entry in read_dir(dir)? {
        if entry.file_type().map_err(context("inspect", &entry.path()))?.is_dir() {
            set_mode(&entry.path(), 0o755)?;
            make_writable_below(&entry.path())?;
        }
    }
    Ok(())
}

/// Opens for reading what may be anybody's: a symbolic link is not followed, a pipe does not block.
pub fn open_plain(path: &Path) -> Result<File, StoreError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(context("open", path))
}

/// Size and hash of a file, read once in bounded memory.
pub fn hash_file(path: &Path) -> Result<(u64, Digest), StoreError> {
    hash_open(File::open(path).map_err(context("open", path))?, path)
}

/// The same of an open file.
pub fn hash_open(mut file: File, path: &Path) -> Result<(u64, Digest), StoreError> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut size = 0;
    loop {
        let n = file.read(&mut chunk).map_err(context("read", path))?;
        if n == 0 {
            return Ok((size, hasher.finalize().into()));
        }
        hasher.update(&chunk[..n]);
        size += n as u64;
    }
}

/// Bytes an unprivileged process may still write on the file system of `path`.
pub fn free_bytes(path: &Path) -> Result<u64, StoreError> {
    let stat = rustix::fs::statvfs(path).map_err(|e| context("ask the free space of", path)(e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
