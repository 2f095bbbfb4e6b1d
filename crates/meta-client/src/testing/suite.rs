//! What every store must do, asked through [`Kv`]. Each case keeps to keys of its own, so that the suite can run
//! against a store that others use too; the compaction comes last.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use meta_types::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Event, EventKind, KeyRange, Op, OpReply,
    PutRequest, RangeRequest, Revision, SortOrder, SortTarget, Txn,
};

use crate::kv::{Kv, KvError, WatchRequest, Watcher};

/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs every case; panics at the first that fails.
pub async fn run(kv: Arc<dyn Kv>, prefix: &str) {
    let case = |name: &str| Case { kv: Arc::clone(&kv), prefix: format!("{prefix}/{name}/") };
    revisions(case("revisions")).await;
    range_options(case("ranges")).await;
    transactions(case("txn")).await;
    compares(case("compare")).await;
    refusals(case("refusals")).await;
    leases(case("lease")).await;
    watches(case("watch")).await;
    compaction(case("compact")).await;
}

struct Case {
    kv: Arc<dyn Kv>,
    prefix: String,
}

impl Case {
    fn key(&self, name: &str) -> Bytes {
        Bytes::from(format!("{}{name}", self.prefix))
    }

    async fn put(&self, name: &str, value: &str) -> Revision {
        let request =
            PutRequest { key: self.key(name), value: Bytes::from(value.to_owned()), ..PutRequest::default() };
        self.kv.put(request).await.unwrap().revision
    }

    async fn value(&self, name: &str, revision: Revision) -> Option<String> {
        let request = RangeRequest { revision, ..RangeRequest::get(self.key(name)) };
        let found = self.kv.range(request).await.unwrap().value.kvs;
        found.first().map(|kv| String::from_utf8(kv.value.to_vec()).unwrap())
    }

    async fn txn(&self, compare: Vec<Compare>, success: Vec<Op>) -> (bool, Revision) {
        let reply = self.kv.txn(Txn { compare, success, failure: vec![] }).await.unwrap();
        (reply.value.succeeded, reply.revision)
    }
}

fn rejected<T: std::fmt::Debug>(result: Result<T, KvError>) -> (i32, String) {
    match result.unwrap_err() {
        KvError::Rejected { code, message } => (code, message),
        other => panic!("{other:?}"),
    }
}

async fn revisions(case: Case) {
    let first = case.put("a", "1").await;
    let second = case.put("a", "2").await;
    assert_eq!(second, first + 1, "each write takes exactly the next revision");
    let got = case.kv.range(RangeRequest::get(case.key("a"))).await.unwrap();
    let kv = &got.value.kvs[0];
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (first, second, 2));
    assert_eq!(case.value("a", first).await.as_deref(), Some("1"), "the past can be read");
    let future = RangeRequest { revision: got.revision + 1000, ..RangeRequest::get(case.key("a")) };
    assert_eq!(rejected(case.kv.range(future).await).0, 11);

    let gone = DeleteRangeRequest { range: KeyRange::one(case.key("a")), prev_kv: true };
    let deleted = case.kv.delete_range(gone.clone()).await.unwrap();
    assert_eq!((deleted.value.deleted, deleted.value.prev_kvs.len()), (1, 1));
    assert_eq!(case.value("a", 0).await, None);
    let nothing = case.kv.delete_range(gone).await.unwrap();
    assert_eq!((nothing.value.deleted, nothing.revision), (0, deleted.revision), "nothing takes no revision");
}

async fn range_options(case: Case) {
    for (name, value) in [("a", "3"), ("b", "1"), ("c", "2")] {
        case.put(name, value).await;
    }
    let all = RangeRequest::prefix(Bytes::from(case.prefix.clone()));
    let names = |kvs: &[Arc<meta_types::KeyValue>]| -> String {
        kvs.iter().map(|kv| *kv.key.last().unwrap() as char).collect()
    };
    let limited = case.kv.range(RangeRequest { limit: 2, ..all.clone() }).await.unwrap().value;
    assert_eq!((names(&limited.kvs).as_str(), limited.more, limited.count), ("ab", true, 3));
    let sorted =
        RangeRequest { sort_target: SortTarget::Value, sort_order: SortOrder::Descend, ..all.clone() };
    assert_eq!(names(&case.kv.range(sorted).await.unwrap().value.kvs), "acb");
    let keys = case.kv.range(RangeRequest { keys_only: true, ..all.clone() }).await.unwrap().value;
    assert!(keys.kvs.iter().all(|kv| kv.value.is_empty()) && keys.kvs.len() == 3);
    let count = case.kv.range(RangeRequest { count_only: true, ..all }).await.unwrap().value;
    assert_eq!((count.count, count.kvs.len()), (3, 0));
}

