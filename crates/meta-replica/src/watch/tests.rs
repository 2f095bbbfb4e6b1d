//! The promises of watches, against a store that is a plain list of revisions.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use meta_api::pb::etcdserverpb as pb;
use meta_types::{Event, EventKind, KeyValue, Refusal, Revision, RevisionEvents};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use super::outbox::{QUEUE_ENTRIES, Responses};
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

/// A store that keeps every revision above `compact`.
#[derive(Default)]
struct List {
    state: Mutex<(Vec<RevisionEvents>, Revision)>,
}

impl History for List {
    fn revision(&self) -> Revision {
        self.state.lock().0.last().map_or(1, |last| last.revision)
    }

    fn history(&self, from: Revision, max: usize) -> Result<Vec<RevisionEvents>, Refusal> {
        let (all, compact_revision) = &*self.state.lock();
        if from < *compact_revision {
            return Err(Refusal::Compacted { compact_revision: *compact_revision });
        }
        Ok(all.iter().filter(|r| r.revision >= from).take(max).cloned().collect())
    }
}

impl List {
    fn write(&self, keys: &[&str]) -> RevisionEvents {
        let mut state = self.state.lock();
        let revision = state.0.last().map_or(1, |last| last.revision) + 1;
        let event = |key: &&str| Event {
            kind: EventKind::Put,
            kv: Arc::new(KeyValue {
                key: Bytes::copy_from_slice(key.as_bytes()),
                value: Bytes::from(revision.to_string()),
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                lease: 0,
            }),
            prev: None,
        };
        let events = RevisionEvents { revision, events: keys.iter().map(event).collect() };
        state.0.push(events.clone());
        events
    }
}

struct Rig {
    list: Arc<List>,
    feed: Arc<Feed>,
    env: StreamEnv,
    leader: watch::Sender<bool>,
}

struct Client {
    requests: mpsc::UnboundedSender<Result<pb::WatchRequest, tonic::Status>>,
    responses: Responses,
}

impl Rig {
    fn new() -> Self {
        let list = Arc::new(List::default());
        let (feed, items) = Feed::new();
        let hub = Arc::new(Hub::new(1));
        let shutdown = CancellationToken::new();
        let dispatcher = Dispatcher::new(hub.clone(), list.clone(), feed.clone(), items);
        tokio::spawn(dispatcher.run(shutdown.clone()));
        let (leader, has_leader) = watch::channel(true);
        let headers = Headers { cluster_id: 1, member_id: 2, term: Arc::new(AtomicU64::new(3)) };
        let env = StreamEnv {
            hub,
            history: list.clone(),
            headers,
            has_leader,
            leader_patience: Duration::from_millis(50),
            progress_interval: Duration::from_secs(600),
            shutdown,
        };
        Self { list, feed, env, leader }
    }

    fn write(&self, keys: &[&str]) -> Revision {
        let events = self.list.write(keys);
        let revision = events.revision;
        self.feed.report(revision, FeedItem::Applied(vec![events]));
        revision
    }

    fn client(&self) -> Client {
        self.open(false)
    }

    fn open(&self, require_leader: bool) -> Client {
        let (requests, rest) = mpsc::unbounded_channel();
        let responses = serve(self.env.clone(), UnboundedReceiverStream::new(rest), require_leader);
        Client { requests, responses }
    }
}

impl Client {
    fn create(&self, create: pb::WatchCreateRequest) {
        use pb::watch_request::RequestUnion::CreateRequest;
        let request = pb::WatchRequest { request_union: Some(CreateRequest(create)) };
        self.requests.send(Ok(request)).unwrap();
    }

    fn cancel(&self, watch_id: i64) {
        use pb::watch_request::RequestUnion::CancelRequest;
        let union = CancelRequest(pb::WatchCancelRequest { watch_id });
        self.requests.send(Ok(pb::WatchRequest { request_union: Some(union) })).unwrap();
    }

    fn progress(&self) {
        use pb::watch_request::RequestUnion::ProgressRequest;
        let union = ProgressRequest(pb::WatchProgressRequest {});
        self.requests.send(Ok(pb::WatchRequest { request_union: Some(union) })).unwrap();
    }

    async fn next(&mut self) -> pb::WatchResponse {
        let next = tokio::time::timeout(PATIENCE, self.responses.next()).await;
        next.expect("an answer in time").expect("an open stream").expect("no error")
    }

