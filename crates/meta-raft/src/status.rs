//! What a replica knows of itself and its cluster, as a value to watch.

use crate::types::Member;

/// A member as the status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its id.
    pub id: u64,
    /// Name and addresses.
    pub member: Member,
    /// True if it votes; false for a learner.
    pub voter: bool,
}

/// A replica's view. It may lag behind the cluster; use it for display and routing, never for safety.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RaftStatus {
    /// This member's id.
    pub member_id: u64,
    /// The cluster's id.
    pub cluster_id: u64,
    /// The leader, if one is known.
    pub leader: Option<u64>,
    /// The current term.
    pub term: u64,
    /// Index of the last entry known to be committed.
    pub committed: u64,
    /// Index of the last entry in the state.
    pub applied: u64,
    /// Index of the last entry in the log.
    pub last_log: u64,
    /// Index of the last entry that was purged from the log, once one was.
    pub purged: Option<u64>,
    /// Index of the newest checkpoint, once there is one.
    pub checkpoint: Option<u64>,
    /// The members.
    pub members: Vec<MemberStatus>,
    /// False until a leader confirmed this replica's log end after the start, and again once it stopped.
    pub serving: bool,
    /// Why consensus stopped for good, if it did: a disk that fails ends a replica.
    pub failed: Option<String>,
}

impl RaftStatus {
    /// True if this member leads, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.leader == Some(self.member_id)
    }

    /// The leader and its term.
    pub fn leadership(&self) -> (Option<u64>, u64) {
        (self.leader, self.term)
    }

    /// What is known of a member.
    pub fn member(&self, id: u64) -> Option<&MemberStatus> {
        self.members.iter().find(|member| member.id == id)
    }

    /// True if this member does not vote.
    pub fn is_learner(&self) -> bool {
        self.member(self.member_id).is_some_and(|me| !me.voter)
    }
}
