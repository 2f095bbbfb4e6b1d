//! What a replica starts from: the newest checkpoint that is whole and whose next entry is still in the log.
//!
//! | found | then |
//! |---|---|
//! | the newest generation is good | it, and the log after it |
//! | it is damaged, the one before is good | that one: the log is purged only up to the older of the two |
//! | none usable, nothing ever purged | an empty state, and the whole log |
//! | none usable, log purged | vote and log are kept; a peer's checkpoint at or above the purge point, before openraft runs |
//! | an identity with a cluster, but no log directory | refused: whoever promised something here is gone |
//!
//! A received checkpoint that was on disk but not yet taken over by openraft when the power went is a valid start
//! too: it is committed state. Only a log that contradicts it at its position has to go: that tail was never
//! committed.

use std::sync::Arc;

use meta_core::Core;
use meta_store::{Generation, Generations, Position, Wal, WalError};

use crate::checkpoint::{self, CheckpointError};
use crate::types::StoredMembership;

/// A state to start from.
pub(crate) struct Start {
    pub(crate) core: Core,
    pub(crate) membership: StoredMembership,
    pub(crate) newest: Option<(Generation, StoredMembership)>,
}

/// What the disk has.
pub(crate) enum OnDisk {
    /// Enough.
    Start(Box<Start>),
    /// Too little: a checkpoint at or above this position is needed.
    NeedsCheckpoint(Position),
}

/// Looks for a state to start from. Blocks.
pub(crate) fn from_disk(wal: &Wal, generations: &Arc<dyn Generations>) -> Result<OnDisk, CheckpointError> {
    let purged = wal.purged();
    let mut damaged: Vec<String> = Vec::new();
    for generation in checkpoint::usable(&**generations)? {
        if purged.is_some_and(|purged| purged.index > generation.position.index) {
            tracing::warn!(
                name = generation.name,
                ?purged,
                "a checkpoint is too old: the log after it is purged"
            );
            continue;
        }
        match checkpoint::load(&**generations, &generation) {
            Ok((core, membership)) => {
                // Counted among the two that purging relies on, a damaged one would do harm.
                damaged.iter().try_for_each(|name| generations.remove(name))?;
                let newest = Some((generation, membership.clone()));
                return Ok(OnDisk::Start(Box::new(Start { core, membership, newest })));
            }
            Err(error) => {
                tracing::error!(%error, name = generation.name, "a checkpoint cannot be used; trying the one before");
                damaged.push(generation.name);
            }
        }
    }
    Ok(match purged {
        Some(purged) => OnDisk::NeedsCheckpoint(purged),
        None => OnDisk::Start(Box::new(Start {
            core: Core::new(),
            membership: StoredMembership::default(),
            newest: None,
        })),
    })
}

/// Makes the log fit a checkpoint it starts from. Blocks.
pub(crate) fn fit_log(wal: &Wal, position: Position) -> Result<(), WalError> {
    let covered = wal.last().is_some_and(|last| last.index >= position.index);
    if !covered || wal.position(position.index) == Some(position) {
        return Ok(());
    }
    tracing::warn!(
        ?position,
        "the log contradicts the checkpoint; its tail was never committed and is dropped"
    );
    wal.truncate_after(wal.purged().map(|purged| purged.index))?;
    wal.purge(position)?;
    wal.sync().map(drop)
}
