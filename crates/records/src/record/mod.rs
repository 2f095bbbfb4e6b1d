//! The records: what lies under each key, one file a kind. Times in milliseconds are wall clock and only shown,
//! never compared: retention and liveness hang on leases.

mod copy;
mod job;
mod manifest;
mod misc;
mod node;
mod restart;
mod run;
mod unit;

pub use copy::{Copy, CopyState, Use};
pub use job::{Attempt, CancelIntent, Exit, Job, JobOwner, JobSpec, JobState, Placed};
pub use manifest::{Manifest, ManifestFile};
pub use misc::{Jar, NameHolder, Pin, Req, ReqOutcome};
pub use node::{Node, NodeDrain, NodeRef, Role};
pub use restart::{Backoff, OnLostStore, Restart, RestartStrategy};
pub use run::{
    FailureCause, PackageRef, Phase, RestoreMode, Run, RunOwner, RunResult, RunToken, StatedRequest, TokenEnd,
};
pub use unit::{Policy, Unit, UnitOrigin, UnitState};
