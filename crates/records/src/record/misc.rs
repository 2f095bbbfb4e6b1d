//! Small records around packages: pins, name holders, request outcomes, Flink's jar ids.

use meta_client::{Extra, Record};
use serde::{Deserialize, Serialize};

use crate::names::{TriggerId, UnitId};

/// `/icp/pin/<name>/<version>/<job>`: an admitted job may start, and start again, on the package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The package's operation.
    pub op: String,
    /// The run that admitted the job.
    pub trigger: TriggerId,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Pin {}

/// `/icp/name/<lower-case name>`: the exact name that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameHolder {
    /// The exact name.
    pub name: String,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for NameHolder {}

/// How a request about a package ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", tag = "outcome", content = "reason")]
pub enum ReqOutcome {
    /// Still going on.
    Running,
    /// Done.
    Ok,
    /// Failed, and why.
    Failed(String),
}

/// `/icp/req/<requestId>`: what a request was about and how it ended, so that a retry gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Req {
    /// What was asked: `create`, `register`, `remove`, `force-remove`.
    pub kind: String,
    /// About which package.
    pub unit: UnitId,
    /// The package's operation.
    pub op: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: ReqOutcome,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Req {}

/// `/jar/<jarId>`: Flink's jar id and the package that holds the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jar {
    /// The package.
    pub unit: UnitId,
    /// The package's operation.
    pub op: String,
    /// The base name as uploaded.
    pub file_name: String,
    /// BLAKE3 of the JAR, hex: two uploads of one JAR are one in a run's comparison.
    pub digest: String,
    /// When it was uploaded.
    pub uploaded_at_ms: u64,
    /// Entry classes found in its manifest.
    #[serde(default)]
    pub entry_classes: Vec<String>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Jar {}
