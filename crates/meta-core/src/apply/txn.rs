//! Transactions: compares decide for a branch, everything in the branch is checked, then it runs as one revision.
//!
//! After the checks nothing can fail, so that a transaction never stops half way. That holds for reads too: a range
//! at a compacted revision refuses the whole transaction, on every replica alike, because what is compacted is part
//! of the replicated state.

use meta_types::{Op, OpReply, Refusal, Response, Txn, TxnReply};

use super::Effect;
use crate::core::Core;
use crate::snapshot::Snapshot;
use crate::validate::{check_op_count, check_txn};
use crate::write::{Write, check_ignored, check_lease};

pub(super) fn apply(core: &mut Core, txn: &Txn) -> Result<Effect, Refusal> {
    let (succeeded, branch) = choose(&core.keys.now, txn);
    branch.iter().try_for_each(|op| check(core, op))?;
    let mut write = Write::begin(&mut core.keys, &mut core.leases);
    let mut replies = Vec::with_capacity(branch.len());
    for op in branch {
        replies.push(match op {
            Op::Range(request) => OpReply::Range(write.keys.now.answer(request)),
            Op::Put(request) => OpReply::Put(write.put(request)),
            Op::DeleteRange(request) => OpReply::DeleteRange(write.delete_range(request)),
        });
    }
    Ok(Effect::new(Response::Txn(TxnReply { succeeded, replies }), write.finish()))
}

fn choose<'a>(now: &Snapshot, txn: &'a Txn) -> (bool, &'a [Op]) {
    let succeeded = txn.compare.iter().all(|compare| now.holds(compare));
    (succeeded, if succeeded { &txn.success } else { &txn.failure })
}

fn check(core: &Core, op: &Op) -> Result<(), Refusal> {
    match op {
        Op::Range(request) => core.keys.now.check_readable(request.revision),
        Op::Put(request) => {
            check_ignored(&core.keys, request)?;
            check_lease(&core.leases, request)
        }
        Op::DeleteRange(_) => Ok(()),
    }
}

/// A transaction without writes, at one moment. One that could write is refused: it has to be proposed.
pub(crate) fn read_txn(now: &Snapshot, txn: &Txn) -> Result<TxnReply, Refusal> {
    if !txn.is_read_only() {
        return Err(Refusal::NotReadOnly);
    }
    check_op_count(txn)?;
    check_txn(txn)?;
    let (succeeded, branch) = choose(now, txn);
    let mut replies = Vec::with_capacity(branch.len());
    for op in branch {
        if let Op::Range(request) = op {
            replies.push(OpReply::Range(now.range(request)?));
        }
    }
    Ok(TxnReply { succeeded, replies })
}
