//! `/icp/unit/<name>/<version>`: a package in the cluster.

use meta_client::{Extra, Record};
use serde::{Deserialize, Serialize};

use super::node::NodeRef;

/// Cluster state of a package; only forward for one `op`. No key = absent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UnitState {
    /// Reserved; nodes fetch and verify.
    Creating,
    /// Code may start on it.
    Ready,
    /// No new use; waits for the running ones.
    Removing,
    /// Nodes delete their copies at once.
    Purging,
}

/// How a package came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitOrigin {
    /// `icp create`.
    Icp,
    /// `icp register`: the files were on the nodes before; an abort leaves them there.
    Register,
    /// `/jars/upload`.
    Jar,
    /// A JAR sent along with a run: lives as long as its job can restart.
    Private,
}

/// How many of the targets must hold the package before it is READY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Every target that lives.
    #[default]
    All,
    /// More than half of the targets.
    Majority,
    /// So many of the targets.
    Copies(u32),
}

/// A package in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// The create operation it comes from: 32 hex digits. Another op under the same name is another package.
    pub op: String,
    /// Its state.
    pub state: UnitState,
    /// How it came about.
    pub origin: UnitOrigin,
    /// Who carries the create.
    pub coordinator: NodeRef,
    /// Raised by each take-over of the create; fences the former coordinator.
    pub epoch: u64,
    /// BLAKE3 of the manifest, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// True while the manifest is known and its bytes are still to come: targets wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uploading: bool,
    /// Bytes of all files.
    #[serde(default)]
    pub bytes: u64,
    /// Number of files.
    #[serde(default)]
    pub files: u64,
    /// How many targets must hold it.
    #[serde(default)]
    pub policy: Policy,
    /// Nodes that are to hold it.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Why it failed or is removed, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if the create itself was given up: registered files of the user then stay where they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// The request whose outcome is kept under `/icp/req`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// When it was reserved.
    #[serde(default)]
    pub created_at_ms: u64,
    /// Of a register: the directory on each target whose files are copied; none if they lie in the package's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Unit {}
