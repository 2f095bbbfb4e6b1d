//! What the rest of the replica holds: a cheap clone that proposes, reads, and tells how things stand.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use meta_core::Core;
use meta_store::Wal;
use meta_types::{Command, LeaseStamp, Outcome};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::checkpoint::Checkpoints;
use crate::errors::{ProposeError, ReadError};
use crate::leader::successor;
use crate::lease_clock::LeaseClock;
use crate::log_store::FlushTimes;
use crate::node::Tasks;
use crate::proposer::Proposer;
use crate::read_index::ReadQueue;
use crate::state::State;
use crate::status::RaftStatus;
use crate::types::Raft;

/// The handle of a running replica's Raft part. [`RaftHandle::shutdown`] stops it in order; dropping the last one
/// cuts it off.
#[derive(Clone)]
pub struct RaftHandle {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) reads: Arc<ReadQueue>,
    pub(crate) state: Arc<State>,
    pub(crate) status: watch::Receiver<RaftStatus>,
    pub(crate) lease_clock: Arc<LeaseClock>,
    pub(crate) flush_times: Arc<FlushTimes>,
    pub(crate) wal: Arc<Wal>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) raft: Raft,
    pub(crate) tasks: parking_lot::Mutex<Option<Tasks>>,
}

/// How long the log's syncs took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushReport {
    /// Syncs since the start.
    pub count: u64,
    /// All of them together.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
}

impl std::fmt::Debug for RaftHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RaftHandle").field("status", &*self.inner.status.borrow()).finish_non_exhaustive()
    }
}

impl RaftHandle {
    /// Proposes a command and returns what became of it, as applied by this replica. Waits for a leader, and tries
    /// again what a change of leaders lost, for at most `timeout`. The command must have passed
    /// [`Core::validate`]. Dropping the future gives up waiting, not the command.
    pub async fn propose(&self, command: Command, timeout: Duration) -> Result<Outcome, ProposeError> {
        self.inner.proposer.propose(&command, timeout).await
    }

    /// Returns once this replica's state shows everything that was committed when this was called.
    pub async fn read_index(&self, timeout: Duration) -> Result<(), ReadError> {
        self.inner.reads.read(self.inner.state.applied(), timeout).await
    }

    /// The state. Hold the lock for short steps only: applying waits for it.
    pub fn core(&self) -> Arc<RwLock<Core>> {
        self.inner.state.core.clone()
    }

    /// Follows this replica's view of itself and the cluster.
    pub fn status(&self) -> watch::Receiver<RaftStatus> {
        self.inner.status.clone()
    }

    /// Follows the index of the last applied entry.
    pub fn applied(&self) -> watch::Receiver<Option<u64>> {
        self.inner.state.applied()
    }

    /// Lease time as this leader would stamp it now, with its term; none if this replica does not lead or has not
    /// applied an entry of its term yet.
    pub fn lease_stamp(&self) -> Option<LeaseStamp> {
        let leader = self.inner.raft.as_leader().ok()?;
        self.inner.lease_clock.stamp(leader.term())
    }

    /// How long the log's syncs took.
    pub fn flush_report(&self) -> FlushReport {
        let times = &self.inner.flush_times;
        FlushReport {
            count: times.count.load(Ordering::Relaxed),
            total: Duration::from_micros(times.total_us.load(Ordering::Relaxed)),
            max: Duration::from_micros(times.max_us.load(Ordering::Relaxed)),
        }
    }

    /// Asks the leader, if this replica is it, to hand over to a member. Watch the status for the outcome.
    pub async fn transfer_leader(&self, to: u64) {
        // Refused only by a replica that has stopped.
        let _ = self.inner.raft.trigger().transfer_leader(to).await;
    }

    /// Hands leadership to the member that is closest behind, before a planned stop. True once another leads; false
    /// if this replica did not lead, or nobody took over in time.
    pub async fn hand_over(&self, timeout: Duration) -> bool {
        let Some(to) = successor(&self.inner.raft) else { return false };
        self.transfer_leader(to).await;
        let mut status = self.status();
        let me = status.borrow().member_id;
        let taken = status.wait_for(|status| status.leader.is_some_and(|leader| leader != me));
        matches!(tokio::time::timeout(timeout, taken).await, Ok(Ok(_)))
    }

    /// Stops: nothing is served, proposed or answered any more when this returns, and what was queued for the disk
    /// is there.
    pub async fn shutdown(&self) {
        self.inner.proposer.close();
        self.inner.reads.close();
        let tasks = self.inner.tasks.lock().take();
        if let Some(tasks) = tasks {
            tasks.stop(&self.inner.raft).await;
        }
    }
}
