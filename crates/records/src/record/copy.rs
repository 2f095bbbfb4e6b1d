//! `/icp/node/<name>/<version>/<node>` and `/icp/use/...`: a node's copy of a package, and who runs on it.

use meta_client::{Extra, Record};
use meta_types::Revision;
use serde::{Deserialize, Serialize};

/// State of one node's copy. No key = absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CopyState {
    /// Being fetched and verified.
    Fetching,
    /// Verified and published.
    Present,
    /// Could not be fetched; `error` says why.
    Failed,
    /// No new use starts; deleted when the running ones end.
    Draining,
    /// Later found damaged; will be fetched again.
    Corrupt,
}

/// One node's copy of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// The package's operation.
    pub op: String,
    /// Its state.
    pub state: CopyState,
    /// The node's incarnation when it last wrote this.
    pub incarnation: Revision,
    /// Bytes verified so far.
    #[serde(default)]
    pub bytes_done: u64,
    /// Of a register: digest of what the node found in its directory (FETCHING), or took over (PRESENT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Running uses, while draining.
    #[serde(default)]
    pub uses: u64,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A disk of the node is full, which is what went wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disk_full: bool,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Copy {}

/// A running use of a copy, on the node's lease. The usage count of a package on a node is the number of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The package's operation.
    pub op: String,
    /// The node's incarnation.
    pub incarnation: Revision,
    /// The attempt of the job that is the holder.
    #[serde(default)]
    pub attempt: u32,
    /// Since when.
    #[serde(default)]
    pub since_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Use {}
