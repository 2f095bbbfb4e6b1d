//! A node's packages on disk: manifest, blobs, verify, publish by rename, fetch from peers.
//!
//! ```text
//! <work-dir>/icp/<name>/<version>/        exactly the user's tree, read-only; the program's class path
//! <work-dir>/icp-store/descriptors/       <name>@<version>.json: the op, the manifest; written before the rename
//! <work-dir>/icp-store/staging/<op>/      what is being received: marker `op`, `tree/`, `parts/`, `before/`
//! <work-dir>/icp-store/trash/<op>/        what is being deleted: marker `op`, `tree/`
//! <work-dir>/icp-store/blobs/xx/<hash>    hard links to every verified file, by BLAKE3
//! ```
//!
//! A file is hashed while it is written, made durable, and linked into `blobs`. A package becomes visible by one
//! rename, after everything below it is durable and its descriptor says whose it is. It goes by one rename into
//! `trash`. A crash between any two steps leaves something the next start recognises by its op: nothing without
//! our mark is ever touched. A blob whose link count is 1 belongs to no tree and may go at any time; who wants it takes
//! a link first and looks at it then.
//!
//! Files that a user put under `icp` by hand become a package where they lie: [`adopt`].
//!
//! This crate knows nothing of the cluster: what should be here is `jobmaster`'s business.

pub mod adopt;
mod adopted_files;
pub mod descriptor;
pub mod digest;
pub mod error;
pub mod fetch;
mod fsx;
pub mod inspect;
pub mod layout;
pub mod manifest;
pub mod paths;
pub mod peer;
pub mod publish;
pub mod staging;
pub mod store;
pub mod sweep;
pub mod verify;
mod walk;

#[cfg(test)]
mod adopt_tests;
#[cfg(test)]
mod blob_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod inspect_tests;
#[cfg(test)]
mod staging_tests;

pub use adopt::GivenUp;
pub use descriptor::Descriptor;
pub use digest::Digest;
pub use error::StoreError;
pub use fetch::{FetchError, Fetcher, Wanted};
pub use inspect::{Finding, InspectError, Inspection};
pub use layout::Layout;
pub use manifest::{FileEntry, Manifest};
pub use paths::{PathError, check_path, check_tree};
pub use staging::{FileWriter, Sealed, Staging};
pub use store::{DiskState, OnDisk, PackageStore, StoreOptions};
pub use sweep::SweepReport;
pub use verify::{FileState, VerifyReport};

/// Named limits, each with the error a user gets.
pub mod limits {
    /// Files of one package: "has more than 4096 files".
    pub const MAX_FILES: usize = 4096;
    /// Bytes of a manifest as JSON: it must fit one value of the store with room to spare.
    pub const MAX_MANIFEST_BYTES: usize = 1024 * 1024;
    /// Bytes of one path inside a package.
    pub const MAX_PATH_BYTES: usize = 1024;
    /// Bytes of one part of a path: what file systems take.
    pub const MAX_PART_BYTES: usize = 255;
    /// Directories above a file.
    pub const MAX_DEPTH: usize = 64;
    /// Free space a node keeps for everybody else; a package that would eat it is refused.
    pub const DEFAULT_MIN_FREE_BYTES: u64 = 256 * 1024 * 1024;
}
