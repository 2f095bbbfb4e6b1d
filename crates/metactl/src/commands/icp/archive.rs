//! A package as one file: a tar archive. Its first entry, `package.json`, lists the files with sizes and BLAKE3
//! hashes; they follow under `files/`. Whatever is not listed, or not as listed, is refused.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::files::ListedFile;
use crate::exit::Failure;

/// Name of the first entry.
const LIST: &str = "package.json";
/// Where the files are in the archive.
const FILES: &str = "files/";
/// Version of the format.
const FORMAT: u32 = 1;
/// Longest list, in bytes.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// What is in an archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List {
    /// Version of the format.
    v: u32,
    /// The package's name where it comes from.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Digest of its manifest.
    pub digest: String,
    /// Its files.
    pub files: Vec<ListedFile>,
}

impl List {
    /// Of a package.
    pub fn new(name: &str, version: &str, digest: &str, files: Vec<ListedFile>) -> Self {
        Self { v: FORMAT, name: name.into(), version: version.into(), digest: digest.into(), files }
    }
}

/// An archive that is being written. It gets its name when it is whole; dropped before that, nothing is left of it.
pub struct Writer {
    builder: Option<tar::Builder<File>>,
    partial: PathBuf,
    target: PathBuf,
}

impl Writer {
    /// Begins it beside `target`, which must not be there yet.
    pub fn begin(target: &Path, list: &List) -> Result<Self, Failure> {
        if target.exists() {
            return Err(Failure::usage(format!("{} is there already: give another name", target.display())));
        }
        let mut name = target.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let file = File::create(&partial).map_err(|error| of(&partial, &error))?;
        let mut writer = Self { builder: Some(tar::Builder::new(file)), partial, target: target.to_owned() };
        let text = serde_json::to_vec_pretty(list).expect("a list is JSON");
        writer.append(LIST, text.len() as u64, text.as_slice())?;
        Ok(writer)
    }

    /// Adds a file from this machine.
    pub fn add(&mut self, file: &ListedFile) -> Result<(), Failure> {
        let bytes = File::open(&file.at).map_err(|error| of(&file.at, &error))?;
        self.append(&format!("{FILES}{}", file.path), file.size, BufReader::new(bytes))
    }

    /// Makes it durable and gives it its name.
    pub fn finish(mut self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| of(&self.partial, &error);
        let builder = self.builder.take().expect("it is finished once");
        let mut file = builder.into_inner().map_err(failed)?;
        file.flush().and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&self.partial, &self.target).map_err(failed)
    }

    fn append(&mut self, name: &str, size: u64, bytes: impl Read) -> Result<(), Failure> {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        let builder = self.builder.as_mut().expect("it is not finished yet");
        // Sets the checksum, and takes names that are longer than a header has room for.
        builder.append_data(&mut header, name, bytes).map_err(|error| of(&self.partial, &error))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After a finish it has another name.
        let _ = std::fs::remove_file(&self.partial);
    }
}

