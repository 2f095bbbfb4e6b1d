//! A look inside, for whoever checks that what must hold does: everything a replica is at one moment. Reads only.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use meta_store::Wal;
use meta_types::Batch;
use meta_types::codec::CodecError;
use openraft::async_runtime::WatchReceiver;

use crate::handle::RaftHandle;
use crate::payload::{decode_batch, decode_entry};
use crate::types::EntryPayload;

/// What consensus says of itself, all of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// This member.
    pub member_id: u64,
    /// The term of its vote.
    pub term: u64,
    /// Whom it voted for, or takes for the leader that was elected.
    pub voted_for: u64,
    /// True if that one was elected.
    pub elected: bool,
    /// True if it was elected in `term` and has not stepped down.
    pub leads: bool,
    /// Whom it takes for the leader.
    pub leader: Option<u64>,
    /// Index of the last entry it knows to be committed.
    pub committed: Option<u64>,
    /// Index of the newest checkpoint.
    pub checkpoint: Option<u64>,
    /// Index of the newest checkpoint of a peer that consensus was shown: from then on log, state and what is known
    /// to be committed follow it one after the other.
    pub offered: Option<u64>,
    /// True if consensus ended by itself, as it does when its disk fails. What it says of itself may then be ahead of
    /// what it could write.
    pub ended: bool,
    /// The voters it goes by; two sets while a change is under way.
    pub voters: Vec<BTreeSet<u64>>,
}

/// What an entry of the log is for the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedEntry {
    /// Commands.
    Batch(Batch),
    /// Nothing: a leader's first entry, or a membership.
    Skipped,
}

impl LoggedEntry {
    /// Reads the payload of an entry.
    pub fn read(payload: Bytes) -> Result<Self, CodecError> {
        match decode_entry(0, 0, payload)?.payload {
            EntryPayload::Normal(proposal) => decode_batch(&proposal.0).map(Self::Batch),
            EntryPayload::Blank | EntryPayload::Membership(_) => Ok(Self::Skipped),
        }
    }
}

impl RaftHandle {
    /// The log, to read.
    pub fn log(&self) -> &Arc<Wal> {
        &self.inner.wal
    }

    /// See [`Inspection`].
    pub fn inspect(&self) -> Inspection {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let vote = &metrics.vote;
        Inspection {
            member_id: metrics.id,
            term: vote.leader_id.term,
            voted_for: vote.leader_id.voted_for,
            elected: vote.committed,
            leads: metrics.state.is_leader() && vote.committed,
            leader: metrics.current_leader,
            committed: metrics.local_committed.as_ref().map(|id| id.index),
            checkpoint: self.inner.checkpoints.newest().map(|newest| newest.position.index),
            offered: self.inner.checkpoints.offered(),
            ended: metrics.running_state.is_err(),
            voters: metrics.membership_config.membership().get_joint_config().clone(),
        }
    }
}
