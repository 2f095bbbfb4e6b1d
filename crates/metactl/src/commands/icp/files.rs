//! The files of a package on this machine: their paths in the package, sizes and hashes.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use reqwest::multipart::Part;
use serde::{Deserialize, Serialize};
use tokio_util::io::ReaderStream;

use crate::exit::Failure;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file as dispatchers and nodes know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListedFile {
    /// Its path in the package.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of its bytes, hex.
    pub blake3: String,
    /// Where it lies here.
    #[serde(skip)]
    pub at: PathBuf,
}

/// Hashes every file.
pub async fn list(files: BTreeMap<String, PathBuf>) -> Result<Vec<ListedFile>, Failure> {
    let hashing = tokio::task::spawn_blocking(move || {
        files.iter().map(|(path, at)| hash(path, at, || ())).collect::<Result<Vec<_>, _>>()
    });
    hashing.await.map_err(|error| Failure::failed(error.to_string()))?
}

/// Size and hash of one file. `after` is called when it is read, before it is looked at again.
fn hash(path: &str, at: &Path, after: impl FnOnce()) -> Result<ListedFile, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", at.display()));
    let mut file = File::open(at).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    let (mut hasher, mut size, mut chunk) = (blake3::Hasher::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        let read = file.read(&mut chunk).map_err(failed)?;
        if read == 0 {
            break;
        }
        hasher.update(&chunk[..read]);
        size += read as u64;
    }
    after();
    let now = file.metadata().map_err(failed)?;
    let state = |of: &std::fs::Metadata| (of.len(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
    if state(&before) != state(&now) || size != now.len() {
        return Err(Failure::failed(format!("{} changed while it was read: try again", at.display())));
    }
    let blake3 = hasher.finalize().to_hex().to_string();
    Ok(ListedFile { path: path.to_owned(), size, blake3, at: at.to_owned() })
}

/// A file as a part of a form, streamed from disk, so that a large one is never in memory.
pub async fn file_part(path: &Path, name: String) -> Result<Part, Failure> {
    let shown = path.display();
    let file =
        tokio::fs::File::open(path).await.map_err(|error| Failure::failed(format!("{shown}: {error}")))?;
    let length = file.metadata().await?.len();
    Ok(Part::stream_with_length(reqwest::Body::wrap_stream(ReaderStream::new(file)), length).file_name(name))
}

/// Every file by its path in the package; two of one path are an error.
pub fn collect(paths: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut files = BTreeMap::new();
    for path in paths {
        let base = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(Path::new("")) };
        let mut found = Vec::new();
        walk(path, &mut found)?;
        for file in found {
            let inside = file.strip_prefix(base).unwrap_or(&file);
            let name = inside
                .to_str()
                .ok_or_else(|| Failure::usage(format!("{}: not UTF-8", file.display())))?
                .to_owned();
            if files.insert(name.clone(), file).is_some() {
                return Err(Failure::usage(format!("two files would be {name} in the package")));
            }
        }
    }
    Ok(files)
}

fn walk(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<_> =
        std::fs::read_dir(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::path);
    entries.iter().try_for_each(|entry| walk(&entry.path(), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_tree_and_a_file_its_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/c.jar"), "c").unwrap();
        std::fs::write(dir.path().join("d.jar"), "d").unwrap();
        let all = collect(&[dir.path().to_owned()]).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a/b/c.jar", "d.jar"]);
        let one = collect(&[dir.path().join("a/b/c.jar")]).unwrap();
        assert_eq!(one.keys().collect::<Vec<_>>(), ["c.jar"]);
        assert!(collect(&[dir.path().to_owned(), dir.path().join("d.jar")]).is_err());
        assert!(collect(&[dir.path().join("nosuch")]).is_err());
    }

    #[test]
    fn files_are_hashed_and_a_changed_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("d.jar");
        std::fs::write(&at, "d").unwrap();
        let listed = hash("d.jar", &at, || ()).unwrap();
        assert_eq!((listed.size, listed.blake3), (1, blake3::hash(b"d").to_hex().to_string()));
        let changed = hash("d.jar", &at, || std::fs::write(&at, "dd").unwrap()).unwrap_err();
        assert!(changed.to_string().contains("d.jar changed while it was read"), "{changed}");
    }
}