fn of(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

/// Reads an archive and puts its files into the directory `into`, under names of our own. Every byte is compared with
/// the list.
pub fn unpack(archive: &Path, into: &Path) -> Result<List, Failure> {
    let refuse = |why: String| Failure::usage(format!("{}: {why}", archive.display()));
    let broken = |error: std::io::Error| refuse(format!("not a whole tar archive: {error}"));
    let file = File::open(archive).map_err(|error| refuse(error.to_string()))?;
    let mut tar = tar::Archive::new(BufReader::new(file));
    let mut entries = tar.entries().map_err(broken)?;
    let first = entries.next().ok_or_else(|| refuse("it is empty".into()))?.map_err(broken)?;
    let mut list = read_list(first).map_err(refuse)?;
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for (number, file) in list.files.iter().enumerate() {
        if left.insert(file.path.clone(), number).is_some() {
            return Err(refuse(format!("{LIST} has {} twice", file.path)));
        }
    }
    for entry in entries {
        let mut entry = entry.map_err(broken)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let number = name.strip_prefix(FILES).and_then(|path| left.remove(path));
        let Some(number) = number.filter(|_| entry.header().entry_type() == tar::EntryType::Regular) else {
            return Err(refuse(format!("{name} is not in its {LIST}, or a second time, or no file")));
        };
        let listed = &mut list.files[number];
        listed.at = into.join(number.to_string());
        take(&mut entry, listed).map_err(refuse)?;
    }
    match left.into_keys().next() {
        Some(missing) => Err(refuse(format!("{missing} is missing: the archive is cut short"))),
        None => Ok(list),
    }
}

fn read_list(entry: impl Read) -> Result<List, String> {
    let mut text = Vec::new();
    entry.take(MAX_LIST_BYTES).read_to_end(&mut text).map_err(|error| error.to_string())?;
    let list: List = serde_json::from_slice(&text).map_err(|error| {
        format!(
            "it does not begin with the list of a package, so metactl icp export did not write it: {error}"
        )
    })?;
    if list.v != FORMAT {
        return Err(format!("format {} is not known to this metactl, which knows {FORMAT}", list.v));
    }
    Ok(list)
}

/// Writes an entry to where its file is to be.
fn take(entry: &mut impl Read, listed: &ListedFile) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", listed.path);
    let mut file = File::create_new(&listed.at).map_err(failed)?;
    let (mut hasher, mut size, mut chunk) = (blake3::Hasher::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        let read = entry.read(&mut chunk).map_err(failed)?;
        if read == 0 {
            break;
        }
        hasher.update(&chunk[..read]);
        size += read as u64;
        file.write_all(&chunk[..read]).map_err(failed)?;
    }
    if size != listed.size || hasher.finalize().to_hex().as_str() != listed.blake3 {
        return Err(format!("{} is damaged: its bytes are not those that are listed", listed.path));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(path: &str, bytes: &[u8], dir: &Path) -> ListedFile {
        let at = dir.join(path.replace('/', "_"));
        std::fs::write(&at, bytes).unwrap();
        let blake3 = blake3::hash(bytes).to_hex().to_string();
        ListedFile { path: path.into(), size: bytes.len() as u64, blake3, at }
    }

    fn write(target: &Path, list: &List, entries: &[&ListedFile]) {
        let mut writer = Writer::begin(target, list).unwrap();
        entries.iter().for_each(|file| writer.add(file).unwrap());
        writer.finish().unwrap();
    }

    fn refused(archive: &Path) -> String {
        let into = tempfile::tempdir().unwrap();
        let failure = unpack(archive, into.path()).unwrap_err();
        assert_eq!(failure.code, crate::exit::USAGE, "{failure}");
        failure.to_string()
    }

    #[test]
    fn what_is_written_is_read_and_names_are_as_long_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("{}/{}.jar", "d".repeat(120), "f".repeat(120));
        let files = vec![listed("a.jar", b"one", dir.path()), listed(&long, b"", dir.path())];
        let list = List::new("lib", "1.0", "d", files.clone());
        let target = dir.path().join("lib.tar");
        write(&target, &list, &files.iter().collect::<Vec<_>>());
        let into = tempfile::tempdir().unwrap();
        let read = unpack(&target, into.path()).unwrap();
        assert_eq!((read.name.as_str(), read.version.as_str(), read.files.len()), ("lib", "1.0", 2));
        assert_eq!(std::fs::read(&read.files[0].at).unwrap(), b"one");
        assert_eq!(read.files[1].path, long);
        assert!(Writer::begin(&target, &list).is_err(), "an archive is never overwritten");
        drop(Writer::begin(&dir.path().join("other.tar"), &list).unwrap());
        assert!(!dir.path().join("other.tar.partial").exists(), "nothing is left of half an archive");
    }

    #[test]
    fn what_is_not_as_listed_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (listed("a.jar", b"one", dir.path()), listed("../b.jar", b"two", dir.path()));
        let list = List::new("lib", "1.0", "d", vec![a.clone()]);
        let case = |name: &str, list: &List, entries: &[&ListedFile]| {
            let target = dir.path().join(name);
            write(&target, list, entries);
            refused(&target)
        };
        assert!(case("cut", &list, &[]).contains("a.jar is missing"));
        assert!(case("twice", &list, &[&a, &a]).contains("a second time"));
        let renamed = ListedFile { path: "b.jar".into(), ..b.clone() };
        assert!(case("more", &list, &[&a, &renamed]).contains("files/b.jar is not in its package.json"));
        let other = ListedFile { blake3: blake3::hash(b"other").to_hex().to_string(), ..a.clone() };
        let damaged = List { files: vec![other.clone()], ..list.clone() };
        assert!(case("damaged", &damaged, &[&other]).contains("a.jar is damaged"));
        let double = List { files: vec![a.clone(), a.clone()], ..list.clone() };
        assert!(case("double", &double, &[&a]).contains("has a.jar twice"));
        let newer = List { v: 2, ..list.clone() };
        assert!(case("newer", &newer, &[&a]).contains("format 2"));
        let no_tar = dir.path().join("no-tar");
        std::fs::write(&no_tar, "PK and more").unwrap();
        refused(&no_tar);
        refused(&dir.path().join("nosuch"));
    }
}
