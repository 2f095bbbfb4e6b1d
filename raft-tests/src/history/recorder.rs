//! Collects what is seen. Cheap to clone; every clone writes into one history.

use std::sync::Arc;

use meta_client::WatchRequest;
use meta_types::Revision;
use parking_lot::Mutex;

use super::{
    At, Input, JobEvent, Operation, Outcome, PackageSeen, RunOperation, WatchHistory, WatchResponse,
    WatchWord,
};

/// Everything that was seen, in order of the calls.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Calls of the store.
    pub operations: Vec<Operation>,
    /// Watches.
    pub watches: Vec<WatchHistory>,
    /// Calls about runs.
    pub runs: Vec<RunOperation>,
    /// Job processes.
    pub jobs: Vec<JobEvent>,
    /// Packages.
    pub packages: Vec<PackageSeen>,
}

/// A call whose return is not recorded yet. Dropping it leaves the outcome unknown.
#[derive(Debug)]
#[must_use]
pub struct Pending(usize);

/// A watch in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchId(usize);

/// The time since a fixed start by `tokio`'s clock, which a simulation or a paused runtime drives.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: tokio::time::Instant,
    grain: At,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self::with_grain(At::ZERO)
    }

    /// The same where the clocks of two clients may differ by up to `grain`, as within a step of a simulation.
    pub fn with_grain(grain: At) -> Self {
        Self { start: tokio::time::Instant::now(), grain }
    }

    /// The time since then.
    pub fn now(&self) -> At {
        self.start.elapsed()
    }

    /// The time to note for a call that begins: what returned before it, by whichever clock, did so before it.
    pub fn called(&self) -> At {
        self.now().saturating_sub(self.grain)
    }
}

/// Collects a history, see the module.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was recorded so far.
    pub fn history(&self) -> History {
        self.history.lock().clone()
    }

    /// What was recorded, leaving nothing behind.
    pub fn take(&self) -> History {
        std::mem::take(&mut *self.history.lock())
    }

    /// A call is made. Until its return is recorded, its outcome is unknown.
    pub fn call(&self, client: u64, call: At, input: Input) -> Pending {
        let operations = &mut self.history.lock().operations;
        operations.push(Operation { client, call, ret: None, input, outcome: Outcome::Unknown });
        Pending(operations.len() - 1)
    }

    /// It returned.
    pub fn returned(&self, pending: Pending, ret: At, outcome: Outcome) {
        let operation = &mut self.history.lock().operations[pending.0];
        operation.ret = Some(ret);
        operation.outcome = outcome;
    }

    /// A watch is asked for.
    pub fn watch(&self, client: u64, asked: At, request: WatchRequest) -> WatchId {
        let watches = &mut self.history.lock().watches;
        watches.push(WatchHistory { client, asked, request, created: None, responses: Vec::new() });
        WatchId(watches.len() - 1)
    }

    /// It was created.
    pub fn watch_created(&self, id: WatchId, at: At, revision: Revision) {
        self.history.lock().watches[id.0].created = Some((at, revision));
    }

    /// Something came.
    pub fn watch_response(&self, id: WatchId, at: At, word: WatchWord) {
        self.history.lock().watches[id.0].responses.push(WatchResponse { at, word });
    }

    /// A call about a run, once its outcome is known (or is known to stay unknown).
    pub fn run(&self, operation: RunOperation) {
        self.history.lock().runs.push(operation);
    }

    /// A job's process started or ended.
    pub fn job(&self, event: JobEvent) {
        self.history.lock().jobs.push(event);
    }

    /// A package was looked at.
    pub fn package(&self, seen: PackageSeen) {
        self.history.lock().packages.push(seen);
    }
}
