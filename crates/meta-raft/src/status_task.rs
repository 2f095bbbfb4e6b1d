//! Turns openraft's metrics into the status others watch, and opens the door once a leader confirmed this replica.
//!
//! After a restart the state may be behind what this replica showed before it died. Nothing is served until one
//! read index was confirmed by a leader and reached here.

use std::sync::Arc;
use std::time::Duration;

use openraft::RaftMetrics;
use openraft::async_runtime::WatchReceiver;
use tokio::sync::watch;

use crate::forming::Forming;
use crate::proposer::Proposer;
use crate::read_index::ReadQueue;
use crate::state::State;
use crate::status::{MemberStatus, RaftStatus};
use crate::types::{Raft, TypeConfig};

/// A confirmation is asked for again after this long.
const CONFIRM: Duration = Duration::from_secs(5);

/// However the task ends: this replica serves no more.
struct Closing(watch::Sender<RaftStatus>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.send_modify(|status| status.serving = false);
    }
}

/// See the module.
pub(crate) struct StatusTask {
    pub(crate) cluster_id: u64,
    pub(crate) raft: Raft,
    pub(crate) forming: Arc<Forming>,
    pub(crate) state: Arc<State>,
    pub(crate) reads: Arc<ReadQueue>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) to: watch::Sender<RaftStatus>,
}

impl StatusTask {
    /// Runs until the replica stops.
    pub(crate) async fn run(self) {
        let _closing = Closing(self.to.clone());
        let mut metrics = self.raft.metrics();
        let mut serving = false;
        let mut confirmed = std::pin::pin!(self.confirm());
        loop {
            let status = self.status(&metrics.borrow_watched(), serving);
            let failed = status.failed.is_some();
            self.publish(status);
            if failed {
                break;
            }
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() { break },
                () = &mut confirmed, if !serving => serving = true,
            }
        }
        self.proposer.close();
        self.reads.close();
    }

    /// Returns once a leader confirmed this replica's log end, or never.
    async fn confirm(&self) {
        while self.reads.read(self.state.applied(), CONFIRM).await.is_err() {
            // A queue that is closed answers at once.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn status(&self, metrics: &RaftMetrics<TypeConfig>, serving: bool) -> RaftStatus {
        let membership = metrics.membership_config.membership();
        let voters: Vec<u64> = membership.voter_ids().collect();
        let index = |id: &Option<crate::types::LogId>| id.as_ref().map_or(0, |id| id.index);
        let failed = metrics.running_state.as_ref().err().map(ToString::to_string);
        RaftStatus {
            member_id: metrics.id,
            cluster_id: self.cluster_id,
            leader: metrics.current_leader,
            term: metrics.current_term,
            committed: index(&metrics.local_committed),
            applied: index(&metrics.last_applied),
            last_log: metrics.last_log_index.unwrap_or(0),
            purged: metrics.purged.as_ref().map(|id| id.index),
            checkpoint: metrics.snapshot.as_ref().map(|id| id.index),
            members: membership
                .nodes()
                .map(|(id, member)| MemberStatus {
                    id: *id,
                    member: member.clone(),
                    voter: voters.contains(id),
                })
                .collect(),
            serving: serving && failed.is_none(),
            failed,
        }
    }

    fn publish(&self, status: RaftStatus) {
        let changed_members = self.to.borrow().members != status.members;
        if changed_members {
            let names = status.members.iter().map(|m| (m.id, m.member.name.clone())).collect();
            self.forming.set_cluster(self.cluster_id, names);
        }
        if let Some(why) = &status.failed {
            tracing::error!(why, "consensus has stopped; this replica serves nothing any more");
        }
        self.to.send_if_modified(|known| {
            let changed = *known != status;
            *known = status;
            changed
        });
    }
}