    /// Events until `last` is seen; asserts that no revision comes twice or out of order.
    async fn revisions_until(&mut self, last: Revision) -> Vec<Revision> {
        let mut seen: Vec<Revision> = Vec::new();
        while seen.last() != Some(&last) {
            let response = self.next().await;
            assert!(!response.canceled, "canceled: {response:?}");
            for event in &response.events {
                let at = event.kv.as_ref().unwrap().mod_revision;
                assert!(seen.last().is_none_or(|before| *before <= at), "{at} after {seen:?}");
                seen.push(at);
            }
            assert!(response.header.unwrap().revision >= *seen.last().unwrap_or(&0));
        }
        seen
    }
}

/// Each revision once, with a message that fits a screen.
#[track_caller]
fn assert_contiguous(seen: &[Revision], first: Revision, last: Revision) {
    let gap = seen.iter().zip(first..).find(|(seen, expected)| **seen != *expected);
    assert_eq!(gap, None, "(seen, expected)");
    assert_eq!(seen.len() as Revision, last - first + 1);
}

fn on(key: &'static str, end: &'static str, start_revision: Revision) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest { key: key.into(), range_end: end.into(), start_revision, ..Default::default() }
}

#[tokio::test]
async fn from_now_on_delivers_what_comes_and_nothing_before() {
    let rig = Rig::new();
    rig.write(&["a"]);
    let mut client = rig.client();
    client.create(on("a", "", 0));
    let created = client.next().await;
    assert!(created.created);
    assert_eq!((created.watch_id, created.header.unwrap().revision), (0, 2));
    rig.write(&["b"]);
    rig.write(&["a"]);
    assert_eq!(client.revisions_until(4).await, [4]);
}

#[tokio::test]
async fn history_then_live_without_gap_or_repeat() {
    let rig = Rig::new();
    for _ in 0..1000 {
        rig.write(&["a", "b"]);
    }
    let mut client = rig.client();
    client.create(on("a", "c", 2));
    assert!(client.next().await.created);
    for _ in 0..1000 {
        rig.write(&["b"]);
        tokio::task::yield_now().await;
    }
    let seen = client.revisions_until(2001).await;
    assert_eq!(seen.len(), 3000, "two events each of the first thousand revisions, then one");
}

#[tokio::test]
async fn a_slow_watch_falls_behind_and_comes_back_and_delays_nobody() {
    let rig = Rig::new();
    let (mut slow, mut quick) = (rig.client(), rig.client());
    for client in [&mut slow, &mut quick] {
        client.create(on("a", "", 0));
        assert!(client.next().await.created);
    }
    let count = (QUEUE_ENTRIES * 3) as Revision;
    for i in 0..count {
        let revision = rig.write(&["a"]);
        assert_eq!(revision, i + 2);
        // The quick one reads as it goes; its queue never fills.
        quick.revisions_until(revision).await;
    }
    assert!(rig.env.hub.counts().lagging >= 1, "the slow watch fills its queue");
    let seen = slow.revisions_until(count + 1).await;
    assert_contiguous(&seen, 2, count + 1);
    rig.write(&["a"]);
    assert_eq!(slow.revisions_until(count + 2).await, [count + 2]);
    assert_eq!(rig.env.hub.counts().lagging, 0);
}

#[tokio::test]
async fn a_full_feed_is_read_again_from_history() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.create(on("a", "", 0));
    assert!(client.next().await.created);
    // No await: the dispatcher cannot run in this single-threaded runtime, so the feed overflows.
    for _ in 0..5000 {
        rig.write(&["a"]);
    }
    assert!(rig.feed.dropped() > 0);
    assert_contiguous(&client.revisions_until(5001).await, 2, 5001);
}

#[tokio::test]
async fn a_jump_is_filled_from_history_or_ends_the_watch() {
    let rig = Rig::new();
    let (mut both, mut late) = (rig.client(), rig.client());
    both.create(on("a", "", 0));
    late.create(on("a", "", 9));
    assert!(both.next().await.created && late.next().await.created);
    for _ in 0..4 {
        rig.list.write(&["a"]);
    }
    rig.feed.report(5, FeedItem::Jumped);
    assert_eq!(both.revisions_until(5).await, [2, 3, 4, 5]);
    for _ in 0..4 {
        rig.list.write(&["a"]);
    }
    rig.list.state.lock().1 = 8;
    rig.feed.report(9, FeedItem::Jumped);
    let end = both.next().await;
    assert!(end.canceled);
    assert_eq!((end.compact_revision, end.header.unwrap().revision), (8, 0));
    assert_eq!(late.revisions_until(9).await, [9], "it wanted nothing that is gone");
}

#[tokio::test]
async fn a_compacted_start_is_created_then_canceled() {
    let rig = Rig::new();
    for _ in 0..9 {
        rig.write(&["a"]);
    }
    rig.list.state.lock().1 = 6;
    let mut client = rig.client();
    client.create(on("a", "", 5));
    client.create(on("a", "", 6));
    let created = client.next().await;
    assert!(created.created && !created.canceled);
    assert!(client.next().await.created);
    let end = client.next().await;
    assert_eq!((end.watch_id, end.canceled, end.compact_revision), (0, true, 6));
    assert_eq!(client.revisions_until(10).await, [6, 7, 8, 9, 10]);
}