async fn transactions(case: Case) {
    let (done, at) = case
        .txn(
            vec![Compare::absent(case.key("a"))],
            vec![Op::put(case.key("a"), "1"), Op::put(case.key("b"), "1")],
        )
        .await;
    assert!(done);
    let (again, unchanged) =
        case.txn(vec![Compare::absent(case.key("a"))], vec![Op::put(case.key("a"), "2")]).await;
    assert!(!again && unchanged == at, "the failed guard changed nothing");
    let kvs = case.kv.range(RangeRequest::prefix(Bytes::from(case.prefix.clone()))).await.unwrap().value.kvs;
    assert!(kvs.iter().all(|kv| kv.mod_revision == at), "one transaction is one revision");

    let swap = Txn {
        compare: vec![Compare::unchanged(case.key("a"), at)],
        success: vec![Op::get(case.key("a")), Op::delete(case.key("a")), Op::get(case.key("a"))],
        failure: vec![],
    };
    let replies = case.kv.txn(swap).await.unwrap().value.replies;
    let counts: Vec<i64> = replies
        .iter()
        .map(|reply| match reply {
            OpReply::Range(range) => range.count,
            OpReply::DeleteRange(delete) => delete.deleted,
            OpReply::Put(_) => -1,
        })
        .collect();
    assert_eq!(counts, [1, 1, 0], "operations see those before them");
}

async fn compares(case: Case) {
    let (a, b) = (case.put("p/a", "x").await, case.put("p/b", "y").await);
    let prefix = KeyRange::prefix(case.key("p/"));
    let over = |result, target| Compare { range: prefix.clone(), result, target };
    let missing = KeyRange::one(case.key("none"));
    let held = [
        (Compare::empty_prefix(case.key("p/")), false),
        (Compare::empty_prefix(case.key("q/")), true),
        (Compare::exists(case.key("p/a")), true),
        (Compare::created_at(case.key("p/a"), a), true),
        (Compare::not_created_at(case.key("p/a"), a), false),
        (Compare::not_created_at(case.key("none"), a), true),
        (over(CompareResult::Greater, CompareTarget::ModRevision(a - 1)), true),
        (over(CompareResult::Equal, CompareTarget::ModRevision(b)), false),
        (over(CompareResult::Less, CompareTarget::Version(2)), true),
        (over(CompareResult::Equal, CompareTarget::Value("x".into())), false),
        (
            Compare {
                range: missing.clone(),
                result: CompareResult::Equal,
                target: CompareTarget::Version(0),
            },
            true,
        ),
        (
            Compare {
                range: missing,
                result: CompareResult::NotEqual,
                target: CompareTarget::Value("x".into()),
            },
            false,
        ),
    ];
    for (compare, expected) in held {
        let (holds, _) = case.txn(vec![compare.clone()], vec![Op::get(case.key("p/a"))]).await;
        assert_eq!(holds, expected, "{compare:?}");
    }
}

async fn refusals(case: Case) {
    let twice =
        Txn { success: vec![Op::put(case.key("a"), "1"), Op::put(case.key("a"), "2")], ..Txn::default() };
    assert_eq!(rejected(case.kv.txn(twice).await).0, 3, "one key written twice");
    let empty = PutRequest { value: "x".into(), ..PutRequest::default() };
    assert_eq!(rejected(case.kv.put(empty).await).0, 3, "an empty key");
    let unleased = PutRequest { key: case.key("a"), lease: 0x7777_7777_7777, ..PutRequest::default() };
    assert_eq!(rejected(case.kv.put(unleased).await).0, 5, "no such lease");
    let many = Txn { success: (0..129).map(|_| Op::get(case.key("a"))).collect(), ..Txn::default() };
    assert_eq!(rejected(case.kv.txn(many).await).0, 3, "too many operations");
    assert_eq!(case.value("a", 0).await, None, "nothing was half done");
}

