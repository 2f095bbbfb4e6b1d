//! When checkpoints are built and the log is purged.
//!
//! A checkpoint is due when the log since the last one reaches `max(min_log_bytes, size of the last)`, so that
//! writing them costs at most as much as writing the log. It is built on a thread of the lowest priority. Once it
//! is verified, openraft is shown it, older generations than two are removed, and the log is purged up to the
//! *older* of the two: if the newest turns out damaged, the one before still has every entry it needs.
//!
//! After a checkpoint came from a peer there is one usable generation and no log before it: a second is built at
//! once.

use std::sync::Arc;
use std::time::Duration;

use meta_store::{Generation, Wal};
use meta_types::controls::{Control, active};
use openraft::async_runtime::WatchReceiver;
use tokio::sync::{Notify, watch};

use crate::checkpoint::{CheckpointError, Checkpoints};
use crate::options::CheckpointOptions;
use crate::types::Raft;

/// Pause after a checkpoint that failed, say for a full disk.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How long openraft may take to notice a checkpoint.
const NOTICE: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct CheckpointDriver {
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) wal: Arc<Wal>,
    pub(crate) grown: Arc<Notify>,
    pub(crate) applied: watch::Receiver<Option<u64>>,
    pub(crate) raft: Raft,
    pub(crate) options: CheckpointOptions,
}

impl CheckpointDriver {
    /// Runs until the replica stops.
    pub(crate) async fn run(mut self) {
        loop {
            if self.is_due() {
                match self.checkpoint().await {
                    Ok(()) => continue,
                    Err(error) => {
                        tracing::error!(%error, "no checkpoint could be made; the log grows until one can");
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                }
            }
            tokio::select! {
                () = self.grown.notified() => {}
                changed = self.applied.changed() => if changed.is_err() { return },
            }
        }
    }

    fn is_due(&self) -> bool {
        let newest = self.checkpoints.newest();
        let applied = *self.applied.borrow();
        let Some(newest) = newest else {
            return applied.is_some() && self.wal.bytes_after(0) >= self.options.min_log_bytes;
        };
        if applied <= Some(newest.position.index) {
            return false;
        }
        let since = self.wal.bytes_after(newest.position.index);
        let threshold = self.options.min_log_bytes.max(newest.bytes);
        since >= threshold || (self.wal.purged().is_some() && self.checkpoints.is_lonely())
    }

    async fn checkpoint(&self) -> Result<(), CheckpointError> {
        // Positive control: the log goes first, the checkpoint that makes up for it is yet to be written.
        let applied = *self.applied.borrow();
        if active(Control::PurgeBeforeVerified)
            && let Some(applied) = applied.and_then(|index| self.wal.position(index))
        {
            // A log that does not take it stops the replica elsewhere.
            let _ = self.wal.purge(applied);
        }
        let built = self.checkpoints.build().await?;
        self.show(&built).await;
        let oldest = self.checkpoints.prune().await?;
        tracing::info!(
            index = built.position.index,
            records = built.records,
            bytes = built.bytes,
            "checkpoint"
        );
        if let Some(oldest) = oldest {
            // Refused only by a replica that has stopped.
            let _ = self.raft.trigger().purge_log(oldest.index).await;
        }
        Ok(())
    }

    /// Tells openraft, which purges nothing beyond the newest checkpoint it knows of.
    async fn show(&self, built: &Generation) {
        let mut metrics = self.raft.metrics();
        let _ = self.raft.trigger().snapshot().await;
        let noticed = async {
            while metrics.borrow_watched().snapshot.is_none_or(|shown| shown.index < built.position.index) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(NOTICE, noticed).await.is_err() {
            tracing::warn!("consensus has not noticed a checkpoint yet; the log is purged with the next one");
        }
    }
}
