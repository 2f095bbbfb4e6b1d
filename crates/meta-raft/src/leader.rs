//! What a leader does for everybody: stamps and proposes batches, confirms how far a read must see.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use openraft::vote::RaftLeaderId;
use openraft::{LinearizerOption, TryAsRef};

use crate::lease_clock::LeaseClock;
use crate::net::message::{Forwarded, NotLeader};
use crate::payload;
use crate::types::{Proposal, Raft};

/// The leader's desk; on a replica that does not lead it says who does.
#[derive(Clone)]
pub(crate) struct LeaderDesk {
    pub(crate) raft: Raft,
    pub(crate) lease_clock: Arc<LeaseClock>,
    pub(crate) read_timeout: Duration,
}

impl LeaderDesk {
    /// Stamps a batch, proposes it in the term of the stamp, and waits until it is applied here.
    /// `None` if this replica has stopped.
    pub(crate) async fn propose(&self, mut batch: BytesMut) -> Option<Forwarded> {
        let leader = match self.raft.as_leader() {
            Ok(leader) => leader,
            Err(forward) => return Some(not_appended(forward.leader_id)),
        };
        let leadership = leader.leader_id().to_committed();
        if batch.len() > payload::MAX_BATCH_ENTRY_BYTES {
            tracing::error!(bytes = batch.len(), "a batch that no log takes was proposed");
            return Some(not_appended(None));
        }
        if !payload::stamp(&mut batch, self.lease_clock.stamp(leadership.term)) {
            tracing::error!("bytes that are no batch were proposed");
            return Some(not_appended(None));
        }
        let (responder, done) = ProgressResponder::complete_only();
        let write = self.raft.write(Proposal(batch.freeze())).responder(responder).with_leader(leadership);
        if write.await.is_err() {
            return None;
        }
        Some(match done.await {
            Ok(Ok(_)) => Forwarded::Applied,
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) => not_appended(forward.leader_id),
            // Discarded, or the replica stops with the entry in its log.
            Ok(Err(_)) | Err(_) => Forwarded::Discarded,
        })
    }

    /// The same for a batch that a peer forwarded. It is read first: once committed, bytes that no replica can apply
    /// would stop every one of them, on every start.
    pub(crate) async fn propose_forwarded(&self, batch: BytesMut) -> Option<Forwarded> {
        if let Err(error) = payload::decode_batch(&batch) {
            tracing::error!(%error, "a peer forwarded bytes that are no batch");
            return Some(not_appended(None));
        }
        self.propose(batch).await
    }

    /// Confirms the leadership with a quorum after this call, and says which index a read must see.
    pub(crate) async fn read_index(&self) -> Result<Result<u64, NotLeader>, ReadIndexFailed> {
        let option = LinearizerOption::new(Some(Duration::ZERO), true).with_wait_timeout(self.read_timeout);
        match self.raft.get_read_linearizer(option).await {
            Ok(linearizer) => Ok(Ok(linearizer.read_log_id().index())),
            Err(RaftError::APIError(error)) => Ok(Err(NotLeader { leader: leader_in(&error) })),
            Err(RaftError::Fatal(_)) => Err(ReadIndexFailed),
        }
    }
}

/// The voter to hand leadership to: the one that has most of this leader's log. None unless this replica leads.
pub(crate) fn successor(raft: &Raft) -> Option<u64> {
    let metrics = raft.metrics().borrow_watched().clone();
    let matched = metrics.replication?;
    let voters: Vec<u64> = metrics.membership_config.voter_ids().collect();
    let others = matched.into_iter().filter(|(id, _)| *id != metrics.id && voters.contains(id));
    others.max_by_key(|(_, matched)| *matched).map(|(id, _)| id)
}

/// This replica has stopped.
#[derive(Debug)]
pub(crate) struct ReadIndexFailed;

fn not_appended(leader: Option<u64>) -> Forwarded {
    Forwarded::NotAppended(NotLeader { leader })
}

fn leader_in(error: &LinearizableReadError<crate::types::TypeConfig>) -> Option<u64> {
    error.try_as_ref().and_then(|forward| forward.leader_id)
}
