//! The last write of a job's life: state, exit, pins, owner and wishes in one transaction.

use std::collections::BTreeSet;

use meta_client::Stored;
use meta_types::LeaseId;

use crate::keys::{JobCancelKey, JobKey, PinKey};
use crate::names::JobId;
use crate::plan::Steps;
use crate::record::{Exit, Job, JobState};

/// How a job ends.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// A terminal state.
    pub state: JobState,
    /// The exit.
    pub exit: Exit,
    /// Set if main() made it a job in the same moment.
    pub created: bool,
    /// The lease the record lives on from now on; 0 = for ever.
    pub retention: LeaseId,
    /// Wall clock, shown only.
    pub now_ms: u64,
}

impl End {
    /// Nobody runs it, and nobody will.
    pub fn canceled(reason: &str, retention: LeaseId, now_ms: u64) -> Self {
        let exit = Exit { class: Some("CANCELED".into()), text: reason.into(), code: None, signal: None };
        Self { state: JobState::Canceled, exit, created: false, retention, now_ms }
    }
}

/// Adds the job's end to the steps; the caller adds the guard of its right to write.
pub(crate) fn terminate(steps: Steps, job: &JobId, found: &Stored<Job>, end: End) -> Steps {
    let key = JobKey::new(job);
    let mut record = found.value.clone();
    record.state = end.state;
    record.exit = Some(end.exit);
    record.ended_at_ms = Some(end.now_ms);
    record.waiting = None;
    record.pause_ms = None;
    if end.created && record.created_at_ms.is_none() {
        record.created_at_ms = Some(end.now_ms);
    }
    let pins: BTreeSet<PinKey> = found.packages().map(|package| PinKey::new(&package.unit, job)).collect();
    let steps = steps.unchanged(&key, found).put_leased(&key, &record, end.retention);
    let steps = pins.iter().fold(steps, |steps, pin| steps.delete(pin));
    steps.delete(&JobCancelKey::new(job))
}
