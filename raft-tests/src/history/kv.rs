//! A call of the store: what was asked, when, and what came of it.

use std::time::Duration;

use meta_client::KvError;
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, PutReply, PutRequest, RangeReply, RangeRequest, Revision,
    Txn, TxnReply,
};

use super::At;

/// One call.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Who called. A client does one thing at a time or not: nothing is concluded from it but the text of findings.
    pub client: u64,
    /// When the call was made.
    pub call: At,
    /// When it returned; `None` if it never did.
    pub ret: Option<At>,
    /// What was asked.
    pub input: Input,
    /// What came of it.
    pub outcome: Outcome,
}

/// What was asked. Ranges carry `serializable` and `revision` in their request.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A read.
    Range(RangeRequest),
    /// A put.
    Put(PutRequest),
    /// A delete.
    DeleteRange(DeleteRangeRequest),
    /// A transaction, also one that only reads.
    Txn(Txn),
    /// A compaction.
    Compact(Revision),
    /// A new lease; id 0 lets the store choose.
    LeaseGrant {
        /// The id asked for.
        id: LeaseId,
        /// The time to live asked for.
        ttl: Duration,
    },
    /// A renewal.
    LeaseKeepAlive(LeaseId),
    /// A revocation.
    LeaseRevoke(LeaseId),
    /// The question what is left of a lease.
    LeaseTimeToLive(LeaseId),
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It was answered.
    Ok {
        /// The revision in the answer's header; `None` where the `Kv` trait does not hand it on (leases, compact).
        revision: Option<Revision>,
        /// The answer.
        reply: Reply,
    },
    /// It was not carried out, and never will be.
    Failed(Failure),
    /// It may have been carried out, or may still be.
    Unknown,
}

/// Why a call was certainly not carried out.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// It never left, or the store said that it did nothing (no leader, overload).
    NotSent,
    /// The store refused it for what it is: the model has to agree.
    Rejected {
        /// gRPC code.
        code: i32,
        /// The store's words.
        message: String,
    },
    /// It needed history that is compacted away.
    Compacted {
        /// The compact revision.
        compact_revision: Revision,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Of a range.
    Range(RangeReply),
    /// Of a put.
    Put(PutReply),
    /// Of a delete.
    DeleteRange(DeleteRangeReply),
    /// Of a transaction.
    Txn(TxnReply),
    /// Of a compaction or a revocation: done.
    Done,
    /// Of a grant.
    LeaseGrant {
        /// The lease.
        id: LeaseId,
        /// Its time to live.
        ttl: Duration,
    },
    /// Of a keep-alive: the time to live from the renewal on; `None` if the lease is gone.
    LeaseKeepAlive(Option<Duration>),
    /// Of a time-to-live: what is left; `None` if the lease is gone.
    LeaseTimeToLive(Option<Duration>),
}

impl Input {
    /// True if the call cannot change anything.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Range(_) | Self::LeaseTimeToLive(_) => true,
            Self::Txn(txn) => txn.is_read_only(),
            Self::Put(_)
            | Self::DeleteRange(_)
            | Self::Compact(_)
            | Self::LeaseGrant { .. }
            | Self::LeaseKeepAlive(_)
            | Self::LeaseRevoke(_) => false,
        }
    }
}

impl Outcome {
    /// The outcome that a client's error stands for.
    pub fn of_error(error: &KvError) -> Self {
        match error {
            KvError::Rejected { code, message } => {
                Self::Failed(Failure::Rejected { code: *code, message: message.clone() })
            }
            KvError::Compacted { compact_revision } => {
                Self::Failed(Failure::Compacted { compact_revision: *compact_revision })
            }
            KvError::NotSent(_) => Self::Failed(Failure::NotSent),
            KvError::Unknown(_) => Self::Unknown,
        }
    }
}

impl Operation {
    /// True if it was answered.
    pub fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok { .. })
    }

    /// True if nobody knows whether it was carried out.
    pub fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown)
    }

    /// The revision in the answer's header.
    pub fn revision(&self) -> Option<Revision> {
        match &self.outcome {
            Outcome::Ok { revision, .. } => *revision,
            Outcome::Failed(_) | Outcome::Unknown => None,
        }
    }
}
