//! The replicated command set: small and closed. One Raft entry carries one [`Batch`].

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::kv::{DeleteRangeReply, DeleteRangeRequest, LeaseId, PutReply, PutRequest, Revision};
use crate::refusal::Refusal;
use crate::txn::{Txn, TxnReply};

/// Who numbers commands: one boot of one member. A later boot of the member retires the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The member's id.
    pub member: u64,
    /// The boot's number, drawn at random at start-up (never 0).
    pub boot: u64,
}

/// The leader's reading of lease time, put on a batch when it is proposed. It is taken into the state only if the
/// entry was appended in `term`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStamp {
    /// The term the leader proposed in.
    pub term: u64,
    /// Lease time, in milliseconds; the state keeps the largest it has seen.
    pub lease_time_ms: u64,
}

/// A command and its number under the batch's origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequenced {
    /// The number, from 1, never reused by the origin. A re-proposed command keeps its number.
    pub seq: u64,
    /// The command.
    pub command: Command,
}

/// What one Raft entry carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Who numbered the commands.
    pub origin: Origin,
    /// Every number below this is settled at the origin: a command below it is refused, never executed.
    pub low_water: u64,
    /// Lease time, set by the leader that proposes the batch.
    pub stamp: Option<LeaseStamp>,
    /// The commands.
    pub commands: Vec<Sequenced>,
}

/// One command. Variants are appended at the end only: the encoding is positional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Registers the batch's origin and retires the member's earlier boots. First command of each boot.
    RegisterOrigin,
    /// Put one key.
    Put(PutRequest),
    /// Delete keys.
    DeleteRange(DeleteRangeRequest),
    /// A transaction that may write.
    Txn(Txn),
    /// Forget history below a revision.
    Compact(Revision),
    /// Make a lease; the id was chosen before the proposal and is not 0.
    LeaseGrant {
        /// The id.
        id: LeaseId,
        /// Seconds, already raised to the minimum.
        ttl: i64,
    },
    /// Revoke a lease and delete its keys.
    LeaseRevoke {
        /// The id.
        id: LeaseId,
    },
    /// Renew leases: each lives its full TTL from the lease time of this entry on.
    LeaseKeepAlive {
        /// The ids.
        ids: Vec<LeaseId>,
    },
    /// Revoke leases that are due. Applies to a lease only if it is due at this entry's lease time and the entry
    /// was appended in `term`.
    LeaseExpire {
        /// The term of the leader that found them due.
        term: u64,
        /// The ids.
        ids: Vec<LeaseId>,
    },
    /// Carries nothing but the batch's stamp: lets lease time advance.
    LeaseTick,
    /// Replicated description of the cluster, set once when it is formed (identity, feature level).
    SetCluster {
        /// The cluster's id.
        cluster_id: u64,
        /// Its name.
        name: Bytes,
        /// The feature level every member must know.
        feature_level: u32,
    },
}

/// Answer of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// Nothing to say (register, tick, expire, compact, revoke, set cluster).
    Done,
    /// Of a put.
    Put(PutReply),
    /// Of a delete.
    DeleteRange(DeleteRangeReply),
    /// Of a transaction.
    Txn(TxnReply),
    /// Of a grant.
    LeaseGrant {
        /// The id.
        id: LeaseId,
        /// Seconds granted.
        ttl: i64,
    },
    /// Of a keep-alive: the TTL in seconds for each id, 0 for an unknown lease.
    LeaseKeepAlive {
        /// In the order asked.
        ttls: Vec<i64>,
    },
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The store's revision after the command.
    pub revision: Revision,
    /// The answer, or why it was refused. A refused command changed nothing.
    pub result: Result<Response, Refusal>,
}
