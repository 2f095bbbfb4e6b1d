//! Transactions: compares, two branches, replies. Flat for now; nested transactions are appended later.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::kv::{
    DeleteRangeReply, DeleteRangeRequest, KeyRange, LeaseId, PutReply, PutRequest, RangeReply, RangeRequest,
    Revision,
};

/// How a compare relates what is stored to what is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompareResult {
    /// Stored == given.
    Equal,
    /// Stored > given.
    Greater,
    /// Stored < given.
    Less,
    /// Stored != given.
    NotEqual,
}

/// What a compare looks at, with the given side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompareTarget {
    /// The version; 0 for a missing key.
    Version(i64),
    /// The create revision; 0 for a missing key.
    CreateRevision(Revision),
    /// The modification revision; 0 for a missing key.
    ModRevision(Revision),
    /// The value; always false on a missing key.
    Value(Bytes),
    /// The lease; 0 for a missing key or none.
    Lease(LeaseId),
}

/// One condition. Over a range it holds if every key there passes; an empty range is compared as a missing key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// Which keys.
    pub range: KeyRange,
    /// The relation.
    pub result: CompareResult,
    /// What is compared.
    pub target: CompareTarget,
}

impl Compare {
    /// The key does not exist.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self {
            range: KeyRange::one(key),
            result: CompareResult::Equal,
            target: CompareTarget::CreateRevision(0),
        }
    }

    /// The key exists.
    pub fn exists(key: impl Into<Bytes>) -> Self {
        Self {
            range: KeyRange::one(key),
            result: CompareResult::Greater,
            target: CompareTarget::CreateRevision(0),
        }
    }

    /// The key was last written at `revision` (0 = it does not exist).
    pub fn unchanged(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self {
            range: KeyRange::one(key),
            result: CompareResult::Equal,
            target: CompareTarget::ModRevision(revision),
        }
    }

    /// The key is of the generation created at `revision`: an incarnation or an epoch still stands.
    pub fn created_at(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self {
            range: KeyRange::one(key),
            result: CompareResult::Equal,
            target: CompareTarget::CreateRevision(revision),
        }
    }

    /// The generation created at `revision` is gone (deleted or replaced).
    pub fn not_created_at(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self {
            range: KeyRange::one(key),
            result: CompareResult::NotEqual,
            target: CompareTarget::CreateRevision(revision),
        }
    }

    /// No key starts with `prefix`.
    pub fn empty_prefix(prefix: impl Into<Bytes>) -> Self {
        Self {
            range: KeyRange::prefix(prefix),
            result: CompareResult::Equal,
            target: CompareTarget::CreateRevision(0),
        }
    }
}

/// One operation of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Read.
    Range(RangeRequest),
    /// Write.
    Put(PutRequest),
    /// Delete.
    DeleteRange(DeleteRangeRequest),
}

impl Op {
    /// Put `value` under `key`, without a lease.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put(PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() })
    }

    /// Put `value` under `key` on `lease`.
    pub fn put_leased(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        Self::Put(PutRequest { key: key.into(), value: value.into(), lease, ..PutRequest::default() })
    }

    /// Delete one key.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::DeleteRange(DeleteRangeRequest { range: KeyRange::one(key), prev_kv: false })
    }

    /// Read one key.
    pub fn get(key: impl Into<Bytes>) -> Self {
        Self::Range(RangeRequest::get(key))
    }
}

/// If every compare holds, run `success`, else `failure`; one revision, all or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Txn {
    /// The conditions, all of which must hold.
    pub compare: Vec<Compare>,
    /// Run if they hold.
    pub success: Vec<Op>,
    /// Run otherwise.
    pub failure: Vec<Op>,
}

impl Txn {
    /// True if no branch can write.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, Op::Range(_)))
    }
}

/// Answer of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpReply {
    /// Of a range.
    Range(RangeReply),
    /// Of a put.
    Put(PutReply),
    /// Of a delete.
    DeleteRange(DeleteRangeReply),
}

/// Answer of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TxnReply {
    /// Which branch ran.
    pub succeeded: bool,
    /// The answers of that branch, in order.
    pub replies: Vec<OpReply>,
}
