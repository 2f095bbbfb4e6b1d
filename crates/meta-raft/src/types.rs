//! openraft's type configuration, and the few types of ours it is built from.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// openraft's asynchronous runtime. One alias, so that a simulator replaces it in one place.
#[allow(deprecated)] // The other path would be a second dependency on the same type.
pub type Runtime = openraft::impls::TokioRuntime;

openraft::declare_raft_types!(
    /// The one instance of openraft's type parameters.
    pub TypeConfig:
        D = Proposal,
        R = (),
        NodeId = u64,
        Node = Member,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = Runtime,
);

/// An encoded [`meta_types::Batch`] (see [`crate::payload`]). Cloning counts, it does not copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal(pub Bytes);

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch of {} bytes", self.0.len())
    }
}

/// What every member knows of a member. Part of the replicated membership.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Where its peers reach it, `host:port`.
    pub peer_addr: String,
    /// Where clients reach it, `host:port`.
    pub client_addr: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.peer_addr)
    }
}

pub(crate) type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub(crate) type CommittedLeaderId = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;
pub(crate) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub(crate) type EntryPayload = openraft::EntryPayload<Proposal, u64, Member>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Raft = openraft::Raft<TypeConfig, crate::state_machine::StateMachine>;

/// The log id of `index` in `term`. In standard Raft a term has one leader, so the term says it all.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term), index)
}

/// The term of a log id.
pub(crate) fn term_of(id: &LogId) -> u64 {
    id.committed_leader_id().term
}
