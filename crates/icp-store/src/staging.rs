//! Receiving a package: files are hashed while they are written, durable when they are finished, and only a whole
//! verified tree can be published.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::fsx;
use crate::layout::{MARKER, check_id};
use crate::limits::MAX_FILES;
use crate::manifest::{FileEntry, Manifest};
use crate::paths::Tree;
use crate::store::PackageStore;

/// A file on its way to or from the blobs.
const RELINK: &str = "relink";
/// How often a blob may be collected under our hands before something else must be wrong.
const LINK_TRIES: usize = 100;

/// One operation's receiving directory. Dropping it leaves the directory for a resumed fetch or for the sweep.
#[derive(Debug)]
pub struct Staging {
    pub(crate) store: PackageStore,
    pub(crate) op: String,
    pub(crate) dir: PathBuf,
    tree: Tree,
    files: Vec<FileEntry>,
}

/// A file being received.
#[derive(Debug)]
pub struct FileWriter {
    path: String,
    at: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    size: u64,
}

/// A part of a file that is being received and may be resumed: its bytes are hashed when it is whole.
#[derive(Debug)]
pub struct PartWriter {
    at: PathBuf,
    file: File,
}

impl PartWriter {
    /// Goes on at the end of the part, if there is one.
    pub fn open(part: &Path) -> Result<Self, StoreError> {
        let file = File::options().create(true).append(true).open(part);
        Ok(Self { at: part.to_owned(), file: file.map_err(fsx::context("open", part))? })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(fsx::context("write", &self.at))
    }
}

/// A complete, verified, durable tree that is not visible yet.
#[derive(Debug)]
pub struct Sealed {
    pub(crate) store: PackageStore,
    pub(crate) op: String,
    pub(crate) dir: PathBuf,
    /// Its files.
    pub manifest: Manifest,
}

impl Staging {
    /// Opens the directory of `op`. A tree left by an earlier try goes; its finished files stay as blobs and its
    /// parts stay, so that nothing verified is fetched twice.
    pub(crate) fn open(store: &PackageStore, op: &str) -> Result<Self, StoreError> {
        check_id(op)?;
        let dir = store.layout().staging().join(op);
        fsx::create_dirs(&dir)?;
        fsx::write_atomically(&dir.join(MARKER), op.as_bytes())?;
        fsx::delete_tree(&dir.join("tree"))?;
        let _ = fs::remove_file(dir.join(RELINK));
        fsx::create_dirs(&dir.join("tree"))?;
        fsx::create_dirs(&dir.join("parts"))?;
        Ok(Self { store: store.clone(), op: op.into(), dir, tree: Tree::default(), files: Vec::new() })
    }

    /// Starts a file; its path is checked against those before it.
    pub fn create_file(&mut self, path: &str) -> Result<FileWriter, StoreError> {
        let at = self.claim(path)?;
        let file = fsx::create_new(&at)?;
        Ok(FileWriter { path: path.into(), at, file, hasher: blake3::Hasher::new(), size: 0 })
    }

    /// Makes a finished file part of the package.
    pub fn add(&mut self, writer: FileWriter) -> Result<FileEntry, StoreError> {
        let (entry, at) = writer.finish()?;
        self.link_blob(&at, &entry)?;
        self.files.push(entry.clone());
        Ok(entry)
    }

