//! The bodies of requests and answers that no type of ours makes: what the description says of them. A test compares
//! real answers with it.

use std::collections::BTreeMap;

use records::packages::{NodePackage, PackageStatus, Preview, Refs};
use records::record::UnitState;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A refusal, of whatever status.
#[derive(Debug, ToSchema)]
pub struct Refused {
    /// What is wrong, where, what would be right; the first text is the one to show.
    pub errors: Vec<String>,
    /// A code for programs, where a node or a record said no: `EXISTS`, `IN_PROGRESS`, `REMOVING`, `NOT_EQUAL`,
    /// `UNIT_NOT_READY`, ...
    #[schema(required = false)]
    pub reason: Option<String>,
    /// Of a register: which file of which node is not as it should be.
    #[schema(required = false)]
    pub rows: Option<Vec<FileRow>>,
    /// How many rows more there would be.
    #[schema(required = false)]
    #[serde(rename = "rows-left-out")]
    pub rows_left_out: Option<u64>,
}

/// A package in a path.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct UnitPath {
    /// Its name: a letter or digit, then up to 127 letters, digits, dots, dashes, underscores.
    #[param(example = "mylib")]
    pub name: String,
    /// Its version, `latest` for the newest SemVer release where it is only looked at.
    #[param(example = "1.0.0")]
    pub version: String,
}

/// The files of a package, listed before any is sent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    /// At least one, at most 4096.
    pub files: Vec<ListedFile>,
}

/// A file of a list.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ListedFile {
    /// Its path in the package: relative, `/` between parts.
    #[schema(example = "lib/a.jar")]
    pub path: String,
    /// Its size.
    pub size: u64,
    /// BLAKE3 of its bytes: 64 hex digits.
    pub blake3: String,
}

/// The files of a package in a form: the file name of each part is its path in the package.
#[derive(Debug, ToSchema)]
pub struct FilesForm {
    /// One part a file, of any field name.
    #[schema(value_type = Vec<String>, content_media_type = "application/octet-stream")]
    pub file: Vec<Vec<u8>>,
}

/// A create that waits for files.
#[derive(Debug, ToSchema)]
pub struct Begun {
    /// The package's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// CREATING.
    pub status: String,
    /// The operation, for the calls about its files.
    pub op: String,
    /// BLAKE3 of the list.
    pub digest: String,
    /// The node that carries it.
    pub coordinator: String,
    /// What no node has.
    pub missing: Vec<MissingFile>,
}

/// A file that is to be sent.
#[derive(Debug, ToSchema)]
pub struct MissingFile {
    /// Its hash.
    pub blake3: String,
    /// Its size.
    pub size: u64,
    /// Bytes that are there already: send from here.
    pub received: u64,
}

/// What is still to be sent.
#[derive(Debug, ToSchema)]
pub struct Missing {
    /// The operation.
    pub op: String,
    /// What no node has.
    pub missing: Vec<MissingFile>,
}

/// Bytes that were taken.
#[derive(Debug, ToSchema)]
pub struct Received {
    /// The file.
    pub blake3: String,
    /// How many of its bytes are there: all of them means that they were verified.
    pub received: u64,
}

/// Packages.
#[derive(Debug, ToSchema)]
pub struct Packages {
    /// By name and version.
    pub packages: Vec<PackageStatus>,
}

/// A package after a register, with what each node found.
#[derive(Debug, ToSchema)]
pub struct Registered {
    /// The package.
    #[serde(flatten)]
    pub package: PackageStatus,
    /// One row a node: OK. A refusal has rows too, of what differs.
    pub rows: Vec<FileRow>,
}

/// One finding about one file on one node.
#[derive(Debug, ToSchema)]
pub struct FileRow {
    /// The node.
    pub node: String,
    /// The file; `*` is the whole package.
    pub file: String,
    /// OK, or what is wrong: MISSING, EXTRA, CORRUPT, DIFFERENT, UNREACHABLE, ...
    pub state: String,
    /// More about it.
    #[schema(required = false)]
    pub detail: Option<String>,
}

/// What every copy of a package is like, read anew.
#[derive(Debug, ToSchema)]
pub struct Checked {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its operation.
    pub op: String,
    /// BLAKE3 of its list of files.
    pub digest: Option<String>,
    /// Number of files.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// True if there is a copy and all are as they should be.
    pub clean: bool,
    /// One row for a copy that is fine, else one a file.
    pub rows: Vec<FileRow>,
    /// With `repair`: what becomes of the damaged copies.
    #[schema(required = false)]
    pub repair: Option<Vec<RepairRow>>,
}

