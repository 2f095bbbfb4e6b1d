//! Watch over the wire: what the hub's own tests cannot show.

use meta_api::pb::etcdserverpb as pb;

use crate::rig::{Lone, Watching, on, range, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn created_then_events_with_what_was_before() {
    let mut lone = Lone::start().await;
    let mut watching = Watching::open(lone.channel().await).await;
    watching.create(pb::WatchCreateRequest { prev_kv: true, ..on("w", "", 0) });
    assert_eq!(watching.next().await.header.unwrap().revision, 1);
    lone.put("w", "1").await;
    lone.put("w", "2").await;
    let delete = pb::DeleteRangeRequest { key: "w".into(), ..Default::default() };
    lone.kv.delete_range(delete).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 3 {
        events.extend(watching.next().await.events);
    }
    let shown: Vec<_> = events
        .iter()
        .map(|event| {
            let kv = event.kv.as_ref().unwrap();
            let prev = event.prev_kv.as_ref().map(|prev| prev.value.clone());
            (event.r#type, kv.mod_revision, kv.create_revision, kv.version, prev)
        })
        .collect();
    let text = |text: &'static str| Some(text.into());
    assert_eq!(shown, [(0, 2, 2, 1, None), (0, 3, 2, 2, text("1")), (1, 4, 0, 0, text("2"))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_at_the_compacted_revision_is_delivered_also_after_a_restart() {
    let mut lone = Lone::start().await;
    for value in ["2", "3", "4"] {
        lone.put("k1", value).await;
    }
    let delete = pb::DeleteRangeRequest { key: "k1".into(), ..Default::default() };
    lone.kv.delete_range(delete).await.unwrap();
    lone.put("k1", "6").await;
    lone.kv.compact(pb::CompactionRequest { revision: 5, physical: true }).await.unwrap();
    for _ in 0..2 {
        let mut watching = Watching::open(lone.channel().await).await;
        watching.watch("k1", "", 5).await;
        let mut events = Vec::new();
        while events.len() < 2 {
            events.extend(watching.next().await.events);
        }
        let shown: Vec<_> = events.iter().map(|e| (e.r#type, e.kv.as_ref().unwrap().mod_revision)).collect();
        assert_eq!(shown, [(1, 5), (0, 6)]);
        watching.watch("k1", "", 4).await;
        let end = watching.next().await;
        assert_eq!((end.canceled, end.compact_revision, end.header.unwrap().revision), (true, 5, 0));
        lone = lone.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_events_are_cut_into_fragments_only_for_those_who_asked() {
    let mut lone = Lone::start().await;
    let large = "y".repeat(900 * 1024);
    for key in ["fr0", "fr1", "fr2"] {
        lone.put(key, &large).await;
    }
    let mut watching = Watching::open(lone.channel().await).await;
    watching.create(pb::WatchCreateRequest { fragment: true, ..on("fr", "fs", 2) });
    assert!(watching.next().await.created);
    let first = watching.next().await;
    let second = watching.next().await;
    assert_eq!((first.events.len(), first.fragment), (2, true));
    assert_eq!((second.events.len(), second.fragment), (1, false));
    watching.watch("fr", "fs", 2).await;
    let whole = watching.next().await;
    assert_eq!((whole.events.len(), whole.fragment), (3, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_the_stream_with_a_code_that_means_elsewhere() {
    let lone = Lone::start().await;
    let mut watching = Watching::open(lone.channel().await).await;
    watching.watch("k", "", 0).await;
    let stopping = tokio::spawn(lone.replica.shutdown());
    let end = within("the end", watching.responses.message()).await;
    assert_eq!(end.unwrap_err().code(), tonic::Code::Unavailable);
    within("the stop", stopping).await.unwrap();
}

/// Follows one key range until `end` is seen; a compacted watch is opened again where its history begins, as
/// clients do. Gives the number of events, after checking that nothing is missing or comes twice.
async fn follow(mut watching: Watching, end: i64) -> usize {
    let (mut next, mut seen, mut skipped) = (2, 0, 0);
    watching.create(pb::WatchCreateRequest { prev_kv: true, ..on("r/", "r0", next) });
    while next <= end {
        let response = watching.next().await;
        for event in &response.events {
            let at = event.kv.as_ref().unwrap().mod_revision;
            // One event each revision: a gap or a repeat shows in the numbers.
            assert_eq!(at, next, "after {seen} events");
            next += 1;
            seen += 1;
        }
        if response.canceled {
            assert!(response.compact_revision > next, "canceled without need: {response:?} at {next}");
            skipped += response.compact_revision - next;
            next = response.compact_revision;
            watching.create(pb::WatchCreateRequest { prev_kv: true, ..on("r/", "r0", next) });
        }
    }
    assert_eq!(seen as i64 + skipped, end - 1);
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_under_compaction_see_everything_or_are_told() {
    const WRITES: i64 = 600;
    let mut lone = Lone::start().await;
    let channel = lone.channel().await;
    let mut following = Vec::new();
    for i in 0..WRITES {
        let revision = lone.put(&format!("r/{}", i % 50), "some value").await;
        if i % 10 == 0 {
            let watching = Watching::open(channel.clone()).await;
            following.push(tokio::spawn(follow(watching, WRITES + 1)));
        }
        if i % 100 == 99 {
            let request = pb::CompactionRequest { revision: revision - 50, physical: false };
            lone.kv.compact(request).await.unwrap();
        }
    }
    let count = following.len();
    let mut all = 0;
    for one in following {
        all += within("a watch to end", one).await.unwrap();
    }
    assert!(all >= count * 100, "{all} events for {count} watches");
    assert_eq!(lone.kv.range(range("r/", "r0")).await.unwrap().into_inner().count, 50);
}
