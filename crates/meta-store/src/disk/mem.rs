//! A disk in memory that behaves as badly as a real one may: unsynced writes are lost sector by sector, unsynced
//! names are lost one by one, syncs fail, space runs out, power goes at a chosen operation. All chance is a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile, DiskLock, OpenMode};

/// A device writes whole sectors: a power cut leaves each one old or new.
const SECTOR_BYTES: usize = 512;

/// What goes wrong, and when. Operations are counted from the disk's creation.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemDiskFaults {
    /// The n-th sync (0 = the first) fails; what it should have made durable never becomes durable.
    pub fail_sync_at: Option<u64>,
    /// All syncs after that one fail too; otherwise they claim success.
    pub fail_syncs_after: bool,
    /// Bytes all files may have together.
    pub capacity_bytes: Option<u64>,
    /// Power goes at the n-th writing operation (write, sync, name change): it may be half done, and it and all
    /// later operations fail.
    pub power_off_at: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync, in order.
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, u64),
}

#[derive(Debug, Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    unsynced_names: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    next_inode: u64,
    faults: MemDiskFaults,
    operations: u64,
    syncs: u64,
    powered_off: bool,
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

/// splitmix64: enough chance for choosing what a crash keeps.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn half(&mut self) -> bool {
        self.next() & 1 == 1
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

    /// The disk as it is found after a power cut now. What was synced is there; of the rest `seed` decides: all of
    /// it, none of it, or some sectors and some names.
    pub fn crash(&self, seed: u64) -> MemDisk {
        let state = self.0.lock();
        let mut chance = Chance(seed);
        let style = chance.next() % 4;
        let mut names = state.durable_names.clone();
        for change in &state.unsynced_names {
            if style == 0 || style != 1 && chance.half() {
                change.apply(&mut names);
            }
        }
        let mut after = State { dirs: state.dirs.clone(), next_inode: state.next_inode, ..State::default() };
        for &inode in names.values() {
            let content = state.inodes[&inode].after_crash(style, &mut chance);
            after
                .inodes
                .insert(inode, Inode { now: content.clone(), durable: content, unsynced: Vec::new() });
        }
        after.names = names.clone();
        after.durable_names = names;
        MemDisk(Arc::new(Mutex::new(after)))
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

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Link(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Unlink(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to, inode) => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
        }
    }

    fn is_in(&self, dir: &Path) -> bool {
        match self {
            NameChange::Link(path, _) | NameChange::Unlink(path) | NameChange::Rename(_, path, _) => {
                path.parent() == Some(dir)
            }
        }
    }
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        overwrite(&mut self.now, offset, bytes);
        self.unsynced.push((offset, bytes.to_vec()));
    }

    /// `style` 0 keeps all, 1 loses all, others choose by sector.
    fn after_crash(&self, style: u64, chance: &mut Chance) -> Vec<u8> {
        match style {
            0 => return self.now.clone(),
            1 => return self.durable.clone(),
            _ => {}
        }
        let mut content = self.durable.clone();
        for (offset, bytes) in &self.unsynced {
            let mut at = 0;
            while at < bytes.len() {
                let sector_left = SECTOR_BYTES - (offset + at) % SECTOR_BYTES;
                let end = (at + sector_left).min(bytes.len());
                if chance.half() {
                    overwrite(&mut content, offset + at, &bytes[at..end]);
                }
                at = end;
            }
        }
        content
    }
}

fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl State {
    fn new_inode(&mut self) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        inode
    }

    fn add_dir(&mut self, mut dir: Option<&Path>) {
        while let Some(d) = dir {
            self.dirs.insert(d.to_owned());
            dir = d.parent();
        }
    }

    /// Counts an operation; Ok(true) when the power goes during this one.
    fn begin_operation(&mut self) -> io::Result<bool> {
        if self.powered_off {
            return Err(power_is_off());
        }
        let number = self.operations;
        self.operations += 1;
        self.powered_off = self.faults.power_off_at == Some(number);
        Ok(self.powered_off)
    }

    /// Counts a sync; an error when this one is to fail. Ok(false) when it only claims success.
    fn begin_sync(&mut self) -> io::Result<bool> {
        if self.begin_operation()? {
            return Err(power_is_off());
        }
        let number = self.syncs;
        self.syncs += 1;
        match self.faults.fail_sync_at {
            Some(at) if number == at || number > at && self.faults.fail_syncs_after => {
                Err(io::Error::other("the sync failed"))
            }
            Some(at) => Ok(number < at),
            None => Ok(true),
        }
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[inode].now.len() as u64).sum()
    }

    fn check_room(&self, inode: u64, len: usize) -> io::Result<()> {
        let Some(capacity) = self.faults.capacity_bytes else { return Ok(()) };
        let grows = len.saturating_sub(self.inodes[&inode].now.len()) as u64;
        if grows > 0 && self.used_bytes() + grows > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
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
            if state.begin_sync()? {
                let inode = state.inodes.get_mut(&inode).ok_or(io::ErrorKind::NotFound)?;
                for (offset, bytes) in std::mem::take(&mut inode.unsynced) {
                    overwrite(&mut inode.durable, offset, &bytes);
                }
            }
            Ok(())
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
