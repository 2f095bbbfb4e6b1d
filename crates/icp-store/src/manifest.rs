//! What a package consists of: its files, sorted by path, each with size and hash; and the digest of that list.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::StoreError;
use crate::limits::{MAX_FILES, MAX_MANIFEST_BYTES};
use crate::paths::check_tree;

/// One file of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative path, `/` between parts.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Hash of its bytes.
    pub blake3: Digest,
}

/// The files of a package. Two packages are the same exactly if their digests are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<FileEntry>", into = "Vec<FileEntry>")]
pub struct Manifest {
    files: Vec<FileEntry>,
}

impl Manifest {
    /// Checks the paths and sorts the files.
    pub fn new(mut files: Vec<FileEntry>) -> Result<Self, StoreError> {
        if files.is_empty() {
            return Err(StoreError::Limit("a package needs at least one file".into()));
        }
        if files.len() > MAX_FILES {
            return Err(StoreError::Limit(format!("the package has more than {MAX_FILES} files")));
        }
        check_tree(files.iter().map(|f| f.path.as_str()))?;
        check_sizes(&files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Self { files };
        if manifest.to_json().len() > MAX_MANIFEST_BYTES {
            return Err(StoreError::Limit(format!(
                "the package's list of files is over {MAX_MANIFEST_BYTES} bytes"
            )));
        }
        Ok(manifest)
    }

    /// The files in order of their paths.
    pub fn files(&self) -> &[FileEntry] {
        &self.files
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, f| sum.saturating_add(f.size))
    }

    /// The package's identity. It is taken over a fixed binary form, so it never depends on how JSON is spelled.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"icp-manifest-1\0");
        for file in &self.files {
            hasher.update(&(file.path.len() as u32).to_le_bytes());
            hasher.update(file.path.as_bytes());
            hasher.update(&file.size.to_le_bytes());
            hasher.update(&file.blake3.0);
        }
        hasher.finalize().into()
    }

    /// As JSON: an array of files.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a list of plain structs always serialises")
    }
}

/// A hash has one size, and only the hash of nothing has none: files that no bytes can make are refused.
fn check_sizes(files: &[FileEntry]) -> Result<(), StoreError> {
    let mut sizes = HashMap::from([(Digest::of(b""), 0)]);
    for FileEntry { path, size, blake3 } in files {
        let known = *sizes.entry(*blake3).or_insert(*size);
        if known != *size || (*size == 0 && *blake3 != Digest::of(b"")) {
            let why = format!("{path:?} cannot have {size} bytes and hash {blake3}");
            return Err(StoreError::Limit(why));
        }
    }
    Ok(())
}

impl TryFrom<Vec<FileEntry>> for Manifest {
    type Error = StoreError;

    fn try_from(files: Vec<FileEntry>) -> Result<Self, StoreError> {
        Self::new(files)
    }
}

impl From<Manifest> for Vec<FileEntry> {
    fn from(manifest: Manifest) -> Self {
        manifest.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, content: &[u8]) -> FileEntry {
        FileEntry { path: path.into(), size: content.len() as u64, blake3: Digest::of(content) }
    }

    #[test]
    fn the_digest_ignores_order_and_sees_everything_else() {
        let a = Manifest::new(vec![entry("b", b"2"), entry("a/x", b"1")]).unwrap();
        let b = Manifest::new(vec![entry("a/x", b"1"), entry("b", b"2")]).unwrap();
        assert_eq!(a.digest(), b.digest());
        for other in [
            vec![entry("a/x", b"1"), entry("b", b"3")],
            vec![entry("a/y", b"1"), entry("b", b"2")],
            vec![entry("a/x", b"1")],
        ] {
            assert_ne!(Manifest::new(other).unwrap().digest(), a.digest());
        }
    }

    #[test]
    fn the_digest_is_pinned() {
        let manifest = Manifest::new(vec![entry("lib/a.jar", b"hello")]).unwrap();
        assert_eq!(
            manifest.digest().to_string(),
            "d193e1be59790dec2bdfba4da180a0a2263294f9bbd050dcd1d61f5919260660"
        );
    }

    #[test]
    fn files_that_no_bytes_can_make_are_refused() {
        let of = |path: &str, size, content: &[u8]| FileEntry { size, ..entry(path, content) };
        for files in
            [vec![of("a", 1, b"")], vec![of("a", 0, b"1")], vec![of("a", 3, b"123"), of("b", 4, b"123")]]
        {
            let refused = Manifest::new(files).unwrap_err().to_string();
            assert!(refused.contains("cannot have"), "{refused}");
        }
        Manifest::new(vec![of("a", 0, b""), of("b", 3, b"123"), of("c", 3, b"123"), of("d", 0, b"")])
            .unwrap();
    }

    #[test]
    fn json_from_a_peer_is_checked() {
        let good = Manifest::new(vec![entry("a", b"1")]).unwrap();
        assert_eq!(serde_json::from_slice::<Manifest>(&good.to_json()).unwrap(), good);
        let hostile = String::from_utf8(good.to_json()).unwrap().replace("\"a\"", "\"../a\"");
        assert!(serde_json::from_str::<Manifest>(&hostile).is_err());
        assert!(serde_json::from_str::<Manifest>("[]").is_err());
    }
}
