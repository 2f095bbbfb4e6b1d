//! KV: the fixed answers of a real etcd, limits, restarts.

use bytes::Bytes;
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use meta_api::pb::etcdserverpb::request_op::Request;
use meta_api::pb::etcdserverpb::response_op::Response;
use meta_api::status::{ErrorClass, classify};
use tonic::Code;

use crate::rig::{Lone, get, range, refused, within};

fn put(key: &str) -> pb::PutRequest {
    pb::PutRequest { key: Bytes::copy_from_slice(key.as_bytes()), value: "v".into(), ..Default::default() }
}

fn delete(key: &str, end: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.to_owned().into(), range_end: end.to_owned().into(), prev_kv: false }
}

fn txn(success: impl IntoIterator<Item = Request>) -> pb::TxnRequest {
    let op = |request| pb::RequestOp { request: Some(request) };
    pb::TxnRequest { success: success.into_iter().map(op).collect(), ..Default::default() }
}

fn compare(key: &str, target: CompareTarget, result: CompareResult, given: TargetUnion) -> pb::Compare {
    pb::Compare {
        key: key.to_owned().into(),
        target: target.into(),
        result: result.into(),
        target_union: Some(given),
        range_end: Bytes::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_etcds() {
    let mut lone = Lone::start().await;
    let kv = &mut lone.kv;
    let invalid = Code::InvalidArgument;
    refused(kv.put(put("")).await, invalid, "etcdserver: key is not provided");
    refused(kv.range(range("", "")).await, invalid, "etcdserver: key is not provided");
    refused(kv.delete_range(delete("", "")).await, invalid, "etcdserver: key is not provided");
    let missing = pb::PutRequest { value: Bytes::new(), ignore_value: true, ..put("missing") };
    refused(kv.put(missing).await, invalid, "etcdserver: key not found");
    let both = pb::PutRequest { ignore_value: true, ..put("k") };
    refused(kv.put(both).await, invalid, "etcdserver: value is provided");
    let both = pb::PutRequest { ignore_lease: true, lease: 7, ..put("k") };
    refused(kv.put(both).await, invalid, "etcdserver: lease is provided");
    let unknown = pb::PutRequest { lease: 7, ..put("k") };
    refused(kv.put(unknown).await, Code::NotFound, "etcdserver: requested lease not found");
    let many = txn((0..129).map(|i| Request::RequestPut(put(&format!("k{i}")))));
    refused(kv.txn(many).await, invalid, "etcdserver: too many operations in txn request");
    let twice = txn([Request::RequestPut(put("q")), Request::RequestPut(put("q"))]);
    refused(kv.txn(twice).await, invalid, "etcdserver: duplicate key given in txn request");
    let covered = txn([Request::RequestDeleteRange(delete("a", "\0")), Request::RequestPut(put("b"))]);
    refused(kv.txn(covered).await, invalid, "etcdserver: duplicate key given in txn request");
    let odd = pb::RangeRequest { sort_target: 99, ..range("a", "z") };
    refused(kv.range(odd).await, invalid, "etcdserver: invalid sort option");
    let future = "etcdserver: mvcc: required revision is a future revision";
    let ahead = pb::RangeRequest { revision: 1_000_000_000, ..range("a", "") };
    refused(kv.range(ahead).await, Code::OutOfRange, future);
    let ahead = pb::CompactionRequest { revision: 1_000_000_000, physical: false };
    refused(kv.compact(ahead).await, Code::OutOfRange, future);
    let nested = txn([Request::RequestTxn(pb::TxnRequest::default())]);
    assert_eq!(kv.txn(nested).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(get(kv, "k").await.header.unwrap().revision, 1, "a refused call changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_are_limited_as_etcd_limits_them() {
    let mut lone = Lone::start().await;
    let big = |bytes| pb::PutRequest { value: vec![b'x'; bytes].into(), ..put("big") };
    let kv = &mut lone.kv;
    refused(kv.put(big(1536 * 1024)).await, Code::InvalidArgument, "etcdserver: request is too large");
    within("a put of 1.4 MiB", kv.put(big(1400 * 1024))).await.unwrap();
    let status = kv.put(big(3 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().starts_with("grpc: received message larger than max (31457"), "{status:?}");
    assert_eq!(get(kv, "big").await.kvs[0].value.len(), 1400 * 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_has_etcds_bounds_and_names_its_revision() {
    let mut lone = Lone::start().await;
    for i in 0..5 {
        lone.put("k", &i.to_string()).await;
    }
    let kv = &mut lone.kv;
    let compact = |revision| pb::CompactionRequest { revision, physical: true };
    kv.compact(compact(4)).await.unwrap();
    let gone = "etcdserver: mvcc: required revision has been compacted";
    for revision in [4, 3, 0, -1] {
        refused(kv.compact(compact(revision)).await, Code::OutOfRange, gone);
    }
    let status = kv.range(pb::RangeRequest { revision: 3, ..range("k", "") }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::OutOfRange, gone));
    assert_eq!(classify(&status), ErrorClass::Compacted { compact_revision: 4 });
    let at = kv.range(pb::RangeRequest { revision: 4, ..range("k", "") }).await.unwrap().into_inner();
    assert_eq!((at.kvs[0].value.as_ref(), at.header.unwrap().revision), (&b"2"[..], 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_empty_writes_do_not_move_the_revision() {
    let mut lone = Lone::start().await;
    assert_eq!(lone.put("a", "1").await, 2);
    let kv = &mut lone.kv;
    let none = kv.delete_range(delete("none", "")).await.unwrap().into_inner();
    assert_eq!((none.deleted, none.header.unwrap().revision), (0, 2));
    let read = kv.txn(txn([Request::RequestRange(range("a", ""))])).await.unwrap().into_inner();
    assert_eq!(read.header.unwrap().revision, 2);
    let empty = kv.txn(pb::TxnRequest::default()).await.unwrap().into_inner();
    assert!(empty.succeeded && empty.header.unwrap().revision == 2);
    let put_none = txn([Request::RequestDeleteRange(delete("none", ""))]);
    assert_eq!(kv.txn(put_none).await.unwrap().into_inner().header.unwrap().revision, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compares_on_a_missing_key() {
    let mut lone = Lone::start().await;
    use CompareTarget as T;
    let equal = CompareResult::Equal;
    let cases = [
        (T::Version, equal, TargetUnion::Version(0), true),
        (T::Create, equal, TargetUnion::CreateRevision(0), true),
        (T::Mod, equal, TargetUnion::ModRevision(0), true),
        (T::Lease, equal, TargetUnion::Lease(0), true),
        (T::Value, equal, TargetUnion::Value(Bytes::new()), false),
        (T::Value, CompareResult::NotEqual, TargetUnion::Value("x".into()), false),
    ];
    for (target, result, given, holds) in cases {
        let compare = vec![compare("zz", target, result, given)];
        let request = pb::TxnRequest { compare, ..Default::default() };
        let answer = lone.kv.txn(request).await.unwrap().into_inner();
        assert_eq!(answer.succeeded, holds, "{target:?} {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_txn_sees_its_own_writes_and_says_at_which_revision() {
    let mut lone = Lone::start().await;
    lone.put("t", "3").await;
    let request = txn([
        Request::RequestRange(range("t", "")),
        Request::RequestPut(pb::PutRequest { prev_kv: true, value: "4".into(), ..put("t") }),
        Request::RequestRange(range("t", "")),
    ]);
    let answer = lone.kv.txn(request).await.unwrap().into_inner();
    assert_eq!(answer.header.unwrap().revision, 3);
    let [before, put, after] = &answer.responses[..] else { panic!("three answers") };
    let seen = |op: &pb::ResponseOp| match op.response.clone().unwrap() {
        Response::ResponseRange(r) => (r.header.unwrap().revision, r.kvs[0].value.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(seen(before), (2, "3".into()));
    assert_eq!(seen(after), (3, "4".into()));
    let Response::ResponsePut(put) = put.response.clone().unwrap() else { panic!("a put") };
    assert_eq!((put.header.unwrap().revision, put.prev_kv.unwrap().value), (3, "3".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn range_options() {
    let mut lone = Lone::start().await;
    for (key, value) in [("key1", "5"), ("key2", "4"), ("key3", "3"), ("key4", "2"), ("key5", "1")] {
        lone.put(key, value).await;
    }
    let kv = &mut lone.kv;
    let mut ask = async |request: pb::RangeRequest| kv.range(request).await.unwrap().into_inner();
    let cut = ask(pb::RangeRequest { limit: 2, ..range("key1", "key5") }).await;
    assert_eq!((cut.count, cut.more, cut.kvs.len()), (4, true, 2));
    let filtered = ask(pb::RangeRequest { min_mod_revision: 6, ..range("key", "kez") }).await;
    assert_eq!((filtered.count, filtered.more, filtered.kvs.len()), (5, false, 1));
    let counted = ask(pb::RangeRequest { count_only: true, limit: 1, ..range("key", "kez") }).await;
    assert_eq!((counted.count, counted.more, counted.kvs.len()), (5, false, 0));
    let names = ask(pb::RangeRequest { keys_only: true, ..range("key", "kez") }).await;
    assert!(names.kvs.iter().all(|kv| kv.value.is_empty() && kv.mod_revision > 1));
    let sorted =
        ask(pb::RangeRequest { sort_order: 1, sort_target: 4, limit: 2, ..range("key", "kez") }).await;
    let keys: Vec<_> = sorted.kvs.iter().map(|kv| kv.key.clone()).collect();
    assert_eq!(keys, ["key5", "key4"]);
    let reversed = ask(range("key5", "key1")).await;
    assert_eq!((reversed.count, reversed.kvs.len()), (0, 0));
    let local = ask(pb::RangeRequest { serializable: true, ..range("key1", "") }).await;
    assert_eq!(local.kvs.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_range_and_the_stream_of_it_agree() {
    let mut lone = Lone::start().await;
    for chunk in 0..40 {
        let puts = (0..100).map(|i| {
            let value = vec![b'v'; 400].into();
            Request::RequestPut(pb::PutRequest { value, ..put(&format!("k{:05}", chunk * 100 + i)) })
        });
        within("a txn", lone.kv.txn(txn(puts))).await.unwrap();
    }
    let whole = lone.kv.range(range("k", "l")).await.unwrap().into_inner();
    assert_eq!((whole.count, whole.kvs.len()), (4000, 4000));
    let mut chunks = lone.kv.range_stream(range("k", "l")).await.unwrap().into_inner();
    let (mut kvs, mut parts, mut last) = (Vec::new(), 0, None);
    while let Some(chunk) = within("a chunk", chunks.message()).await.unwrap() {
        let chunk = chunk.range_response.unwrap();
        assert!(last.is_none(), "the header is in the last chunk only");
        kvs.extend(chunk.kvs);
        last = chunk.header.map(|header| (header.revision, chunk.count, chunk.more));
        parts += 1;
    }
    assert!(parts > 1);
    assert_eq!(last, Some((whole.header.unwrap().revision, 4000, false)));
    assert_eq!(kvs, whole.kvs);
    let sorted = pb::RangeRequest { sort_order: 2, ..range("k", "l") };
    assert_eq!(lone.kv.range_stream(sorted).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_what_was_acknowledged_and_the_revision() {
    let mut lone = Lone::start().await;
    for i in 0..50 {
        lone.put(&format!("k{i}"), "v").await;
    }
    lone.kv.delete_range(delete("k49", "")).await.unwrap();
    lone.kv.compact(pb::CompactionRequest { revision: 52, physical: true }).await.unwrap();
    let mut lone = lone.restart().await;
    let all = lone.kv.range(range("k", "l")).await.unwrap().into_inner();
    assert_eq!((all.count, all.header.unwrap().revision), (49, 52));
    assert_eq!(lone.put("k49", "again").await, 53);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_quota_puts_are_refused_until_keys_are_deleted() {
    let mut lone = Lone::start_with(|options| options.quota.0 = 100_000).await;
    let kilobyte = "x".repeat(1000);
    let full = async {
        for i in 0.. {
            let request = pb::PutRequest { value: kilobyte.clone().into(), ..put(&format!("k{i:05}")) };
            if let Err(status) = lone.kv.put(request).await {
                return status;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        unreachable!()
    };
    let status = within("the quota", full).await;
    let text = "etcdserver: mvcc: database space exceeded";
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, text));
    let grant = pb::LeaseGrantRequest { ttl: 60, id: 1 };
    refused(lone.lease.lease_grant(grant).await, Code::ResourceExhausted, text);
    assert!(!get(&mut lone.kv, "k00000").await.kvs.is_empty());
    lone.kv.delete_range(delete("k", "l")).await.unwrap();
    let again = async {
        while lone.kv.put(put("k")).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    within("puts to go on by themselves", again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_over_its_bound_is_compacted_without_being_asked() {
    let mut lone = Lone::start_with(|options| options.history_max_bytes.0 = 100_000).await;
    let value = "x".repeat(4_000);
    let mut last = 0;
    for _ in 0..100 {
        last = lone.put("k", &value).await;
    }
    // A slow machine compacts between two puts too, and then once more for those after it.
    let bounded = async {
        loop {
            let oldest = pb::RangeRequest { revision: 2, ..range("k", "") };
            if let Err(status) = lone.kv.range(oldest).await {
                let ErrorClass::Compacted { compact_revision } = classify(&status) else {
                    panic!("another refusal: {status}");
                };
                if compact_revision > 50 {
                    return compact_revision;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let compact_revision = within("the compaction", bounded).await;
    assert!(compact_revision <= last, "{compact_revision} of {last}");
    assert_eq!(get(&mut lone.kv, "k").await.kvs[0].version, 100, "what is current stays");
}
