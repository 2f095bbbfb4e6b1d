//! A leader whose disk hangs hands over: it keeps its lease by heartbeats, which wait for no disk, and would hold up
//! every write that others could commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use meta_types::seams::Clock;
use tokio::sync::watch;

use crate::leader::successor;
use crate::log_store::FlushTimes;
use crate::status::RaftStatus;
use crate::types::Raft;

/// See the module.
pub(crate) struct FlushWatch {
    pub(crate) times: Arc<FlushTimes>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) raft: Raft,
    pub(crate) status: watch::Receiver<RaftStatus>,
    /// A sync that takes longer is too slow for a leader.
    pub(crate) limit: Duration,
}

impl FlushWatch {
    /// Runs until the replica stops.
    pub(crate) async fn run(mut self) {
        while self.status.wait_for(RaftStatus::is_leader).await.is_ok() {
            tokio::time::sleep(self.limit / 2).await;
            if !self.hangs() {
                continue;
            }
            let Some(to) = successor(&self.raft) else { continue };
            tracing::warn!(to, limit = ?self.limit, "the log's disk hangs; handing leadership over");
            if self.raft.trigger().transfer_leader(to).await.is_err() {
                return;
            }
            // Time for the election, before another is asked.
            tokio::time::sleep(4 * self.limit).await;
        }
    }

    fn hangs(&self) -> bool {
        let since = self.times.since_us.load(Ordering::Relaxed);
        since != 0 && self.clock.now().saturating_sub(Duration::from_micros(since)) > self.limit
    }
}