    /// Takes a file from the blobs if a blob of that hash is here and still has the right bytes.
    pub fn reuse(&mut self, entry: &FileEntry) -> Result<bool, StoreError> {
        let (blob, taken) = (self.store.layout().blob(&entry.blake3), self.dir.join(RELINK));
        // Taken before it is read: another operation may collect it at any time.
        match fsx::link_or_copy(&blob, &taken) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.copy_adopted(entry),
            linked => linked.map_err(fsx::context("link", &blob))?,
        }
        if !is_good(&taken, entry) {
            fs::remove_file(&taken).map_err(fsx::context("delete", &taken))?;
            return self.copy_adopted(entry);
        }
        let at = self.claim(&entry.path)?;
        fs::rename(&taken, &at).map_err(fsx::context("rename into", &at))?;
        self.files.push(entry.clone());
        Ok(true)
    }

    /// Where the bytes of a file being fetched go until they are whole.
    pub fn part(&self, entry: &FileEntry) -> PathBuf {
        self.dir.join("parts").join(entry.blake3.to_string())
    }

    /// Takes a whole fetched part, after verifying each byte; a wrong one is deleted.
    pub fn add_part(&mut self, entry: &FileEntry) -> Result<(), StoreError> {
        let part = self.part(entry);
        let (size, found) = fsx::hash_file(&part)?;
        if found != entry.blake3 || size != entry.size {
            fs::remove_file(&part).map_err(fsx::context("delete", &part))?;
            return Err(StoreError::Hash { path: entry.path.clone(), expected: entry.blake3, found });
        }
        let at = self.claim(&entry.path)?;
        File::open(&part).and_then(|f| f.sync_all()).map_err(fsx::context("sync", &part))?;
        fsx::set_mode(&part, 0o444)?;
        fs::rename(&part, &at).map_err(fsx::context("rename into", &at))?;
        self.link_blob(&at, entry)?;
        self.files.push(entry.clone());
        Ok(())
    }

    /// Gives a verified file its name among the blobs. If a good blob is there already, the file becomes a link to
    /// it; a damaged one is replaced. Another operation that ends meanwhile collects what nobody links to: the shelf or
    /// the blob may go between two steps, and then it is done again.
    fn link_blob(&self, at: &Path, entry: &FileEntry) -> Result<(), StoreError> {
        let blob = self.store.layout().blob(&entry.blake3);
        let mut tries = 0;
        loop {
            if let Some(shelf) = blob.parent() {
                fsx::create_dirs(shelf)?;
            }
            match self.try_link_blob(at, &blob, entry) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries < LINK_TRIES => tries += 1,
                done => return done.map_err(fsx::context("link", &blob)),
            }
        }
    }

    fn try_link_blob(&self, at: &Path, blob: &Path, entry: &FileEntry) -> io::Result<()> {
        match fsx::link_or_copy(at, blob) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done,
        }
        let taken = self.dir.join(RELINK);
        fsx::link_or_copy(blob, &taken)?;
        if is_good(&taken, entry) {
            fs::rename(&taken, at)?;
        } else {
            fs::remove_file(&taken)?;
            fsx::link_or_copy(at, &taken)?;
            fs::rename(&taken, blob).inspect_err(|_| drop(fs::remove_file(&taken)))?;
        }
        // Renaming one link of a file over another link of it does nothing and leaves both names.
        match fs::remove_file(&taken) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn claim(&mut self, path: &str) -> Result<PathBuf, StoreError> {
        if self.files.len() >= MAX_FILES {
            return Err(StoreError::Limit(format!("the package has more than {MAX_FILES} files")));
        }
        self.tree.add(path)?;
        let at = self.dir.join("tree").join(path);
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent).map_err(fsx::context("create", parent))?;
        }
        Ok(at)
    }

    /// Makes the tree durable. From here on it can be published.
    pub fn seal(self) -> Result<Sealed, StoreError> {
        let manifest = Manifest::new(self.files)?;
        let tree = self.dir.join("tree");
        fsx::sync_dirs_below(&tree)?;
        fsx::sync_dir(&self.dir)?;
        Ok(Sealed { store: self.store, op: self.op, dir: self.dir, manifest })
    }

    /// Gives up: deletes what was received.
    pub fn discard(self) -> Result<(), StoreError> {
        fsx::delete_tree(&self.dir)?;
        self.store.collect_blobs()
    }
}

impl FileWriter {
    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(fsx::context("write", &self.at))?;
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn finish(self) -> Result<(FileEntry, PathBuf), StoreError> {
        self.file.sync_all().map_err(fsx::context("sync", &self.at))?;
        fsx::set_mode(&self.at, 0o444)?;
        let blake3 = self.hasher.finalize().into();
        Ok((FileEntry { path: self.path, size: self.size, blake3 }, self.at))
    }
}

/// True if the blob has the bytes its name says. It is read: a damaged blob must not spread.
pub(crate) fn is_good(blob: &Path, entry: &FileEntry) -> bool {
    fs::metadata(blob).is_ok_and(|m| m.len() == entry.size)
        && fsx::hash_file(blob).is_ok_and(|(size, hash)| size == entry.size && hash == entry.blake3)
}
