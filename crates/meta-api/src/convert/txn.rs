//! Transactions.

use meta_types::{
    Compare, CompareResult, CompareTarget, KeyRange, Op, OpReply, Refusal, Revision, Txn, TxnReply,
};

use super::kv::{
    delete_reply_from_wire, delete_reply_to_wire, delete_request_from_wire, delete_request_to_wire,
    put_reply_from_wire, put_reply_to_wire, put_request_from_wire, put_request_to_wire,
    range_reply_from_wire, range_reply_to_wire, range_request_from_wire, range_request_to_wire,
};
use super::{BadAnswer, WireError, bare_header};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::compare::{
    CompareResult as WireResult, CompareTarget as WireTarget, TargetUnion as Union,
};
use crate::pb::etcdserverpb::request_op::Request;
use crate::pb::etcdserverpb::response_op::Response;

/// A client's transaction. An operation without content is refused as etcd does.
pub fn txn_from_wire(request: pb::TxnRequest) -> Result<Txn, WireError> {
    Ok(Txn {
        compare: request.compare.into_iter().map(compare_from_wire).collect::<Result<_, _>>()?,
        success: request.success.into_iter().map(op_from_wire).collect::<Result<_, _>>()?,
        failure: request.failure.into_iter().map(op_from_wire).collect::<Result<_, _>>()?,
    })
}

/// A transaction, to the wire.
pub fn txn_to_wire(txn: Txn) -> pb::TxnRequest {
    pb::TxnRequest {
        compare: txn.compare.into_iter().map(compare_to_wire).collect(),
        success: txn.success.into_iter().map(op_to_wire).collect(),
        failure: txn.failure.into_iter().map(op_to_wire).collect(),
    }
}

fn op_from_wire(op: pb::RequestOp) -> Result<Op, WireError> {
    match op.request {
        Some(Request::RequestRange(range)) => Ok(Op::Range(range_request_from_wire(range)?)),
        Some(Request::RequestPut(put)) => Ok(Op::Put(put_request_from_wire(put))),
        Some(Request::RequestDeleteRange(delete)) => Ok(Op::DeleteRange(delete_request_from_wire(delete))),
        Some(Request::RequestTxn(_)) => Err(WireError::NotSupported("a transaction inside a transaction is")),
        None => Err(Refusal::KeyNotFound.into()),
    }
}

fn op_to_wire(op: Op) -> pb::RequestOp {
    let request = match op {
        Op::Range(range) => Request::RequestRange(range_request_to_wire(range)),
        Op::Put(put) => Request::RequestPut(put_request_to_wire(put)),
        Op::DeleteRange(delete) => Request::RequestDeleteRange(delete_request_to_wire(delete)),
    };
    pb::RequestOp { request: Some(request) }
}

/// The target decides; a given side of another kind counts as that target's zero, as in etcd.
fn compare_from_wire(compare: pb::Compare) -> Result<Compare, WireError> {
    let result = match WireResult::try_from(compare.result) {
        Ok(WireResult::Equal) => CompareResult::Equal,
        Ok(WireResult::Greater) => CompareResult::Greater,
        Ok(WireResult::Less) => CompareResult::Less,
        Ok(WireResult::NotEqual) => CompareResult::NotEqual,
        Err(_) => return Err(WireError::UnknownEnum { field: "compare result", value: compare.result }),
    };
    let given = compare.target_union;
    let target = match WireTarget::try_from(compare.target) {
        Ok(WireTarget::Version) => CompareTarget::Version(match given {
            Some(Union::Version(n)) => n,
            _ => 0,
        }),
        Ok(WireTarget::Create) => CompareTarget::CreateRevision(match given {
            Some(Union::CreateRevision(n)) => n,
            _ => 0,
        }),
        Ok(WireTarget::Mod) => CompareTarget::ModRevision(match given {
            Some(Union::ModRevision(n)) => n,
            _ => 0,
        }),
        Ok(WireTarget::Lease) => CompareTarget::Lease(match given {
            Some(Union::Lease(n)) => n,
            _ => 0,
        }),
        Ok(WireTarget::Value) => CompareTarget::Value(match given {
            Some(Union::Value(value)) => value,
            _ => Default::default(),
        }),
        Err(_) => return Err(WireError::UnknownEnum { field: "compare target", value: compare.target }),
    };
    Ok(Compare { range: KeyRange { key: compare.key, end: compare.range_end }, result, target })
}

fn compare_to_wire(compare: Compare) -> pb::Compare {
    let result = match compare.result {
        CompareResult::Equal => WireResult::Equal,
        CompareResult::Greater => WireResult::Greater,
        CompareResult::Less => WireResult::Less,
        CompareResult::NotEqual => WireResult::NotEqual,
    };
    let (target, union) = match compare.target {
        CompareTarget::Version(n) => (WireTarget::Version, Union::Version(n)),
        CompareTarget::CreateRevision(n) => (WireTarget::Create, Union::CreateRevision(n)),
        CompareTarget::ModRevision(n) => (WireTarget::Mod, Union::ModRevision(n)),
        CompareTarget::Value(value) => (WireTarget::Value, Union::Value(value)),
        CompareTarget::Lease(n) => (WireTarget::Lease, Union::Lease(n)),
    };
    pb::Compare {
        result: result.into(),
        target: target.into(),
        key: compare.range.key,
        target_union: Some(union),
        range_end: compare.range.end,
    }
}

