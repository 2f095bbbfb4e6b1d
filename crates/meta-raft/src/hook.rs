//! What the replica is told of every applied entry: the feed of its watch hub.

use meta_core::EntryPosition;
use meta_types::{Revision, RevisionEvents};

/// One applied batch.
#[derive(Debug)]
pub struct AppliedBatch {
    /// Its entry.
    pub at: EntryPosition,
    /// The store's revision after it.
    pub revision: Revision,
    /// The compact revision after it.
    pub compact_revision: Revision,
    /// What changed, by revision, ascending; empty if nothing did.
    pub events: Vec<RevisionEvents>,
}

/// Follows the state in log order. Called by one task, under no lock, after the state shows what is reported;
/// must not block. Nothing is reported for the state a replica starts with.
pub trait ApplyHook: Send + Sync + 'static {
    /// These batches were applied.
    fn applied(&self, batches: Vec<AppliedBatch>);

    /// The state was replaced by a peer's checkpoint: revisions between the last reported one and `revision` were
    /// not reported. Those above `compact_revision` can be read from the state's history, the others are gone.
    fn jumped(&self, revision: Revision, compact_revision: Revision);
}

/// For tests and tools that watch nothing.
#[derive(Debug, Default)]
pub struct NoHook;

impl ApplyHook for NoHook {
    fn applied(&self, _: Vec<AppliedBatch>) {}
    fn jumped(&self, _: Revision, _: Revision) {}
}
