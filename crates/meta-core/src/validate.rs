//! The checks of a command that need no state: done before it is proposed, and those that protect the state once
//! more when it is applied.

use std::collections::BTreeSet;

use bytes::Bytes;
use meta_types::limits::{MAX_LEASE_TTL_S, MAX_REQUEST_BYTES, MAX_TXN_OPS};
use meta_types::{Command, Compare, CompareTarget, KeyRange, Op, PutRequest, Refusal, Txn};

use crate::core::Core;

/// What an operation is taken to cost on the wire beside its keys and values.
const OP_BYTES: usize = 16;

impl Core {
    /// Refuses what can be refused without looking at the state: to be asked before a command is proposed.
    pub fn validate(command: &Command) -> Result<(), Refusal> {
        check(command)?;
        if let Command::Txn(txn) = command {
            check_op_count(txn)?;
        }
        if request_bytes(command) > MAX_REQUEST_BYTES {
            return Err(Refusal::RequestTooLarge);
        }
        Ok(())
    }
}

/// The checks that hold for a command in the log too, whoever proposed it. Sizes and numbers of operations are not
/// among them: limits may change, what an entry means may not.
pub(crate) fn check(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::Put(put) => check_put(put),
        Command::DeleteRange(delete) => check_range(&delete.range),
        Command::Txn(txn) => check_txn(txn),
        Command::LeaseGrant { id: 0, .. } => Err(Refusal::LeaseNotFound),
        Command::LeaseGrant { ttl, .. } if *ttl > MAX_LEASE_TTL_S => Err(Refusal::LeaseTtlTooLarge),
        Command::RegisterOrigin
        | Command::Compact(_)
        | Command::LeaseGrant { .. }
        | Command::LeaseRevoke { .. }
        | Command::LeaseKeepAlive { .. }
        | Command::LeaseExpire { .. }
        | Command::LeaseTick
        | Command::SetCluster { .. } => Ok(()),
    }
}

fn check_range(range: &KeyRange) -> Result<(), Refusal> {
    if range.key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(()) }
}

fn check_put(put: &PutRequest) -> Result<(), Refusal> {
    if put.key.is_empty() {
        Err(Refusal::EmptyKey)
    } else if put.ignore_value && !put.value.is_empty() {
        Err(Refusal::ValueProvided)
    } else if put.ignore_lease && put.lease != 0 {
        Err(Refusal::LeaseProvided)
    } else {
        Ok(())
    }
}

/// More compares or operations in one branch than allowed.
pub(crate) fn check_op_count(txn: &Txn) -> Result<(), Refusal> {
    let most = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    if most > MAX_TXN_OPS { Err(Refusal::TooManyOps) } else { Ok(()) }
}

/// Empty keys, contradicting flags, and keys written twice in one branch.
pub(crate) fn check_txn(txn: &Txn) -> Result<(), Refusal> {
    txn.compare.iter().try_for_each(|compare| check_range(&compare.range))?;
    for branch in [&txn.success, &txn.failure] {
        branch.iter().try_for_each(check_op)?;
    }
    for branch in [&txn.success, &txn.failure] {
        check_duplicates(branch)?;
    }
    Ok(())
}

fn check_op(op: &Op) -> Result<(), Refusal> {
    match op {
        Op::Range(range) => check_range(&range.range),
        Op::Put(put) => check_put(put),
        Op::DeleteRange(delete) => check_range(&delete.range),
    }
}

/// A key may be put once, and not be put and deleted. Overlapping deletes are fine.
fn check_duplicates(branch: &[Op]) -> Result<(), Refusal> {
    let mut put = BTreeSet::<&Bytes>::new();
    for op in branch {
        if let Op::Put(request) = op
            && !put.insert(&request.key)
        {
            return Err(Refusal::DuplicateKey);
        }
    }
    for op in branch {
        if let Op::DeleteRange(delete) = op {
            let next = put.range::<Bytes, _>(&delete.range.key..).next();
            if next.is_some_and(|key| delete.range.contains(key)) {
                return Err(Refusal::DuplicateKey);
            }
        }
    }
    Ok(())
}

fn request_bytes(command: &Command) -> usize {
    match command {
        Command::Put(put) => put_bytes(put),
        Command::DeleteRange(delete) => range_bytes(&delete.range),
        Command::Txn(txn) => {
            let compares: usize = txn.compare.iter().map(compare_bytes).sum();
            let ops = txn.success.iter().chain(&txn.failure);
            compares + ops.map(op_bytes).sum::<usize>()
        }
        Command::LeaseKeepAlive { ids } | Command::LeaseExpire { ids, .. } => ids.len() * 8,
        Command::SetCluster { name, .. } => name.len(),
        Command::RegisterOrigin
        | Command::Compact(_)
        | Command::LeaseGrant { .. }
        | Command::LeaseRevoke { .. }
        | Command::LeaseTick => OP_BYTES,
    }
}

fn range_bytes(range: &KeyRange) -> usize {
    range.key.len() + range.end.len() + OP_BYTES
}

fn put_bytes(put: &PutRequest) -> usize {
    put.key.len() + put.value.len() + OP_BYTES
}

fn compare_bytes(compare: &Compare) -> usize {
    let value = match &compare.target {
        CompareTarget::Value(value) => value.len(),
        CompareTarget::Version(_)
        | CompareTarget::CreateRevision(_)
        | CompareTarget::ModRevision(_)
        | CompareTarget::Lease(_) => 0,
    };
    range_bytes(&compare.range) + value
}

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Range(range) => range_bytes(&range.range),
        Op::Put(put) => put_bytes(put),
        Op::DeleteRange(delete) => range_bytes(&delete.range),
    }
}
