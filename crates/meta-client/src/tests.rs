//! The suite over `MemKv` and over the network client, and what only a network can do: lost answers, replicas that
//! go away, watches that move.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use meta_types::{Compare, KeyRange, Op, PutRequest, RangeRequest, Txn};

use crate::kv::{Kv, KvError, WatchRequest};
use crate::testing::faulty::{Accident, Faulty};
use crate::testing::server::TestServer;
use crate::testing::suite::{self, next_events};
use crate::{
    Commit, EtcdKv, EtcdOptions, LeaseKeeper, LeaseState, MemKv, Mirrored, Snapshot, commit, follow, transact,
};

fn options() -> EtcdOptions {
    EtcdOptions { try_timeout: Duration::from_millis(500), ..EtcdOptions::default() }
}

fn client(servers: &[&TestServer]) -> EtcdKv {
    EtcdKv::connect(servers.iter().map(|server| server.address.to_string()), options()).unwrap()
}

fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: Bytes::from(key.to_owned()),
        value: Bytes::from(value.to_owned()),
        ..PutRequest::default()
    }
}

#[tokio::test]
async fn the_store_in_memory_passes_the_suite() {
    suite::run(Arc::new(MemKv::new()), "/suite").await;
}

#[tokio::test]
async fn the_network_client_passes_the_suite() {
    let server = TestServer::start(MemKv::new());
    suite::run(Arc::new(client(&[&server])), "/suite").await;
}

/// `METASTORE_TEST_ENDPOINTS=HOST:PORT,...` runs the suite against a store that is up (ours or a real etcd).
#[tokio::test]
async fn a_store_that_is_up_passes_the_suite() {
    let Ok(endpoints) = std::env::var("METASTORE_TEST_ENDPOINTS") else { return };
    let kv = EtcdKv::connect(endpoints.split(','), options()).unwrap();
    suite::run(Arc::new(kv), &format!("/suite-{}", rand::random::<u32>())).await;
}

#[tokio::test]
async fn calls_go_round_dead_and_leaderless_endpoints() {
    let kv = MemKv::new();
    let (mut a, b) = (TestServer::start(kv.clone()), TestServer::start(kv.clone()));
    let client = client(&[&a, &b]);
    a.stop();
    for number in 0..4 {
        client.put(put("/a", &number.to_string())).await.unwrap();
    }
    assert_eq!(kv.revision(), 5, "each was carried out once");
    b.switches.no_leader.store(true, Ordering::SeqCst);
    let hurried = EtcdOptions { call_timeout: Duration::from_secs(2), ..options() };
    let client = EtcdKv::connect([a.address.to_string(), b.address.to_string()], hurried).unwrap();
    let error = client.put(put("/a", "x")).await.unwrap_err();
    assert!(matches!(error, KvError::NotSent(_)), "{error:?}");
    assert!(error.is_safe_to_resend());
}