/// A transaction's answer, to the wire.
///
/// The answers inside carry the revision each operation saw: that of the store before the transaction up to
/// its first effective write, the transaction's own from then on.
pub fn txn_reply_to_wire(
    reply: &TxnReply,
    revision: Revision,
    header: Option<pb::ResponseHeader>,
) -> pb::TxnResponse {
    let wrote = reply.replies.iter().any(changes_something);
    let mut seen = if wrote { revision - 1 } else { revision };
    let mut responses = Vec::with_capacity(reply.replies.len());
    for op in &reply.replies {
        if changes_something(op) {
            seen = revision;
        }
        let response = match op {
            OpReply::Range(r) => Response::ResponseRange(range_reply_to_wire(r, bare_header(seen))),
            OpReply::Put(r) => Response::ResponsePut(put_reply_to_wire(r, bare_header(seen))),
            OpReply::DeleteRange(r) => {
                Response::ResponseDeleteRange(delete_reply_to_wire(r, bare_header(seen)))
            }
        };
        responses.push(pb::ResponseOp { response: Some(response) });
    }
    pb::TxnResponse { header, succeeded: reply.succeeded, responses }
}

fn changes_something(reply: &OpReply) -> bool {
    match reply {
        OpReply::Range(_) => false,
        OpReply::Put(_) => true,
        OpReply::DeleteRange(delete) => delete.deleted > 0,
    }
}

/// A transaction's answer, from the wire.
pub fn txn_reply_from_wire(response: pb::TxnResponse) -> Result<TxnReply, BadAnswer> {
    let replies = response
        .responses
        .into_iter()
        .map(|op| match op.response {
            Some(Response::ResponseRange(r)) => Ok(OpReply::Range(range_reply_from_wire(r))),
            Some(Response::ResponsePut(r)) => Ok(OpReply::Put(put_reply_from_wire(r))),
            Some(Response::ResponseDeleteRange(r)) => Ok(OpReply::DeleteRange(delete_reply_from_wire(r))),
            Some(Response::ResponseTxn(_)) => Err(BadAnswer("a flat transaction")),
            None => Err(BadAnswer("an operation's content")),
        })
        .collect::<Result<_, _>>()?;
    Ok(TxnReply { succeeded: response.succeeded, replies })
}

#[cfg(test)]
mod tests {
    use meta_types::{PutReply, RangeReply, RangeRequest};

    use super::*;

    #[test]
    fn a_transaction_survives_the_wire() {
        let txn = Txn {
            compare: vec![
                Compare::absent("a"),
                Compare {
                    range: KeyRange::prefix("p"),
                    result: CompareResult::NotEqual,
                    target: CompareTarget::Value("v".into()),
                },
                Compare {
                    range: KeyRange::one("l"),
                    result: CompareResult::Less,
                    target: CompareTarget::Lease(7),
                },
            ],
            success: vec![Op::put_leased("a", "1", 9), Op::delete("b")],
            failure: vec![Op::Range(RangeRequest { limit: 3, keys_only: true, ..RangeRequest::prefix("a") })],
        };
        assert_eq!(txn_from_wire(txn_to_wire(txn.clone())), Ok(txn));
    }

    #[test]
    fn a_given_side_of_another_kind_is_zero() {
        let wire = pb::Compare {
            result: 0,
            target: WireTarget::Mod.into(),
            key: "k".into(),
            target_union: Some(Union::Version(5)),
            range_end: Default::default(),
        };
        assert_eq!(compare_from_wire(wire).unwrap().target, CompareTarget::ModRevision(0));
    }

    #[test]
    fn answers_inside_carry_the_revision_they_saw() {
        let reply = TxnReply {
            succeeded: true,
            replies: vec![
                OpReply::Range(RangeReply::default()),
                OpReply::Put(PutReply::default()),
                OpReply::Range(RangeReply::default()),
            ],
        };
        let wire = txn_reply_to_wire(&reply, 9, bare_header(9));
        let revisions: Vec<_> = wire
            .responses
            .iter()
            .map(|op| match op.response.as_ref().unwrap() {
                Response::ResponseRange(r) => r.header.as_ref().unwrap().revision,
                Response::ResponsePut(r) => r.header.as_ref().unwrap().revision,
                _ => panic!("unexpected answer"),
            })
            .collect();
        assert_eq!(revisions, [8, 9, 9]);
        assert_eq!(txn_reply_from_wire(wire), Ok(reply));
    }

    #[test]
    fn an_empty_operation_is_refused() {
        let request = pb::TxnRequest { success: vec![pb::RequestOp { request: None }], ..Default::default() };
        assert_eq!(txn_from_wire(request), Err(WireError::Refused(Refusal::KeyNotFound)));
    }
}
