//! `/job/<jobId>`, `/job-owner/...` and `/job-cancel/...`: a job, who runs it, who wants it gone.

use std::collections::BTreeMap;

use meta_client::{Extra, Record};
use meta_types::Revision;
use serde::{Deserialize, Serialize};

use super::node::NodeRef;
use super::restart::{OnLostStore, RestartStrategy};
use super::run::{PackageRef, RestoreMode};
use crate::names::TriggerId;

/// A job's state, in Flink's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobState {
    /// Admitted; main() has not made it a job yet.
    Initializing,
    /// It runs.
    Running,
    /// It ran, lost its owner, and waits for the next attempt.
    Restarting,
    /// Its owner kills it.
    Cancelling,
    /// It ended well.
    Finished,
    /// It ended badly.
    Failed,
    /// It was cancelled.
    Canceled,
}

impl JobState {
    /// True if nothing will happen to it any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Canceled)
    }
    /// Flink's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "INITIALIZING",
            Self::Running => "RUNNING",
            Self::Restarting => "RESTARTING",
            Self::Cancelling => "CANCELLING",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }
}

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// A name for lists: the entry class, or the JAR's file.
    pub name: String,
    /// The package that holds the JAR.
    pub program: PackageRef,
    /// The JAR's path in that package.
    pub jar_file: String,
    /// Packages on the class path.
    #[serde(default)]
    pub class_path: Vec<PackageRef>,
    /// The class whose main() is run; none = the JAR's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_class: Option<String>,
    /// Arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Slots it takes.
    pub parallelism: u32,
    /// Savepoint to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub savepoint_path: Option<String>,
    /// How the savepoint is treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_mode: Option<RestoreMode>,
    /// Whether state that cannot be mapped is dropped.
    #[serde(default)]
    pub allow_non_restored_state: bool,
    /// Configuration of this job.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    /// What happens after a container is lost or main() failed.
    #[serde(default)]
    pub restart: RestartStrategy,
    /// What becomes of it while its node cannot reach the store.
    #[serde(default)]
    pub on_lost_store: OnLostStore,
}

/// Where the job should be claimed: a hint, the claim decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The node.
    pub node: String,
    /// Its incarnation.
    pub incarnation: Revision,
    /// When.
    #[serde(default)]
    pub at_ms: u64,
}

/// One start of main().
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// Where.
    pub owner: NodeRef,
    /// The owner's epoch.
    pub epoch: Revision,
    /// When it was started.
    pub started_at_ms: u64,
    /// True if main() certainly was not started: the guard could not be, or the job was given back before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_started: bool,
}

/// How a job ended, or why it was given up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code of the process, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// A word for programs: `MAIN_FAILED`, `OWNER_LOST`, `CANCELED`, `UNIT_NOT_READY`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Text for people: the last lines of its errors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What is run.
    pub spec: JobSpec,
    /// The run that admitted it.
    pub trigger: TriggerId,
    /// Its state.
    pub state: JobState,
    /// How often main() was started; also the number of the current or last start.
    #[serde(default)]
    pub attempt: u32,
    /// The last starts, newest last, at most [`Job::MAX_ATTEMPTS_KEPT`].
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// Where it should be claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
    /// Nodes that gave it back without having started it, since its last start, at most [`Job::MAX_UNFIT_KEPT`]: they
    /// are taken again only when no other fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<NodeRef>,
    /// What it waits for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// When main() made it a job; none = not yet. From then on the run is a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at_ms: Option<u64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The epoch of the last owner that gave the job back, with nothing of it running any more: its successor need not
    /// wait for any clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_epoch: Option<Revision>,
    /// Failures of main() that count against its restart strategy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The pause after the last of them, until the job is placed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Exit>,
    /// When it was admitted.
    pub admitted_at_ms: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<u64>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Job {}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Job {
    /// Starts that are remembered.
    pub const MAX_ATTEMPTS_KEPT: usize = 20;
    /// Nodes that are passed over.
    pub const MAX_UNFIT_KEPT: usize = 100;

    /// True if main() made it a job.
    pub fn is_created(&self) -> bool {
        self.created_at_ms.is_some()
    }
    /// How often main() was started, or may have been.
    pub fn main_starts(&self) -> u32 {
        let certainly_not = self.attempts.iter().filter(|attempt| attempt.not_started).count();
        self.attempt.saturating_sub(u32::try_from(certainly_not).unwrap_or(u32::MAX))
    }
    /// How often in a row, up to now, an attempt was counted and main() was not started.
    pub fn false_starts(&self) -> usize {
        self.attempts.iter().rev().take_while(|attempt| attempt.not_started).count()
    }
    /// True if main() may be started, for the first time or again.
    pub fn may_start(&self) -> bool {
        self.spec.restart != RestartStrategy::None || self.main_starts() == 0
    }
    /// True if the last attempt certainly left nothing that runs: its owner said so.
    pub fn ended_cleanly(&self) -> bool {
        self.attempts.last().is_none_or(|last| self.released_epoch == Some(last.epoch))
    }
    /// Every package it runs on, the program first.
    pub fn packages(&self) -> impl Iterator<Item = &PackageRef> {
        std::iter::once(&self.spec.program).chain(&self.spec.class_path)
    }
}

/// `/job-owner/<jobId>`: who runs the job, on that node's lease. Its create revision is the epoch, JOB_EPOCH. From the
/// start of main() on the owner of a job that is kept hangs on no lease: it goes when the job is over or given back, by
/// a boot of the same work directory, which knows what of it runs; or by force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOwner {
    /// The node.
    pub node: String,
    /// Its incarnation.
    pub incarnation: Revision,
    /// Slots of the node that it takes, so that the next claim there need not read the job.
    #[serde(default)]
    pub slots: u32,
    /// The node's work directory ([`super::Node::work_dir`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<String>,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for JobOwner {}

/// `/job-cancel/<jobId>`: somebody wants the job gone; its owner kills it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelIntent {
    /// Why: `cancel` or `run deleted`.
    pub reason: String,
    /// When.
    #[serde(default)]
    pub at_ms: u64,
    /// Fields of newer writers.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for CancelIntent {}
