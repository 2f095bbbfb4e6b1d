//! Watch over the wire: what the hub's own tests cannot show.

use meta_api::pb::etcdserverpb as pb;

use crate::rig::{Lone, Watching, on};

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
    let end = crate::rig::within("the end", watching.responses.message()).await;
    assert_eq!(end.unwrap_err().code(), tonic::Code::Unavailable);
    crate::rig::within("the stop", stopping).await.unwrap();
}
