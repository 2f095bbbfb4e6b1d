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
//! too: it is committed state. A log that ends before it, or contradicts it at its position, goes on after it: what
//! that log had is in the checkpoint or was never committed.

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

/// Makes the log fit a checkpoint it starts from: it has the position, or starts right after it. Blocks.
pub(crate) fn fit_log(wal: &Wal, position: Position) -> Result<(), WalError> {
    if wal.position(position.index) == Some(position) {
        return Ok(());
    }
    if wal.last().is_some_and(|last| last.index >= position.index) {
        tracing::warn!(
            ?position,
            "the log contradicts the checkpoint; its tail was never committed and is dropped"
        );
    }
    wal.truncate_after(wal.purged().map(|purged| purged.index))?;
    wal.purge(position)?;
    wal.sync().map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use meta_store::{LogEntry, MemDisk, WalOptions};

    use super::*;

    const fn at(term: u64, index: u64) -> Position {
        Position { term, index }
    }

    /// What is found after the power went right after a log with these entries was made to fit a checkpoint.
    fn fitted(entries: &[Position], checkpoint: Position) -> (Option<Position>, Option<Position>) {
        let disk = MemDisk::new();
        let open = |disk: &MemDisk| {
            Wal::open(Arc::new(disk.clone()), Path::new("/log"), WalOptions::default()).unwrap().0
        };
        let wal = open(&disk);
        for entry in entries {
            wal.append([LogEntry { position: *entry, payload: Bytes::from_static(b"entry") }]).unwrap();
        }
        wal.sync().unwrap();
        fit_log(&wal, checkpoint).unwrap();
        let wal = open(&disk.crash(1));
        (wal.purged(), wal.last())
    }

    #[test]
    fn a_log_that_has_the_position_stays() {
        assert_eq!(fitted(&[at(1, 0), at(1, 1), at(2, 2)], at(1, 1)), (None, Some(at(2, 2))));
    }

    /// A peer's checkpoint was on disk, and the jump of the log was not.
    #[test]
    fn a_log_that_ends_before_the_checkpoint_starts_after_it() {
        assert_eq!(fitted(&[at(1, 0), at(1, 1)], at(3, 9)), (Some(at(3, 9)), Some(at(3, 9))));
        assert_eq!(fitted(&[], at(3, 9)), (Some(at(3, 9)), Some(at(3, 9))));
    }

    #[test]
    fn a_log_that_contradicts_the_checkpoint_starts_after_it() {
        assert_eq!(fitted(&[at(1, 0), at(1, 1), at(1, 2)], at(2, 1)), (Some(at(2, 1)), Some(at(2, 1))));
    }
}