#[tokio::test]
async fn refusals_have_etcds_words() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.create(pb::WatchCreateRequest { watch_id: 7, ..on("a", "", 0) });
    assert_eq!(client.next().await.watch_id, 7);
    client.create(pb::WatchCreateRequest { watch_id: 7, ..on("a", "", 0) });
    client.create(on("b", "a", 0));
    client.create(on("a", "", -1));
    for reason in [
        "mvcc: duplicate watch ID provided on the WatchStream",
        "mvcc: watcher range is empty",
        "etcdserver: mvcc: required revision has been compacted",
    ] {
        let refused = client.next().await;
        assert!(refused.created && refused.canceled);
        assert_eq!((refused.watch_id, refused.cancel_reason.as_str()), (-1, reason));
    }
}

#[tokio::test]
async fn cancel_is_the_last_word_and_unknown_ids_are_silent() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.create(on("a", "", 0));
    assert!(client.next().await.created);
    rig.write(&["a"]);
    assert_eq!(client.revisions_until(2).await, [2]);
    client.cancel(99);
    client.cancel(0);
    let end = client.next().await;
    assert!(end.canceled && end.compact_revision == 0 && end.cancel_reason.is_empty());
    rig.write(&["a"]);
    client.create(on("a", "", 0));
    assert!(client.next().await.created, "nothing of the canceled watch came in between");
    assert_eq!(rig.env.hub.counts().watches, 1);
}

/// Revision 1 has no events. A watch that waited for some would ask again and again until the first write.
#[tokio::test]
async fn a_watch_from_the_start_of_an_empty_store_has_caught_up() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.create(on("a", "", 1));
    assert!(client.next().await.created);
    let synced = async {
        loop {
            client.progress();
            // Not answered while the watch lags.
            match tokio::time::timeout(Duration::from_millis(50), client.responses.next()).await {
                Ok(answer) => return answer.unwrap().unwrap(),
                Err(_) => continue,
            }
        }
    };
    let progress = tokio::time::timeout(PATIENCE, synced).await.expect("it is brought up to the head");
    assert_eq!((progress.watch_id, progress.header.unwrap().revision), (-1, 1));
    let revision = rig.write(&["a"]);
    while client.next().await.events.is_empty() {}
    assert_eq!(revision, 2);
}

#[tokio::test]
async fn progress_comes_after_the_events_it_speaks_of() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.progress();
    client.create(on("a", "", 0));
    assert!(client.next().await.created, "an empty stream is not answered");
    for round in 0..50 {
        let revision = rig.write(&["a"]);
        client.progress();
        let events = client.next().await;
        assert_eq!(events.events.len(), 1, "round {round}: {events:?}");
        let progress = client.next().await;
        assert_eq!((progress.watch_id, progress.header.unwrap().revision), (-1, revision));
    }
}

#[tokio::test]
async fn a_txn_is_one_response() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.create(on("a", "z", 0));
    client.create(pb::WatchCreateRequest { fragment: true, ..on("a", "z", 0) });
    assert!(client.next().await.created && client.next().await.created);
    rig.write(&["c", "b", "a"]);
    for _ in 0..2 {
        let whole = client.next().await;
        let keys: Vec<_> = whole.events.iter().map(|e| e.kv.as_ref().unwrap().key.clone()).collect();
        assert_eq!(keys, ["c", "b", "a"]);
        assert!(!whole.fragment);
    }
}

#[tokio::test]
async fn a_stream_that_requires_a_leader_ends_without_one() {
    let rig = Rig::new();
    let (mut strict, mut easy) = (rig.open(true), rig.open(false));
    for client in [&mut strict, &mut easy] {
        client.create(on("a", "", 0));
        assert!(client.next().await.created);
    }
    rig.leader.send_replace(false);
    let end = tokio::time::timeout(PATIENCE, strict.responses.next()).await.unwrap();
    let status = end.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, "etcdserver: no leader"));
    rig.write(&["a"]);
    assert_eq!(easy.revisions_until(2).await, [2]);
}

#[tokio::test]
async fn a_client_that_leaves_is_forgotten() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.create(on("a", "", 0));
    assert!(client.next().await.created);
    assert_eq!(rig.env.hub.counts().streams, 1);
    drop(client);
    let gone = async {
        while rig.env.hub.counts().streams > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the stream is closed");
    assert_eq!(rig.env.hub.counts().watches, 0);
}