#[tokio::test]
async fn a_lost_answer_of_a_write_is_unknown_and_never_sent_again() {
    let kv = MemKv::new();
    let server = TestServer::start(kv.clone());
    let client = client(&[&server]);
    server.switches.lose_answers.store(1, Ordering::SeqCst);
    let error = client.put(put("/a", "1")).await.unwrap_err();
    assert!(matches!(error, KvError::Unknown(_)), "{error:?}");
    assert_eq!(kv.revision(), 2);
    let value = client.range(RangeRequest::get("/a")).await.unwrap().value;
    assert_eq!(value.kvs[0].version, 1);

    // What can be told apart from its repetition is repeated.
    server.switches.lose_answers.store(1, Ordering::SeqCst);
    let lease = client.lease_grant(0, Duration::from_secs(30)).await.unwrap();
    assert_eq!(kv.lease_time_to_live(lease.id).await.unwrap(), Some(Duration::from_secs(30)));
    server.switches.lose_answers.store(1, Ordering::SeqCst);
    client.lease_revoke(lease.id).await.unwrap();
    assert_eq!(kv.lease_time_to_live(lease.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_moves_to_another_replica_without_gap_or_repeat() {
    let kv = MemKv::new();
    let mut servers = vec![TestServer::start(kv.clone()), TestServer::start(kv.clone())];
    let client = client(&servers.iter().collect::<Vec<_>>());
    let request = WatchRequest { range: KeyRange::prefix("/w/"), ..WatchRequest::default() };
    let mut watcher = client.watch(request).await.unwrap();
    let mut expected = Vec::new();
    for round in 0..2 {
        for number in 0..5 {
            expected.push(kv.put(put("/w/a", &format!("{round}.{number}"))).await.unwrap().revision);
        }
        let seen = next_events(&mut watcher, 5).await;
        let seen: Vec<i64> = seen.iter().map(|event| event.kv.mod_revision).collect();
        assert_eq!(seen, expected[round * 5..]);
        // The replica it is at goes away; what is written meanwhile is owed.
        let at = servers.iter().position(|server| server.address.to_string() == client.endpoint());
        servers.remove(at.unwrap_or(0));
    }
}

#[tokio::test]
async fn a_watch_whose_history_is_gone_ends_with_compacted() {
    let kv = MemKv::new();
    let (mut a, b) = (TestServer::start(kv.clone()), TestServer::start(kv.clone()));
    let client = client(&[&a, &b]);
    // It opens at `a`, the only one that takes it; while nobody serves, the history it owes is compacted away.
    b.switches.no_leader.store(true, Ordering::SeqCst);
    let request = WatchRequest { range: KeyRange::prefix("/w/"), ..WatchRequest::default() };
    let mut watcher = client.watch(request).await.unwrap();
    a.stop();
    for number in 0..5 {
        kv.put(put("/w/a", &number.to_string())).await.unwrap();
    }
    kv.compact(kv.revision()).await.unwrap();
    b.switches.no_leader.store(false, Ordering::SeqCst);
    let mut words = Vec::new();
    while let Some(word) =
        tokio::time::timeout(Duration::from_secs(10), watcher.batches.next()).await.expect("a word in time")
    {
        words.push(word);
    }
    // Nothing that is already delivered is missing, nothing behind the gap is shown.
    let last = words.pop().expect("a last word");
    assert!(matches!(last, Err(KvError::Compacted { .. })), "{last:?}");
    assert!(words.is_empty(), "{words:?}");
}

fn guarded(value: &str) -> Txn {
    Txn {
        compare: vec![Compare::absent("/k")],
        success: vec![Op::put("/k", value.to_owned())],
        failure: vec![],
    }
}

#[tokio::test(start_paused = true)]
async fn a_guarded_transaction_takes_place_once_whatever_gets_lost() {
    use Accident::{AnswerLost, Late, NotSent, RequestLost};
    let scripts: [&[Accident]; 7] = [
        &[],
        &[NotSent, NotSent],
        &[AnswerLost],
        &[RequestLost],
        &[Late],
        &[NotSent, Late, AnswerLost],
        &[Late, Late, RequestLost],
    ];
    for script in scripts {
        let kv = MemKv::new();
        let faulty = Faulty::new(kv.clone(), script.iter().copied());
        let outcome = commit(&faulty, &guarded("ours"), 1).await.unwrap();
        assert_eq!(outcome, Commit::Done(2), "{script:?}");
        assert_eq!(faulty.arrive(), 0, "{script:?}: late copies find the guard broken");
        assert_eq!(kv.revision(), 2, "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_lost_the_race_is_told_to_plan_again() {
    for script in [vec![Accident::RequestLost], vec![Accident::NotSent], vec![]] {
        let kv = MemKv::new();
        let faulty = Faulty::new(kv.clone(), script);
        kv.put(put("/k", "theirs")).await.unwrap();
        assert_eq!(commit(&faulty, &guarded("ours"), 1).await.unwrap(), Commit::Conflict);
    }
    // Equal bytes that were there before we planned are not ours.
    let kv = MemKv::new();
    kv.put(put("/k", "ours")).await.unwrap();
    let faulty = Faulty::new(kv.clone(), [Accident::RequestLost]);
    assert_eq!(commit(&faulty, &guarded("ours"), kv.revision()).await.unwrap(), Commit::Conflict);
    // A store that stays away: unknown only if a copy may be on its way.
    let faulty = Faulty::new(MemKv::new(), [Accident::NotSent; 20]);
    assert!(matches!(commit(&faulty, &guarded("ours"), 1).await, Err(KvError::NotSent(_))));
    let mut script = vec![Accident::Late];
    script.extend([Accident::NotSent; 20]);
    let faulty = Faulty::new(MemKv::new(), script);
    assert!(matches!(commit(&faulty, &guarded("ours"), 1).await, Err(KvError::Unknown(_))));
}

fn mirrored() -> Mirrored {
    Mirrored {
        kept: vec![KeyRange::prefix("/m/"), KeyRange::one("/z")],
        watched: KeyRange::between("/m/", "/z\0"),
        coalesce: Duration::from_millis(1),
    }
}

#[tokio::test]
async fn a_mirror_shows_what_it_keeps_and_passes_over_the_rest() {
    let kv = MemKv::new();
    kv.put(put("/m/a", "1")).await.unwrap();
    let (shown, mut seen) = tokio::sync::watch::channel(Snapshot::default());
    let source = kv.clone();
    let following = tokio::spawn(async move {
        let show = |snapshot: &Snapshot| {
            shown.send_replace(snapshot.clone());
            if snapshot.get(b"/z").is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        follow(&source, &mirrored(), show).await
    });
    let limit = Duration::from_secs(10);
    let wait = seen.wait_for(|s| s.get(b"/m/a").is_some());
    let first = tokio::time::timeout(limit, wait).await.unwrap().unwrap().clone();
    let gone = meta_types::DeleteRangeRequest { range: KeyRange::one("/m/a"), prev_kv: false };
    kv.delete_range(gone).await.unwrap();
    kv.put(put("/n/outside", "1")).await.unwrap();
    kv.put(put("/z", "1")).await.unwrap();
    tokio::time::timeout(limit, following).await.expect("it ends when told to").unwrap().unwrap();
    let last = seen.borrow().clone();
    assert!(last.get(b"/m/a").is_none() && last.get(b"/z").is_some() && last.get(b"/n/outside").is_none());
    assert!(!last.covers_key(b"/n/outside") && last.covers_prefix(b"/m/"));
    assert!(first.get(b"/m/a").is_some(), "what was shown stays as it was");
}

/// Who waits for one change is not kept waiting; who is woken by each of a burst is woken seldom.
#[tokio::test(start_paused = true)]
async fn a_mirror_shows_the_first_change_at_once_and_a_burst_seldom() {
    let kv = MemKv::new();
    let coalesce = Duration::from_secs(10);
    let mirrored = Mirrored { coalesce, ..mirrored() };
    let (shown, mut states) = tokio::sync::mpsc::unbounded_channel();
    let source = kv.clone();
    let following = tokio::spawn(async move {
        let show = |snapshot: &Snapshot| {
            let _ = shown.send((snapshot.revision(), tokio::time::Instant::now()));
            ControlFlow::Continue(())
        };
        follow(&source, &mirrored, show).await
    });
    states.recv().await.unwrap();
    // A quiet time.
    tokio::time::sleep(2 * coalesce).await;
    let begun = tokio::time::Instant::now();
    let first = kv.put(put("/m/a", "1")).await.unwrap().revision;
    assert_eq!(states.recv().await.unwrap(), (first, begun));
    kv.put(put("/m/b", "1")).await.unwrap();
    tokio::time::sleep(coalesce / 2).await;
    let last = kv.put(put("/m/c", "1")).await.unwrap().revision;
    assert_eq!(states.recv().await.unwrap(), (last, begun + coalesce));
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_mirror_does_not_trust_silence() {
    let kv = MemKv::new();
    let mirrored = mirrored();
    let following = follow(&kv, &mirrored, |_| ControlFlow::Continue(()));
    tokio::time::timeout(2 * crate::mirror::MAX_SILENCE, following).await.expect("it comes back").unwrap();
}

struct StoreClock(MemKv);

impl meta_types::seams::Clock for StoreClock {
    fn now(&self) -> Duration {
        self.0.now()
    }
}

#[tokio::test]
async fn a_lease_is_trusted_from_the_moment_its_renewal_was_sent() {
    let kv = MemKv::new();
    let clock = Arc::new(StoreClock(kv.clone()));
    let ttl = Duration::from_secs(15);
    let keeper = LeaseKeeper::grant(Arc::new(kv.clone()), ttl, clock).await.unwrap();
    let state = keeper.state();
    assert_eq!(*state.borrow(), LeaseState::Held { until: ttl });
    kv.advance(Duration::from_secs(10));
    assert!(keeper.renew(ttl).await);
    assert_eq!(*state.borrow(), LeaseState::Held { until: Duration::from_secs(25) });
    kv.advance(Duration::from_secs(14));
    assert!(keeper.renew(ttl).await);
    kv.advance(ttl);
    assert!(!keeper.renew(ttl).await);
    assert_eq!(*state.borrow(), LeaseState::Lost);
    keeper.revoke().await.unwrap();
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CounterKey;

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Counter {
    count: u32,
    #[serde(flatten)]
    extra: crate::Extra,
}

impl crate::Record for Counter {}

impl crate::TypedKey for CounterKey {
    type Value = Counter;
    const PREFIX: &'static str = "/counter";
    fn encode(&self) -> String {
        Self::PREFIX.into()
    }
    fn decode(key: &str) -> Option<Self> {
        (key == Self::PREFIX).then_some(Self)
    }
}

#[tokio::test]
async fn reading_arms_the_guard_and_a_conflict_runs_the_closure_again() {
    let kv = MemKv::new();
    let mut runs = 0;
    let add = |by: u32| Counter { count: by, extra: Default::default() };
    let count = transact::<u32, std::convert::Infallible>(&kv, async |tx| {
        runs += 1;
        let was = tx.get(&CounterKey).await?.map_or(0, |counter| counter.count);
        if runs == 1 {
            // Somebody else is faster.
            kv.put(PutRequest {
                key: "/counter".into(),
                value: crate::record::to_bytes(&add(10)),
                ..PutRequest::default()
            })
            .await?;
        }
        tx.put(&CounterKey, &add(was + 1));
        Ok(was + 1)
    });
    assert_eq!(count.await.unwrap(), 11);
    assert_eq!(runs, 2);
}