async fn leases(case: Case) {
    let lease = case.kv.lease_grant(0, Duration::from_secs(60)).await.unwrap();
    assert!(lease.id > 0 && lease.ttl >= Duration::from_secs(60));
    assert_eq!(rejected(case.kv.lease_grant(lease.id, Duration::from_secs(60)).await).0, 9);
    case.txn(vec![], vec![Op::put_leased(case.key("a"), "1", lease.id)]).await;
    case.put("b", "1").await;
    let left = case.kv.lease_time_to_live(lease.id).await.unwrap().unwrap();
    assert!(left <= Duration::from_secs(60) && left > Duration::from_secs(30));
    assert_eq!(case.kv.lease_keep_alive(lease.id).await.unwrap(), Some(lease.ttl));
    case.kv.lease_revoke(lease.id).await.unwrap();
    assert_eq!((case.value("a", 0).await, case.value("b", 0).await), (None, Some("1".into())));
    assert_eq!(case.kv.lease_keep_alive(lease.id).await.unwrap(), None);
    assert_eq!(case.kv.lease_time_to_live(lease.id).await.unwrap(), None);
    assert_eq!(rejected(case.kv.lease_revoke(lease.id).await).0, 5);
}

/// The next `count` events.
pub async fn next_events(watcher: &mut Watcher, count: usize) -> Vec<Event> {
    let mut found: Vec<Event> = Vec::new();
    while found.len() < count {
        let batch = tokio::time::timeout(LIMIT, watcher.batches.next()).await.expect("events in time");
        let batch = batch.expect("the watch goes on").expect("no error");
        assert!(batch.events.iter().all(|event| event.kv.mod_revision <= batch.revision));
        found.extend(batch.events);
    }
    found
}

async fn watches(case: Case) {
    let range = KeyRange::prefix(Bytes::from(case.prefix.clone()));
    let first = case.put("a", "1").await;
    let second = case.put("a", "2").await;
    let from_first = WatchRequest { range: range.clone(), start_revision: first, prev_kv: true };
    let mut past = case.kv.watch(from_first).await.unwrap();
    let from_now = WatchRequest { range: range.clone(), ..WatchRequest::default() };
    let mut now = case.kv.watch(from_now).await.unwrap();
    assert!(now.created_at >= second);
    case.txn(vec![], vec![Op::put(case.key("b"), "3"), Op::delete(case.key("a"))]).await;

    let seen = next_events(&mut past, 4).await;
    let kinds: Vec<EventKind> = seen.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Put, EventKind::Put, EventKind::Put, EventKind::Delete]);
    assert_eq!(seen[1].prev.as_ref().unwrap().value.as_ref(), b"1");
    assert!(seen[0].prev.is_none());
    assert_eq!(seen[2].kv.mod_revision, seen[3].kv.mod_revision, "one transaction, one revision");
    assert_eq!(seen[3].kv.key, case.key("a"));
    let seen = next_events(&mut now, 2).await;
    assert!(seen.iter().all(|event| event.prev.is_none() && event.kv.mod_revision > second));

    // A start in the future waits for it.
    let ahead = now.created_at + 3;
    let mut future =
        case.kv.watch(WatchRequest { range, start_revision: ahead, prev_kv: false }).await.unwrap();
    while case.put("c", "x").await < ahead {}
    assert_eq!(next_events(&mut future, 1).await[0].kv.mod_revision, ahead);
}

async fn compaction(case: Case) {
    let first = case.put("a", "1").await;
    let second = case.put("a", "2").await;
    let third = case.put("b", "1").await;
    case.kv.compact(third).await.unwrap();
    let below = RangeRequest { revision: first, ..RangeRequest::get(case.key("a")) };
    assert!(matches!(case.kv.range(below).await, Err(KvError::Compacted { .. })));
    assert!(matches!(case.kv.compact(second).await, Err(KvError::Compacted { .. })));
    assert_eq!(case.value("a", third).await.as_deref(), Some("2"), "the compact revision itself can be read");
    let request = WatchRequest { range: KeyRange::one(case.key("a")), start_revision: first, prev_kv: false };
    // Some stores say so when the watch is made, some by its first word.
    let error = match case.kv.watch(request).await {
        Err(error) => error,
        Ok(mut watcher) => tokio::time::timeout(LIMIT, watcher.batches.next())
            .await
            .expect("a word in time")
            .expect("a last word")
            .expect_err("history is gone"),
    };
    let KvError::Compacted { compact_revision } = error else { panic!("{error:?}") };
    assert!(compact_revision >= third);
}