/// What becomes of a damaged copy.
#[derive(Debug, ToSchema)]
pub struct RepairRow {
    /// The node.
    pub node: String,
    /// BEGUN, WAITING for running uses to end, or NONE.
    pub state: String,
    /// Uses that run on it.
    pub uses: u64,
}

/// A package that is on a node now.
#[derive(Debug, ToSchema)]
pub struct Pulled {
    /// The package's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its operation.
    pub op: String,
    /// The node.
    pub node: String,
    /// PRESENT.
    pub status: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// A removal that was begun; with `dry-run` what it would do, and nothing else.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum Removed {
    /// Begun, or going on.
    Begun(Removal),
    /// What it would do.
    DryRun(Preview),
}

/// A removal that was begun.
#[derive(Debug, ToSchema)]
pub struct Removal {
    /// The package's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// REMOVING or PURGING.
    pub status: UnitState,
    /// Its operation.
    pub op: String,
    /// Who it waits for, in words.
    pub holders: Vec<String>,
    /// Who it waits for.
    pub refs: Refs,
}

/// The packages of a node: the records, joined with its disk.
#[derive(Debug, ToSchema)]
pub struct NodePackages {
    /// The node.
    pub node: String,
    /// ALIVE, UNREACHABLE (registered, does not answer), OFFLINE.
    pub status: String,
    /// By name and version.
    pub packages: Vec<NodePackage>,
    /// Why its disk is not known.
    #[schema(rename = "disk-error")]
    pub disk_error: Option<String>,
}

/// What the reconcilers did last.
#[derive(Debug, ToSchema)]
pub struct Reconcilers {
    /// A row each.
    pub reconcilers: Vec<ReconcilerRow>,
    /// Processes that did not answer; not there with `local`.
    #[schema(required = false)]
    pub unreachable: Option<Vec<Unreachable>>,
}

/// A reconciler of a process.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub struct ReconcilerRow {
    /// Its process; not there with `local`.
    #[schema(required = false)]
    pub node: Option<String>,
    /// Its name.
    pub name: String,
    /// Rounds since the process started.
    pub rounds: u64,
    /// When the last one ended, ms since 1970; null before the first.
    pub last_run: Option<u64>,
    /// How long it took.
    pub took_ms: f64,
    /// The last round that did something.
    pub last_did: Option<RoundDone>,
    /// What all rounds since the start did, by kind.
    pub did: BTreeMap<String, u64>,
    /// The last error, even if a later round went well.
    pub last_error: Option<RoundError>,
}

/// What one round did.
#[derive(Debug, ToSchema)]
pub struct RoundDone {
    /// When it ended, ms since 1970.
    pub at: u64,
    /// How many of each kind.
    pub counts: BTreeMap<String, u64>,
}

/// An error of a reconciler.
#[derive(Debug, ToSchema)]
pub struct RoundError {
    /// When, ms since 1970.
    pub at: u64,
    /// In words.
    pub text: String,
}

/// A process that did not answer.
#[derive(Debug, ToSchema)]
pub struct Unreachable {
    /// Its name.
    pub node: String,
    /// `dispatcher` or `server`.
    pub role: String,
    /// Why.
    pub error: String,
}

/// Dispatchers and JobMaster processes.
#[derive(Debug, ToSchema)]
pub struct Nodes {
    /// Those that live.
    pub nodes: Vec<NodeRow>,
}

/// A live process.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub struct NodeRow {
    /// Its name.
    pub node: String,
    /// `dispatcher`, `jobmaster`.
    pub roles: Vec<String>,
    /// Always true.
    pub alive: bool,
    /// Whether an operator drains it: it gets no more jobs.
    pub draining: bool,
    /// Its registration.
    pub incarnation: i64,
    /// HOST:PORT of its REST front.
    pub rest_address: Option<String>,
    /// HOST:PORT of its node API.
    pub node_address: Option<String>,
    /// How much parallelism it takes.
    pub slots: u64,
    /// How much of it is free.
    pub free_slots: u64,
    /// Its program's version.
    pub version: String,
    /// The Java it found.
    pub java: Option<String>,
    /// `jobmanager.jobmaster.single.enable` of a dispatcher.
    pub single_enable: Option<bool>,
    /// Milliseconds since the epoch.
    pub started_at: u64,
}
