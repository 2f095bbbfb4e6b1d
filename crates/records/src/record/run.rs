//! `/run/<triggerId>`, `/run-owner/...` and `/run-token/...`: an asynchronous run operation.

use std::collections::BTreeMap;

use meta_client::{Extra, Record};
use meta_types::Revision;
use serde::{Deserialize, Serialize};

use crate::names::{JobId, UnitId};

/// How a job treats the savepoint it starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RestoreMode {
    /// It becomes the job's own.
    Claim,
    /// It stays the user's.
    NoClaim,
    /// As older Flinks did.
    Legacy,
}

/// A request as it was stated: query and body in one, before defaults and `latest`. Two requests of one triggerId
/// are equal if these are (the JAR by id or by digest).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatedRequest {
    /// The JAR's id, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jar_id: Option<String>,
    /// BLAKE3 of the JAR, sent along or found under its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jar_digest: Option<String>,
    /// The class whose main() is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_class: Option<String>,
    /// The program's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_args: Option<Vec<String>>,
    /// Parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// The job's id, if the client fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Whether state that cannot be mapped is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_non_restored_state: Option<bool>,
    /// The savepoint to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub savepoint_path: Option<String>,
    /// How the savepoint is treated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_mode: Option<RestoreMode>,
    /// Configuration of this job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flink_configuration: Option<BTreeMap<String, String>>,
    /// Packages on the class path, as stated (`NAME`, `NAME:VERSION`, `NAME:latest`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packages: Option<Vec<String>>,
}

/// A package of exactly one operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PackageRef {
    /// The package.
    pub unit: UnitId,
    /// Its operation.
    pub op: String,
}

/// Where a run is. All but `Completed` are IN_PROGRESS to Flink's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    /// Admitted.
    Accepted,
    /// A node is chosen and gets the packages.
    Staging,
    /// An owner starts main().
    Launching,
    /// The job is created.
    Submitted,
    /// It has a result.
    Completed,
}

/// Why a run made no job, as Flink's `failure-cause`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FailureCause {
    /// Class of the error.
    pub class: String,
    /// Text, possibly of several lines.
    pub stack_trace: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunResult {
    /// The job was created.
    Jobid(JobId),
    /// It was not.
    FailureCause(FailureCause),
}

/// An asynchronous run operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The request as stated.
    pub stated: StatedRequest,
    /// The package that holds the JAR.
    pub program: PackageRef,
    /// Packages on the class path, resolved.
    #[serde(default)]
    pub class_path: Vec<PackageRef>,
    /// The job, fixed at admission.
    pub job: JobId,
    /// Where it is.
    pub phase: Phase,
    /// How it ended; with phase COMPLETED only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
    /// How often main() was started.
    #[serde(default)]
    pub attempts: u32,
    /// What it waits for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// An inner run of the synchronous call, not listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// When it was admitted.
    pub accepted_at_ms: u64,
    /// The dispatcher that admitted it; empty in records of older writers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accepted_by: String,
    /// When it was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at_ms: Option<u64>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Run {}

/// `/run-owner/<triggerId>`: who drives the run, on that dispatcher's lease. Its create revision is the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOwner {
    /// The dispatcher.
    pub node: String,
    /// Its incarnation.
    pub incarnation: Revision,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for RunOwner {}

/// How a run that its token remembers ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenEnd {
    /// It was deleted; its id does not run again while the token lives.
    Deleted,
    /// It completed.
    Completed(RunResult),
}

/// `/run-token/<triggerId>`: what a finished or deleted run was, longer than the run itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunToken {
    /// The request as stated.
    pub stated: StatedRequest,
    /// The job.
    pub job: JobId,
    /// How it ended.
    pub end: TokenEnd,
    /// When it was completed, or deleted.
    pub ended_at_ms: u64,
    /// When it was admitted; 0 in records of older writers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub accepted_at_ms: u64,
    /// The dispatcher that admitted it; empty in records of older writers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accepted_by: String,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for RunToken {}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
