//! Answers recorded from a real etcd, and faults that users of such systems reported.

use bytes::Bytes;
use meta_core::Core;
use meta_types::limits::{MAX_LEASE_TTL_S, MAX_REQUEST_BYTES, MAX_TXN_OPS};
use meta_types::{
    Command, Compare, CompareResult, CompareTarget, DeleteRangeRequest, EventKind, KeyRange, Op, OpReply,
    PutRequest, RangeReply, RangeRequest, Refusal, Response, SortOrder, SortTarget, Txn, TxnReply,
};

use crate::rig::Rig;

fn put(key: &'static str, value: &'static str) -> Command {
    Command::Put(PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() })
}

fn delete(range: KeyRange) -> Command {
    Command::DeleteRange(DeleteRangeRequest { range, prev_kv: false })
}

fn delete_op(range: KeyRange) -> Op {
    Op::DeleteRange(DeleteRangeRequest { range, prev_kv: false })
}

fn from_key(key: &'static str) -> KeyRange {
    KeyRange::between(key, "\0")
}

fn just(success: Vec<Op>) -> Txn {
    Txn { success, ..Txn::default() }
}

/// A store with these commands done, each of which must succeed.
fn store(commands: impl IntoIterator<Item = Command>) -> Rig {
    let mut rig = Rig::new();
    for command in commands {
        rig.ask(command).unwrap();
    }
    rig
}

fn keys(reply: &RangeReply) -> Vec<&str> {
    reply.kvs.iter().map(|kv| std::str::from_utf8(&kv.key).unwrap()).collect()
}

fn compacted(compact_revision: i64) -> Refusal {
    Refusal::Compacted { compact_revision }
}

#[test]
fn an_empty_store_answers_at_one_and_the_first_write_is_two() {
    let mut rig = Rig::new();
    assert_eq!(rig.core.revision(), 1);
    assert_eq!(rig.outcome(put("a", "")).revision, 2);
    let reply = rig.core.range(&RangeRequest::get("a")).unwrap();
    let kv = &reply.kvs[0];
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 2, 1));
}

#[test]
fn an_empty_key_is_refused_everywhere() {
    let mut rig = Rig::new();
    let txn = |op: Op| Command::Txn(just(vec![op]));
    let empty = RangeRequest::get("");
    for command in [
        put("", "v"),
        delete(KeyRange::one("")),
        txn(Op::put("", "v")),
        txn(Op::delete("")),
        txn(Op::Range(empty.clone())),
        Command::Txn(Txn { compare: vec![Compare::absent("")], ..Txn::default() }),
    ] {
        assert_eq!(Core::validate(&command), Err(Refusal::EmptyKey));
        assert_eq!(rig.ask(command), Err(Refusal::EmptyKey));
    }
    assert_eq!(rig.core.range(&empty), Err(Refusal::EmptyKey));
    assert_eq!(rig.core.revision(), 1);
}

#[test]
fn revisions_ahead_and_behind_are_refused() {
    let mut rig = store([put("a", "1"), put("a", "2"), put("a", "3"), Command::Compact(3)]);
    let at = |revision| RangeRequest { revision, ..RangeRequest::get("a") };
    assert_eq!(rig.core.range(&at(1_000_000_000)), Err(Refusal::FutureRevision));
    assert_eq!(rig.core.range(&at(2)), Err(compacted(3)));
    assert_eq!(rig.core.range(&at(3)).unwrap().kvs[0].value, "2");
    assert_eq!(rig.core.range(&at(-5)).unwrap().kvs[0].value, "3");
    assert_eq!(rig.ask(Command::Compact(1_000_000_000)), Err(Refusal::FutureRevision));
    for revision in [3, 2, 0, -1] {
        assert_eq!(rig.ask(Command::Compact(revision)), Err(compacted(3)));
    }
    assert_eq!(rig.core.history(2, 10), Err(compacted(3)));
}

