//! Why a JobMaster stops.

use std::time::Duration;

use meta_types::Revision;
use records::keys::{JobCancelKey, JobOwnerKey, UnitKey};
use records::nodes::is_draining;
use records::record::{Exit, Job, JobState, PackageRef, UnitState};
use records::{Class, JobId, Refusal, View};

use crate::engines::failure;

/// Why a job is not supervised any further.
#[derive(Debug)]
pub enum Halt {
    /// The right to write is gone: another owner, or none, decides.
    Fenced(String),
    /// Somebody wants it gone.
    Cancelled(String),
    /// It is over.
    Over {
        /// How.
        state: JobState,
        /// In detail.
        exit: Exit,
        /// Whether main() had made it a job.
        created: bool,
    },
    /// main() failed; its strategy says whether it starts again.
    MainFailed {
        /// In detail.
        exit: Exit,
        /// Whether main() had made it a job.
        created: bool,
        /// How long the attempt ran.
        ran: Duration,
    },
    /// It goes on elsewhere.
    Released(String),
}

impl Halt {
    /// The job failed.
    pub fn failed(exit: Exit, created: bool) -> Self {
        Self::Over { state: JobState::Failed, exit, created }
    }
}

impl Halt {
    /// The same, of a job that main() had made one by then.
    pub fn with_created(self, is_created: bool) -> Self {
        match self {
            Self::Over { state, exit, created } => Self::Over { state, exit, created: created || is_created },
            other => other,
        }
    }
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        match refusal.class {
            Class::Fenced | Class::NotFound => Self::Fenced(refusal.text),
            Class::UnitNotReady => Self::failed(failure("UNIT_NOT_READY", refusal.text), false),
            // A wish to cancel (told by the record, see `or_cancelled`), a second start that the strategy forbids, a
            // record of a newer version: without an owner, others decide.
            _ => Self::Released(refusal.text),
        }
    }
}

/// Why the records say that this owner is to stop, if they do. `may_move`: main() was not started yet, or may start
/// again.
pub fn look(view: &View, id: &JobId, epoch: Revision, job: &Job, may_move: bool) -> Option<Halt> {
    // A view from before the claim says nothing about it.
    if view.revision() < epoch {
        return None;
    }
    let owner = view.get(&JobOwnerKey::new(id)).ok()?;
    let Some(owner) = owner.filter(|owner| owner.create_revision == epoch) else {
        return Some(Halt::Fenced(format!("epoch {} is over", epoch)));
    };
    if let Some(intent) = view.get(&JobCancelKey::new(id)).ok()? {
        return Some(Halt::Cancelled(intent.value.reason));
    }
    let forced = |package: &&PackageRef| match view.get(&UnitKey::new(&package.unit)) {
        Ok(Some(unit)) => unit.op != package.op || unit.state == UnitState::Purging,
        Ok(None) => true,
        Err(_) => false,
    };
    if let Some(package) = job.packages().find(forced) {
        let text = format!("package {} was removed by force", package.unit);
        return Some(Halt::failed(failure("PACKAGE_REMOVED", text), false));
    }
    let is_drained = may_move && is_draining(view, &owner.node).unwrap_or(false);
    is_drained.then(|| Halt::Released(format!("node {} is being drained", owner.node)))
}
