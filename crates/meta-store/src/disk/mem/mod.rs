//! A disk in memory that behaves as badly as a real one may: unsynced writes are lost sector by sector,
//! unsynced names are lost one by one, syncs fail, space runs out, power goes at a chosen operation. All
//! chance is a seed.

mod state;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile, DiskLock, OpenMode};
use state::{Inode, NameChange, State, overwrite, power_is_off};

/// What goes wrong, and when. Operations are counted from the disk's creation.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemDiskFaults {
    /// The n-th sync (0 = the first) fails. What it should have made durable is still read as it was written, and
    /// never becomes durable unless it is written again.
    pub fail_sync_at: Option<u64>,
    /// All syncs after that one fail too; otherwise they claim success.
    pub fail_syncs_after: bool,
    /// Bytes all files may have together.
    pub capacity_bytes: Option<u64>,
    /// Power goes at the n-th writing operation (write, sync, name change): it may be half done, and it and
    /// all later operations fail.
    pub power_off_at: Option<u64>,
}

/// The disk; clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct MemDisk(Arc<Mutex<State>>);

struct MemFile {
    disk: Arc<Mutex<State>>,
    inode: u64,
}

struct MemLock {
    disk: Arc<Mutex<State>>,
    path: PathBuf,
}

impl DiskLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.disk.lock().locks.remove(&self.path);
    }
}

impl MemDisk {
    /// An empty, healthy disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty disk with faults.
    pub fn with_faults(faults: MemDiskFaults) -> Self {
        let disk = Self::new();
        disk.set_faults(faults);
        disk
    }

    /// Replaces the faults.
    pub fn set_faults(&self, faults: MemDiskFaults) {
        self.0.lock().faults = faults;
    }

    /// Writing operations so far; the range of [`MemDiskFaults::power_off_at`].
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Syncs so far, of files and directories.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Operations refused so far because of a fault.
    pub fn refusals(&self) -> u64 {
        self.0.lock().refusals
    }

    /// True once power went off at a chosen operation.
    pub fn is_off(&self) -> bool {
        self.0.lock().powered_off
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().used_bytes()
    }

    /// The disk as it is found after a power cut now. What was synced is there; of the rest `seed` decides:
    /// all of it, none of it, or some sectors and some names.
    pub fn crash(&self, seed: u64) -> MemDisk {
        MemDisk(Arc::new(Mutex::new(self.0.lock().after_crash(seed))))
    }

    /// Cuts the power: from now on every operation fails, so nothing is acknowledged that the disk found afterwards
    /// may not have. Returns that disk, as [`MemDisk::crash`] does.
    pub fn power_off(&self, seed: u64) -> MemDisk {
        let mut state = self.0.lock();
        state.powered_off = true;
        MemDisk(Arc::new(Mutex::new(state.after_crash(seed))))
    }

    /// The bytes of a file, for tests that damage them.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.0.lock();
        state.names.get(path).map(|inode| state.inodes[inode].now.clone())
    }

    /// Puts a durable file there, for tests that damage one.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        let inode = match state.names.get(path) {
            Some(inode) => *inode,
            None => state.new_inode(),
        };
        state.inodes.insert(inode, Inode { now: bytes.clone(), durable: bytes, unsynced: Vec::new() });
        state.names.insert(path.to_owned(), inode);
        state.durable_names.insert(path.to_owned(), inode);
        state.add_dir(path.parent());
    }

    /// Removes a file for good, for tests that lose one.
    pub fn lose(&self, path: &Path) {
        let mut state = self.0.lock();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    fn change_names(&self, make: impl FnOnce(&mut State) -> io::Result<NameChange>) -> io::Result<()> {
        let mut state = self.0.lock();
        let off = state.begin_operation()?;
        let change = make(&mut state)?;
        if off {
            // Half done: the change may or may not survive, which `crash` decides; nobody sees it before.
            state.unsynced_names.push(change);
            return Err(power_is_off());
        }
        let mut names = std::mem::take(&mut state.names);
        change.apply(&mut names);
        state.names = names;
        state.unsynced_names.push(change);
        Ok(())
    }
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        if mode == OpenMode::CreateNew {
            self.change_names(|state| {
                if state.names.contains_key(path) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                if !path.parent().is_some_and(|dir| state.dirs.contains(dir)) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let inode = state.new_inode();
                Ok(NameChange::Link(path.to_owned(), inode))
            })?;
        }
        let state = self.0.lock();
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemFile { disk: Arc::clone(&self.0), inode }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.lock().add_dir(Some(dir));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change_names(|state| {
            state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
            Ok(NameChange::Unlink(path.to_owned()))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change_names(|state| {
            let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
            Ok(NameChange::Rename(from.to_owned(), to.to_owned(), inode))
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.begin_sync()? {
            return Ok(());
        }
        let (synced, left) =
            std::mem::take(&mut state.unsynced_names).into_iter().partition(|c| c.is_in(dir));
        state.unsynced_names = left;
        let changes: Vec<NameChange> = synced;
        for change in changes {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        if !self.0.lock().locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemLock { disk: Arc::clone(&self.0), path: path.to_owned() }))
    }
}

impl MemFile {
    fn with<T>(&self, f: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        f(&mut self.disk.lock(), self.inode)
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state, inode| {
            let synced = state.begin_sync();
            let inode = state.inodes.get_mut(&inode).ok_or(io::ErrorKind::NotFound)?;
            match synced {
                Ok(true) => {
                    for (offset, bytes) in std::mem::take(&mut inode.unsynced) {
                        overwrite(&mut inode.durable, offset, &bytes);
                    }
                }
                // It only claims success.
                Ok(false) => {}
                // As Linux has it: the pages count as clean from now on. They are read as they were written until
                // the power goes, and no later sync makes them durable.
                Err(_) if !state.powered_off => inode.unsynced.clear(),
                Err(_) => {}
            }
            synced.map(drop)
        })
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state, inode| {
            let content = &state.inodes[&inode].now;
            let from = (offset as usize).min(content.len());
            let n = buf.len().min(content.len() - from);
            buf[..n].copy_from_slice(&content[from..from + n]);
            Ok(n)
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|state, inode| {
            let off = state.begin_operation()?;
            state.check_room(inode, offset as usize + bytes.len())?;
            state.inodes.get_mut(&inode).ok_or(io::ErrorKind::NotFound)?.write(offset as usize, bytes);
            if off { Err(power_is_off()) } else { Ok(()) }
        })
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let now = self.len()?;
        if now >= len {
            return Ok(());
        }
        self.write_all_at(&vec![0; (len - now) as usize], now)
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state, inode| Ok(state.inodes[&inode].now.len() as u64))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }
}