#[test]
fn ignore_value_and_ignore_lease_need_the_key_and_nothing_else() {
    let ignore_value = PutRequest { key: "a".into(), ignore_value: true, ..PutRequest::default() };
    let ignore_lease =
        PutRequest { key: "a".into(), value: "w".into(), ignore_lease: true, ..PutRequest::default() };
    let mut rig = Rig::new();
    for request in [&ignore_value, &ignore_lease] {
        assert_eq!(rig.ask(Command::Put(request.clone())), Err(Refusal::KeyNotFound));
        let txn = just(vec![Op::put("b", "1"), Op::Put(request.clone())]);
        assert_eq!(rig.ask(Command::Txn(txn)), Err(Refusal::KeyNotFound));
    }
    assert_eq!(rig.core.revision(), 1, "a refused transaction leaves nothing");
    let with_value = PutRequest { value: "x".into(), ..ignore_value.clone() };
    assert_eq!(Core::validate(&Command::Put(with_value.clone())), Err(Refusal::ValueProvided));
    assert_eq!(rig.ask(Command::Put(with_value)), Err(Refusal::ValueProvided));
    let with_lease = PutRequest { lease: 5, ..ignore_lease.clone() };
    assert_eq!(rig.ask(Command::Put(with_lease)), Err(Refusal::LeaseProvided));

    rig.ask(put("a", "v")).unwrap();
    rig.ask(Command::Put(ignore_value)).unwrap();
    assert_eq!(rig.core.range(&RangeRequest::get("a")).unwrap().kvs[0].value, "v");
    assert_eq!(rig.core.range(&RangeRequest::get("a")).unwrap().kvs[0].version, 2);
}

#[test]
fn sizes_are_refused_before_the_log() {
    let ops = vec![Op::get("a"); MAX_TXN_OPS + 1];
    let compare = vec![Compare::absent("a"); MAX_TXN_OPS + 1];
    for txn in
        [just(ops.clone()), Txn { failure: ops[1..].to_vec(), compare: compare.clone(), ..Txn::default() }]
    {
        assert_eq!(Core::validate(&Command::Txn(txn.clone())), Err(Refusal::TooManyOps));
        assert_eq!(Core::new().read_txn(&txn), Err(Refusal::TooManyOps));
    }
    assert_eq!(Core::validate(&Command::Txn(just(ops[1..].to_vec()))), Ok(()));
    let value = Bytes::from(vec![7; MAX_REQUEST_BYTES]);
    let large = PutRequest { key: "k".into(), value: value.clone(), ..PutRequest::default() };
    assert_eq!(Core::validate(&Command::Put(large)), Err(Refusal::RequestTooLarge));
    let half = Op::put("k", value.slice(..MAX_REQUEST_BYTES / 2));
    let other = Op::put("l", value.slice(..MAX_REQUEST_BYTES / 2));
    assert_eq!(Core::validate(&Command::Txn(just(vec![half, other]))), Err(Refusal::RequestTooLarge));
}

#[test]
fn a_key_is_written_once_in_a_transaction() {
    let mut rig = store([put("cfg/a", "1"), put("cfg/b", "1")]);
    for branch in [
        vec![Op::put("k", "1"), Op::put("k", "2")],
        vec![delete_op(KeyRange::between("a", "c")), Op::put("b", "1")],
        vec![Op::put("b", "1"), delete_op(KeyRange::between("a", "c"))],
        // The end "\0" means "from key on": it overlaps as any other range does.
        vec![delete_op(from_key("cfg/")), Op::put("cfg/a", "2")],
        vec![delete_op(from_key("a")), Op::put("a", "2")],
        vec![delete_op(KeyRange::one("a")), Op::put("a", "2")],
        vec![delete_op(KeyRange::prefix("")), Op::put("z", "2")],
    ] {
        let other = Txn { failure: branch.clone(), ..Txn::default() };
        for txn in [just(branch), other] {
            assert_eq!(Core::validate(&Command::Txn(txn.clone())), Err(Refusal::DuplicateKey), "{txn:?}");
            assert_eq!(rig.ask(Command::Txn(txn)), Err(Refusal::DuplicateKey));
        }
    }
    assert_eq!(rig.core.revision(), 3);
    // "\0\1" is an end like any other, here an empty range.
    let empty = just(vec![delete_op(KeyRange::between("a", "\0\x01")), Op::put("b", "2")]);
    assert!(rig.ask(Command::Txn(empty)).is_ok());
    // The same key in both branches is fine.
    let both = Txn { compare: vec![], success: vec![Op::put("k", "1")], failure: vec![Op::put("k", "2")] };
    assert!(rig.ask(Command::Txn(both)).is_ok());
}

