//! The seam to disks: every byte the store keeps goes through [`Disk`], so that the same code runs on a real
//! file system and on [`MemDisk`], which can lose power, fail a sync, or fill up.
//!
//! What the seam promises is what POSIX promises and no more: written data may be lost or half there after a
//! power cut until the file was synced, and a name may be lost until its directory was.

mod mem;
mod real;

use std::io;
use std::path::Path;

pub use mem::{MemDisk, MemDiskFaults};
pub use real::RealDisk;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    ReadWrite,
    /// A new file, to read and write; an existing one is an error.
    CreateNew,
}

/// Held while a directory is locked; dropping it unlocks.
pub trait DiskLock: Send + Sync {}

/// A file system. Paths are used as they are given.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;
    /// Names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates a directory and its parents, each name durable; an existing one is fine.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync_dir`].
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Renames a file within its directory, replacing the target. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock on `path` (created if missing), or fails with `WouldBlock` if another holds
    /// it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// An open file with positioned reads and writes.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes; 0 only at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`. Durable after a sync.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reserves space so that the file is `len` bytes of zeros beyond what is written.
    fn preallocate(&self, len: u64) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// fdatasync: the data, and what is needed to read it back.
    fn sync_data(&self) -> io::Result<()>;
    /// fsync: data and all metadata.
    fn sync_all(&self) -> io::Result<()>;

    /// Fills `buf` or fails with `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Reads a whole file of at most `max` bytes.
pub fn read_file(disk: &dyn Disk, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has {len} bytes where at most {max} can be", path.display()),
        ));
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Replaces a file so that after a power cut it is either the old one or the new one, whole: temporary file,
/// fsync, rename, fsync of the directory.
pub fn replace_file(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.building"));
    match disk.remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.open(&temporary, OpenMode::CreateNew)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    disk.rename(&temporary, &dir.join(name))?;
    disk.sync_dir(dir)
}
