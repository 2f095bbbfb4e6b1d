//! The domain as clients and nodes saw it: runs over REST, job processes that started and ended, packages.

use meta_types::Revision;

use super::At;

/// One call about a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOperation {
    /// Who called.
    pub client: u64,
    /// When the call was made.
    pub call: At,
    /// When it returned; `None` if it never did.
    pub ret: Option<At>,
    /// The trigger id.
    pub trigger: String,
    /// What was asked.
    pub input: RunInput,
    /// What came of it.
    pub outcome: RunOutcome,
}

/// What was asked about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunInput {
    /// Submit it. Two requests with one fingerprint are equal in what they state.
    Post {
        /// Stands for all that the request states.
        fingerprint: String,
    },
    /// What became of it?
    Get,
    /// Delete it, cancelling what runs.
    Delete,
}

/// What came of a call about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// It was answered.
    Ok(Answer),
    /// It certainly did nothing (503, not sent).
    Failed(String),
    /// It may have been carried out.
    Unknown,
}

/// An answer about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// POST: 200, accepted now or before.
    Accepted,
    /// POST: 409, the trigger belongs to a request that states other things.
    OtherRequest,
    /// POST: 409, the run was deleted.
    WasDeleted,
    /// POST: refused for what it names (no such package, not ready, bad request): no record stays.
    Refused(String),
    /// GET: there, not completed.
    InProgress,
    /// GET: completed with this job.
    Completed {
        /// The job.
        job: String,
    },
    /// GET: completed without a job.
    RunFailed {
        /// The failure's class.
        class: String,
    },
    /// GET, DELETE: 404.
    NotFound,
    /// DELETE: 200, and nothing of it runs any more.
    Deleted,
    /// DELETE: 202, what runs is being cancelled; the run itself is deleted.
    Cancelling,
}

/// A job's process started or ended on a node. Recorded by the (simulated) node at the moment it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEvent {
    /// When.
    pub at: At,
    /// The node.
    pub node: String,
    /// The trigger whose run made the job.
    pub trigger: String,
    /// The job.
    pub job: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The owner's epoch the process was started under.
    pub epoch: Revision,
    /// What happened.
    pub kind: JobEventKind,
}

/// What happened to a job's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEventKind {
    /// main() was started.
    Started,
    /// It counts as a job from now on, so that its run may complete: told before the node reports it to the store.
    Created,
    /// It is gone: it ended by itself, was killed by its guard, or its machine died. From now on it does nothing.
    Ended,
}

/// A package as somebody saw it: the record at one revision, and what is on the nodes' disks at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageSeen {
    /// When.
    pub at: At,
    /// `name:version`.
    pub unit: String,
    /// True if its record is READY.
    pub ready: bool,
    /// Digest of its manifest, once it has one.
    pub digest: Option<String>,
    /// Its copies: one for each node with a row in the store or bytes on its disk.
    pub copies: Vec<CopyOnNode>,
}

/// A package on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOnNode {
    /// The node.
    pub node: String,
    /// True if the store says PRESENT for the node's current incarnation.
    pub present: bool,
    /// Digest of the bytes published on its disk; `None` if nothing is.
    pub on_disk: Option<String>,
}
