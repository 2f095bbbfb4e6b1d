//! Random commands and requests over a few keys and leases, so that they meet.

use bytes::Bytes;
use meta_types::{
    Command, Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyRange, LeaseId, Op, PutRequest,
    RangeRequest, SortOrder, SortTarget, Txn,
};
use proptest::prelude::*;

const KEYS: [&[u8]; 12] =
    [b"\0", b"a", b"a\0", b"a\0\x01", b"a\x01", b"aa", b"ab", b"b", b"b\xff", b"c", b"d/1", b"d/2"];

pub fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        40 => (0..KEYS.len()).prop_map(|n| Bytes::from_static(KEYS[n])),
        1 => Just(Bytes::new()),
    ]
}

pub fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        3 => key().prop_map(KeyRange::one),
        2 => key().prop_map(KeyRange::prefix),
        2 => (key(), key()).prop_map(|(key, end)| KeyRange { key, end }),
        2 => key().prop_map(|key| KeyRange { key, end: Bytes::from_static(b"\0") }),
    ]
}

fn value() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(0..3u8, 0..3).prop_map(Bytes::from)
}

pub fn lease() -> impl Strategy<Value = LeaseId> {
    prop_oneof![Just(-7), Just(1), Just(2), Just(3), Just(9)]
}

fn put() -> impl Strategy<Value = PutRequest> {
    let lease = prop_oneof![3 => Just(0), 2 => lease()];
    let rarely = || proptest::bool::weighted(0.1);
    (key(), value(), lease, any::<bool>(), rarely(), rarely()).prop_map(
        |(key, value, lease, prev_kv, ignore_value, ignore_lease)| PutRequest {
            value: if ignore_value && key.len() > 1 { Bytes::new() } else { value },
            lease: if ignore_lease && key.len() > 1 { 0 } else { lease },
            key,
            prev_kv,
            ignore_value,
            ignore_lease,
        },
    )
}

fn delete() -> impl Strategy<Value = DeleteRangeRequest> {
    (range(), any::<bool>()).prop_map(|(range, prev_kv)| DeleteRangeRequest { range, prev_kv })
}

/// Revisions are counted back from the head: 1 is the head, 0 the next one; the rig turns them round.
pub fn range_request() -> impl Strategy<Value = RangeRequest> {
    let bound = || prop_oneof![4 => Just(0i64), 1 => 1..40i64];
    let order = prop_oneof![Just(SortOrder::None), Just(SortOrder::Ascend), Just(SortOrder::Descend)];
    let target = prop_oneof![
        2 => Just(SortTarget::Key),
        1 => Just(SortTarget::Version),
        1 => Just(SortTarget::Create),
        1 => Just(SortTarget::Mod),
        1 => Just(SortTarget::Value),
    ];
    let revision = prop_oneof![2 => Just(i64::MAX), 2 => 0..30i64];
    let flags = (proptest::bool::weighted(0.1), proptest::bool::weighted(0.2));
    let filters = (bound(), bound(), bound(), bound());
    (range(), -1..5i64, revision, order, target, flags, filters).prop_map(
        |(range, limit, revision, sort_order, sort_target, flags, filters)| RangeRequest {
            range,
            limit,
            revision,
            sort_order,
            sort_target,
            serializable: false,
            count_only: flags.0,
            keys_only: flags.1,
            min_mod_revision: filters.0,
            max_mod_revision: filters.1,
            min_create_revision: filters.2,
            max_create_revision: filters.3,
        },
    )
}

fn compare() -> impl Strategy<Value = Compare> {
    let result = prop_oneof![
        Just(CompareResult::Equal),
        Just(CompareResult::NotEqual),
        Just(CompareResult::Greater),
        Just(CompareResult::Less),
    ];
    let target = prop_oneof![
        (0..4i64).prop_map(CompareTarget::Version),
        (0..30i64).prop_map(CompareTarget::CreateRevision),
        (0..30i64).prop_map(CompareTarget::ModRevision),
        value().prop_map(CompareTarget::Value),
        lease().prop_map(CompareTarget::Lease),
    ];
    (range(), result, target).prop_map(|(range, result, target)| Compare { range, result, target })
}

fn branch(read_only: bool) -> impl Strategy<Value = Vec<Op>> {
    let write = u32::from(!read_only);
    let op = prop_oneof![
        2 => range_request().prop_map(Op::Range),
        3 * write => put().prop_map(Op::Put),
        write => delete().prop_map(Op::DeleteRange),
    ];
    proptest::collection::vec(op, 0..4)
}

pub fn txn(read_only: bool) -> impl Strategy<Value = Txn> {
    (proptest::collection::vec(compare(), 0..3), branch(read_only), branch(read_only))
        .prop_map(|(compare, success, failure)| Txn { compare, success, failure })
}

pub fn command() -> impl Strategy<Value = Command> {
    let ids = || proptest::collection::vec(lease(), 0..4);
    prop_oneof![
        12 => put().prop_map(Command::Put),
        5 => delete().prop_map(Command::DeleteRange),
        8 => txn(false).prop_map(Command::Txn),
        2 => (0..25i64).prop_map(Command::Compact),
        4 => (prop_oneof![lease(), Just(0)], -1..6i64).prop_map(|(id, ttl)| Command::LeaseGrant { id, ttl }),
        1 => lease().prop_map(|id| Command::LeaseRevoke { id }),
        1 => ids().prop_map(|ids| Command::LeaseKeepAlive { ids }),
        2 => (0..2u64, ids()).prop_map(|(term, ids)| Command::LeaseExpire { term, ids }),
        1 => Just(Command::LeaseTick),
        1 => (1..3u64, 0..3u32).prop_map(|(cluster_id, feature_level)| Command::SetCluster {
            cluster_id,
            name: Bytes::from_static(b"c"),
            feature_level,
        }),
    ]
}
