//! What a [`MemDisk`](super::MemDisk) holds: for each file and each name what is seen now and what is
//! durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::MemDiskFaults;

/// A device writes whole sectors: a power cut leaves each one old or new.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    pub now: Vec<u8>,
    pub durable: Vec<u8>,
    /// Writes since the last sync, in order.
    pub unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, u64),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub inodes: BTreeMap<u64, Inode>,
    pub names: BTreeMap<PathBuf, u64>,
    pub durable_names: BTreeMap<PathBuf, u64>,
    pub unsynced_names: Vec<NameChange>,
    pub dirs: BTreeSet<PathBuf>,
    pub locks: BTreeSet<PathBuf>,
    pub next_inode: u64,
    pub faults: MemDiskFaults,
    pub operations: u64,
    pub syncs: u64,
    pub powered_off: bool,
    pub refusals: u64,
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

pub(super) fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

impl NameChange {
    pub fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
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

    pub fn is_in(&self, dir: &Path) -> bool {
        match self {
            NameChange::Link(path, _) | NameChange::Unlink(path) | NameChange::Rename(_, path, _) => {
                path.parent() == Some(dir)
            }
        }
    }
}

impl Inode {
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
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

pub(super) fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl State {
    /// What a power cut leaves: the durable, and what `seed` picks of the rest.
    pub fn after_crash(&self, seed: u64) -> State {
        let mut chance = Chance(seed);
        let style = chance.next() % 4;
        let mut names = self.durable_names.clone();
        for change in &self.unsynced_names {
            if style == 0 || style != 1 && chance.half() {
                change.apply(&mut names);
            }
        }
        let (dirs, next_inode, refusals) = (self.dirs.clone(), self.next_inode, self.refusals);
        let mut after = State { dirs, next_inode, refusals, ..State::default() };
        for &inode in names.values() {
            let content = self.inodes[&inode].after_crash(style, &mut chance);
            after
                .inodes
                .insert(inode, Inode { now: content.clone(), durable: content, unsynced: Vec::new() });
        }
        after.names = names.clone();
        after.durable_names = names;
        after
    }

    pub fn new_inode(&mut self) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        inode
    }

    pub fn add_dir(&mut self, mut dir: Option<&Path>) {
        while let Some(d) = dir {
            self.dirs.insert(d.to_owned());
            dir = d.parent();
        }
    }

    /// Counts an operation; Ok(true) when the power goes during this one.
    pub fn begin_operation(&mut self) -> io::Result<bool> {
        if self.powered_off {
            self.refusals += 1;
            return Err(power_is_off());
        }
        let number = self.operations;
        self.operations += 1;
        self.powered_off = self.faults.power_off_at == Some(number);
        self.refusals += u64::from(self.powered_off);
        Ok(self.powered_off)
    }

    /// Counts a sync; an error when this one is to fail. Ok(false) when it only claims success.
    pub fn begin_sync(&mut self) -> io::Result<bool> {
        if self.begin_operation()? {
            return Err(power_is_off());
        }
        let number = self.syncs;
        self.syncs += 1;
        match self.faults.fail_sync_at {
            Some(at) if number == at || number > at && self.faults.fail_syncs_after => {
                self.refusals += 1;
                Err(io::Error::other("the sync failed"))
            }
            Some(at) => Ok(number < at),
            None => Ok(true),
        }
    }

    pub fn used_bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[inode].now.len() as u64).sum()
    }

    pub fn check_room(&mut self, inode: u64, len: usize) -> io::Result<()> {
        let Some(capacity) = self.faults.capacity_bytes else { return Ok(()) };
        let grows = len.saturating_sub(self.inodes[&inode].now.len()) as u64;
        if grows > 0 && self.used_bytes() + grows > capacity {
            self.refusals += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}