#[test]
fn the_same_key_deleted_twice_is_accepted_and_counts_once() {
    let mut rig = store([put("a", "1")]);
    let reply = rig.ask(Command::Txn(just(vec![Op::delete("a"), Op::delete("a")]))).unwrap();
    let Response::Txn(TxnReply { replies, .. }) = reply else { panic!("{reply:?}") };
    let deleted = replies.iter().map(|reply| match reply {
        OpReply::DeleteRange(reply) => reply.deleted,
        other => panic!("{other:?}"),
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn what_changes_nothing_takes_no_revision() {
    let mut rig = store([put("a", "1"), Command::LeaseGrant { id: 5, ttl: 10 }]);
    let failing =
        Txn { compare: vec![Compare::absent("a")], success: vec![Op::put("b", "")], failure: vec![] };
    for command in [
        Command::Txn(just(vec![Op::get("a")])),
        Command::Txn(failing),
        delete(KeyRange::one("nothing")),
        delete(KeyRange::between("x", "b")),
        Command::LeaseRevoke { id: 5 },
        Command::LeaseTick,
        Command::Compact(2),
    ] {
        let outcome = rig.outcome(command.clone());
        assert!(outcome.result.is_ok(), "{command:?}");
        assert_eq!(outcome.revision, 2, "{command:?}");
    }
}

#[test]
fn every_value_compare_on_a_missing_key_is_false() {
    let core = Core::new();
    let holds = |result, target| {
        let compare = vec![Compare { range: KeyRange::one("none"), result, target }];
        core.read_txn(&Txn { compare, ..Txn::default() }).unwrap().succeeded
    };
    use CompareResult::{Equal, Greater, Less, NotEqual};
    for target in [
        CompareTarget::Version(0),
        CompareTarget::CreateRevision(0),
        CompareTarget::ModRevision(0),
        CompareTarget::Lease(0),
    ] {
        assert!(holds(Equal, target.clone()));
        assert!(!holds(NotEqual, target));
    }
    for result in [Equal, NotEqual, Greater, Less] {
        assert!(!holds(result, CompareTarget::Value(Bytes::new())));
        assert!(!holds(result, CompareTarget::Value("x".into())));
    }
}

#[test]
fn a_range_compare_needs_every_key_and_an_empty_one_is_a_missing_key() {
    let rig = store([put("p/a", "1"), put("p/b", "1"), put("p/c", "2")]);
    let succeeded =
        |compare| rig.core.read_txn(&Txn { compare: vec![compare], ..Txn::default() }).unwrap().succeeded;
    let value = |end: &'static str| Compare {
        range: KeyRange::between("p/a", end),
        result: CompareResult::Equal,
        target: CompareTarget::Value("1".into()),
    };
    assert!(succeeded(value("p/c")));
    assert!(!succeeded(value("p/d")));
    assert!(!succeeded(Compare::empty_prefix("p/")));
    assert!(succeeded(Compare::empty_prefix("q/")));
}

#[test]
fn later_operations_see_earlier_writes_under_one_revision() {
    let mut rig = store([put("a", "1"), put("b", "1")]);
    let old = Op::Range(RangeRequest { revision: 3, ..RangeRequest::prefix("") });
    let branch = vec![Op::put("c", "1"), Op::delete("a"), Op::Range(RangeRequest::prefix("")), old];
    let outcome = rig.outcome(Command::Txn(just(branch)));
    assert_eq!(outcome.revision, 4);
    let Ok(Response::Txn(reply)) = outcome.result else { panic!("{outcome:?}") };
    let [_, _, OpReply::Range(now), OpReply::Range(before)] = &reply.replies[..] else { panic!("{reply:?}") };
    assert_eq!((keys(now), now.count), (vec!["b", "c"], 2));
    assert_eq!((keys(before), before.count), (vec!["a", "b"], 2));
    let history = rig.core.history(4, 10).unwrap();
    let kinds: Vec<_> = history[0].events.iter().map(|event| (event.kind, &event.kv.key[..])).collect();
    assert_eq!(kinds, [(EventKind::Put, &b"c"[..]), (EventKind::Delete, &b"a"[..])]);
    assert_eq!(history[0].events[1].kv.version, 0);
}

#[test]
fn a_read_refuses_a_transaction_that_could_write() {
    let txn = Txn { failure: vec![Op::put("a", "1")], ..Txn::default() };
    assert_eq!(Core::new().read_txn(&txn), Err(Refusal::NotReadOnly));
}

#[test]
fn a1_a_watch_at_the_compact_revision_gets_its_delete() {
    let mut rig = store([put("k1", "v2"), put("k1", "v3"), put("k1", "v4")]);
    rig.ask(delete(KeyRange::one("k1"))).unwrap();
    rig.ask(put("k1", "v6")).unwrap();
    rig.ask(Command::Compact(5)).unwrap();
    for restarted in [false, true] {
        let history = rig.core.history(5, 10).unwrap();
        let seen: Vec<_> = history.iter().map(|h| (h.revision, h.events[0].kind)).collect();
        assert_eq!(seen, [(5, EventKind::Delete), (6, EventKind::Put)], "restarted: {restarted}");
        assert_eq!(history[0].events[0].prev, None, "what was before it is compacted");
        assert!(rig.core.sweep(1000));
        let records = rig.core.freeze().step(usize::MAX);
        rig.core = Core::import(records.into_iter()).unwrap();
    }
}

#[test]
fn a3_the_revision_never_goes_down() {
    let mut rig = store([put("foo", "bar")]);
    rig.ask(delete(KeyRange::one("foo"))).unwrap();
    rig.ask(Command::Compact(3)).unwrap();
    rig.core.sweep(1000);
    let records = rig.core.freeze().step(usize::MAX);
    rig.core = Core::import(records.into_iter()).unwrap();
    assert_eq!(rig.core.range(&RangeRequest::get("foo")).unwrap().count, 0);
    assert_eq!(rig.core.revision(), 3);
    assert_eq!(rig.outcome(put("foo", "new")).revision, 4);
}

#[test]
fn a6_a_range_at_a_compacted_revision_refuses_the_whole_transaction() {
    let mut rig = store((0..10).map(|_| put("k", "v")));
    rig.ask(Command::Compact(8)).unwrap();
    let old = Op::Range(RangeRequest { revision: 3, ..RangeRequest::get("k") });
    let outcome = rig.outcome(Command::Txn(just(vec![Op::put("q", "1"), old])));
    assert_eq!(outcome.result, Err(compacted(8)));
    assert_eq!((outcome.revision, rig.core.range(&RangeRequest::get("q")).unwrap().count), (11, 0));
    let ahead = Op::Range(RangeRequest { revision: 12, ..RangeRequest::get("k") });
    let outcome = rig.outcome(Command::Txn(just(vec![Op::put("q", "1"), ahead])));
    assert_eq!(outcome.result, Err(Refusal::FutureRevision));
}

#[test]
fn a8_count_is_that_of_the_whole_range() {
    let rig = store(["key1", "key2", "key3", "key4", "key5"].map(|key| put(key, "v")));
    let between = RangeRequest { range: KeyRange::between("key1", "key5"), limit: 2, ..Default::default() };
    let reply = rig.core.range(&between).unwrap();
    assert_eq!((reply.count, reply.more, keys(&reply)), (4, true, vec!["key1", "key2"]));
    let newest =
        RangeRequest { range: KeyRange::between("key", "kez"), min_mod_revision: 6, ..Default::default() };
    let reply = rig.core.range(&newest).unwrap();
    assert_eq!((reply.count, reply.more, keys(&reply)), (5, false, vec!["key5"]));
    let only = RangeRequest { count_only: true, limit: 1, min_mod_revision: 0, ..newest };
    let reply = rig.core.range(&only).unwrap();
    assert_eq!((reply.count, reply.more, reply.kvs.len()), (5, false, 0));
}

#[test]
fn sorting_comes_before_the_limit() {
    let rig = store([put("a", "z"), put("b", "y"), put("c", "x"), put("a", "zz")]);
    let sorted = |sort_target, sort_order, keys_only| {
        let request =
            RangeRequest { sort_target, sort_order, keys_only, limit: 1, ..RangeRequest::prefix("") };
        let reply = rig.core.range(&request).unwrap();
        assert!(reply.more);
        let kv = &reply.kvs[0];
        (kv.key.clone(), kv.value.clone())
    };
    let pair = |key: &'static str, value: &'static str| (Bytes::from(key), Bytes::from(value));
    use SortOrder::{Ascend, Descend, None};
    assert_eq!(sorted(SortTarget::Key, Descend, false), pair("c", "x"));
    assert_eq!(sorted(SortTarget::Create, Ascend, false), pair("a", "zz"));
    assert_eq!(sorted(SortTarget::Create, Descend, false), pair("c", "x"));
    assert_eq!(sorted(SortTarget::Mod, Descend, false), pair("a", "zz"));
    assert_eq!(sorted(SortTarget::Version, Descend, false), pair("a", "zz"));
    assert_eq!(sorted(SortTarget::Value, Ascend, true), pair("c", ""), "sorted by the value it leaves out");
    // etcd's exception: no order given, so only `limit` + 1 keys are looked at.
    assert_eq!(sorted(SortTarget::Value, None, false), pair("b", "y"));
}

#[test]
fn keys_only_keeps_revisions_and_lease() {
    let mut rig = store([Command::LeaseGrant { id: 7, ttl: 60 }]);
    let request = PutRequest { key: "k".into(), value: "v".into(), lease: 7, ..PutRequest::default() };
    rig.ask(Command::Put(request)).unwrap();
    let reply = rig.core.range(&RangeRequest { keys_only: true, ..RangeRequest::get("k") }).unwrap();
    let kv = &reply.kvs[0];
    assert_eq!((kv.lease, kv.version, kv.mod_revision, kv.value.len()), (7, 1, 2, 0));
    assert_eq!(rig.core.range(&RangeRequest::get("k")).unwrap().kvs[0].value, "v", "the stored one keeps it");
}

#[test]
fn a_key_put_again_after_its_delete_is_a_new_one() {
    let mut rig = store([put("k", "1"), put("k", "2"), delete(KeyRange::one("k")), put("k", "3")]);
    let kv = rig.core.range(&RangeRequest::get("k")).unwrap().kvs[0].clone();
    assert_eq!((kv.create_revision, kv.version), (5, 1));
    let prev = PutRequest { key: "k".into(), prev_kv: true, ..PutRequest::default() };
    let Ok(Response::Put(reply)) = rig.ask(Command::Put(prev)) else { panic!() };
    assert_eq!(reply.prev_kv, Some(kv));
}

#[test]
fn lease_answers_are_etcds() {
    let mut rig = Rig::new();
    let grant = |id, ttl| Command::LeaseGrant { id, ttl };
    assert_eq!(rig.ask(grant(1, 0)), Ok(Response::LeaseGrant { id: 1, ttl: 2 }));
    assert_eq!(rig.ask(grant(2, -5)), Ok(Response::LeaseGrant { id: 2, ttl: 2 }));
    assert_eq!(rig.ask(grant(-3, 10)), Ok(Response::LeaseGrant { id: -3, ttl: 10 }));
    assert_eq!(rig.ask(grant(4, MAX_LEASE_TTL_S + 1)), Err(Refusal::LeaseTtlTooLarge));
    assert_eq!(rig.ask(grant(4, MAX_LEASE_TTL_S)), Ok(Response::LeaseGrant { id: 4, ttl: MAX_LEASE_TTL_S }));
    assert_eq!(rig.ask(grant(1, 10)), Err(Refusal::LeaseExists));
    assert_eq!(rig.ask(Command::LeaseRevoke { id: 99 }), Err(Refusal::LeaseNotFound));
    let request = PutRequest { key: "k".into(), lease: 99, ..PutRequest::default() };
    assert_eq!(rig.ask(Command::Put(request)), Err(Refusal::LeaseNotFound));
    let ttls = vec![0, 10];
    assert_eq!(rig.ask(Command::LeaseKeepAlive { ids: vec![99, -3] }), Ok(Response::LeaseKeepAlive { ttls }));
    assert_eq!(rig.core.lease(99), None);
}
