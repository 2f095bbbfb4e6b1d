//! What clients saw: calls with their times and outcomes, watches, runs and job processes. Checkers read it.
//!
//! Times are [`Duration`]s since the start of the seed (virtual in a simulation). A call that never returned has no
//! return time and an unknown outcome. [`RecordingKv`] records every call through a `Kv` by itself; what is not a
//! call of the store (runs, job processes) is handed to the [`Recorder`] by whoever does it.

mod kv;
mod recorder;
mod recording_kv;
mod runs;
mod watch;

pub use self::kv::{Failure, Input, Operation, Outcome, Reply};
pub use self::recorder::{Clock, History, Pending, Recorder, WatchId};
pub use self::recording_kv::RecordingKv;
pub use self::runs::{
    Answer, CopyOnNode, JobEvent, JobEventKind, PackageSeen, RunInput, RunOperation, RunOutcome,
};
pub use self::watch::{WatchHistory, WatchResponse, WatchWord};

use std::time::Duration;

/// A time, since the start of the seed.
pub type At = Duration;
