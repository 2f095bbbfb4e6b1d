//! Each promise of a watch, broken.

use meta_types::{Event, KeyRange};

use super::story::{Story, change, delete, put};
use crate::history::{Input, WatchHistory, WatchResponse, WatchWord};

/// One watch from revision 3 on that saw five revisions, one of them of two keys; revision 2 was before it.
fn watched() -> (Story, usize) {
    let mut story = Story::new();
    story.does(1, put("a/1", "0"));
    story.does(1, put("a/1", "1"));
    story.does(1, put("a/2", "1"));
    let both = [meta_types::Op::put("a/1", "2"), meta_types::Op::put("a/2", "2")];
    story.does(1, Input::Txn(meta_types::Txn { success: both.to_vec(), ..meta_types::Txn::default() }));
    story.does(1, put("b/1", "1"));
    story.does(1, delete("a/1"));
    story.does(1, put("a/1", "3"));
    let watch = story.watch(9, "a/", 3);
    story.pass(5);
    story.deliver(watch);
    story.is_fine();
    (story, watch)
}

fn events(watch: &mut WatchHistory, at: usize) -> &mut Vec<Event> {
    match &mut watch.responses[at].word {
        WatchWord::Events { events, .. } => events,
        other => panic!("not events: {other:?}"),
    }
}

#[track_caller]
fn spoilt(how: impl FnOnce(&mut WatchHistory), names: &[&str]) {
    let (mut story, watch) = watched();
    how(&mut story.history.watches[watch]);
    story.is_found(names);
}

#[test]
fn an_event_of_another_key() {
    spoilt(|watch| watch.request.range = KeyRange::prefix("a/1"), &["filterable"]);
}

#[test]
fn events_in_the_wrong_order() {
    spoilt(|watch| watch.responses.swap(0, 1), &["ordered", "resumable", "unique", "bookmarkable"]);
}

#[test]
fn an_event_twice() {
    let twice = |watch: &mut WatchHistory| {
        let again = events(watch, 0)[0].clone();
        events(watch, 0).push(again);
    };
    spoilt(twice, &["unique"]);
}

#[test]
fn a_revision_in_two_responses() {
    let split = |watch: &mut WatchHistory| {
        let second = events(watch, 2).pop().expect("two keys");
        let WatchResponse { at, .. } = watch.responses[2];
        let word = WatchWord::Events { revision: 5, events: vec![second] };
        watch.responses.insert(3, WatchResponse { at, word });
        let WatchWord::Events { revision, .. } = &mut watch.responses[2].word else { panic!("events") };
        *revision = 4;
    };
    spoilt(split, &["atomic", "bookmarkable"]);
}

#[test]
fn an_event_left_out() {
    spoilt(|watch| drop(watch.responses.remove(1)), &["reliable"]);
}

#[test]
fn an_event_left_out_of_its_revision() {
    spoilt(|watch| drop(events(watch, 2).remove(0)), &["reliable"]);
}

#[test]
fn an_event_that_never_was() {
    let made_up = |watch: &mut WatchHistory| {
        change(&mut events(watch, 1)[0].kv, |kv| kv.key = "a/9".into());
    };
    spoilt(made_up, &["reliable", "bookmarkable"]);
}

#[test]
fn an_event_with_another_value() {
    spoilt(|watch| change(&mut events(watch, 1)[0].kv, |kv| kv.value = "9".into()), &["reliable"]);
}

#[test]
fn an_event_from_before_the_start() {
    spoilt(|watch| watch.request.start_revision = 4, &["resumable"]);
}

#[test]
fn a_first_event_left_out() {
    spoilt(|watch| drop(watch.responses.remove(0)), &["resumable"]);
    spoilt(|watch| watch.request.start_revision = 2, &["resumable"]);
}

#[test]
fn progress_before_the_events() {
    let early = |watch: &mut WatchHistory| {
        let progress = watch.responses.pop().expect("the word of progress");
        watch.responses.insert(1, progress);
    };
    spoilt(early, &["bookmarkable"]);
}

#[test]
fn progress_that_nobody_reached() {
    let beyond = |watch: &mut WatchHistory| {
        let Some(WatchResponse { word: WatchWord::Progress { revision }, .. }) = watch.responses.last_mut()
        else {
            panic!("the word of progress")
        };
        *revision += 1;
    };
    spoilt(beyond, &["bookmarkable"]);
}

#[test]
fn the_wrong_previous_version() {
    let none = |watch: &mut WatchHistory| events(watch, 0)[0].prev = None;
    spoilt(none, &["prev-kv"]);
    let other = |watch: &mut WatchHistory| {
        change(events(watch, 0)[0].prev.as_mut().expect("a version before"), |kv| kv.value = "9".into());
    };
    spoilt(other, &["prev-kv"]);
    spoilt(|watch| watch.request.prev_kv = false, &["prev-kv"]);
}

#[test]
fn a_creation_that_is_none() {
    let looks_new = |watch: &mut WatchHistory| {
        change(&mut events(watch, 0)[0].kv, |kv| (kv.create_revision, kv.version) = (kv.mod_revision, 1));
    };
    spoilt(looks_new, &["is-create"]);
    let looks_old = |watch: &mut WatchHistory| {
        change(&mut events(watch, 1)[0].kv, |kv| kv.create_revision = 2);
    };
    spoilt(looks_old, &["is-create"]);
}

#[test]
fn an_end_that_nothing_asked_for() {
    let compacted = |compact_revision| {
        move |watch: &mut WatchHistory| {
            let word = WatchWord::Compacted { compact_revision };
            watch.responses.push(WatchResponse { at: watch.responses[0].at, word });
        }
    };
    spoilt(compacted(5), &["watch-compacted"]);
    // There was a compaction, but the watch was beyond it.
    let (mut story, watch) = watched();
    story.does(1, Input::Compact(5));
    compacted(5)(&mut story.history.watches[watch]);
    story.is_found(&["watch-compacted"]);
}

#[test]
fn events_that_never_come() {
    let short = |watch: &mut WatchHistory| watch.responses.truncate(2);
    spoilt(short, &["watch-complete"]);
    // A client that left is owed nothing.
    let left = |watch: &mut WatchHistory| {
        watch.responses.truncate(2);
        let at = watch.responses[0].at;
        watch.responses.push(WatchResponse { at, word: WatchWord::Ended("the client left".into()) });
    };
    spoilt(left, &[]);
}
