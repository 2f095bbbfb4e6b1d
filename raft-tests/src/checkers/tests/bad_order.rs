//! Order: what was over before a call is seen by it; and the search that gives up says so.

use meta_types::RangeRequest;

use super::story::{Story, get, list, put, swap};
use crate::checkers::{Limits, Matching, Recorded, Replay, linearizability, witness};
use crate::history::{Failure, Input, Outcome};

/// A put, a put over it, and a read of the first after the second had returned.
fn stale() -> Story {
    let mut story = Story::new();
    story.does(1, put("a", "1"));
    let read = story.call(2, get("a"));
    let seen = story.carry_out(read);
    story.does(1, put("a", "2"));
    story.operation(read).call = story.now;
    story.pass(1);
    story.ret(read, seen);
    story
}

#[test]
fn a_stale_read() {
    stale().is_found(&["stale", "linearizability"]);
}

#[test]
fn a_stale_read_that_lies_about_its_revision() {
    let mut story = stale();
    let at = story.history.operations.iter().position(|op| op.client == 2).expect("the read");
    *super::story::header(story.operation(at)) = story.revision();
    story.is_found(&["wrong-answer", "linearizability"]);
}

#[test]
fn a_read_older_than_what_a_watch_showed() {
    let mut story = Story::new();
    story.does(1, put("a", "1"));
    let watch = story.watch(9, "", 0);
    let read = story.call(2, get("a"));
    let seen = story.carry_out(read);
    // The write is never answered, so only the watch tells that it was there.
    let write = story.call(1, put("a", "2"));
    story.carry_out(write);
    story.deliver(watch);
    story.pass(1);
    story.operation(read).call = story.now;
    story.pass(1);
    story.ret(read, seen);
    story.is_found(&["stale"]);
}

#[test]
fn a_read_that_goes_back_behind_another_read() {
    let mut story = Story::new();
    story.does(1, put("a", "1"));
    let old = story.call(2, get("a"));
    let seen = story.carry_out(old);
    // The write never returns: the first read may see it or not, the second has to if the first did.
    let write = story.call(1, put("a", "2"));
    story.carry_out(write);
    story.does(3, get("a"));
    story.operation(old).call = story.now;
    story.pass(1);
    story.ret(old, seen);
    story.is_found(&["stale", "linearizability"]);
}

#[test]
fn a_write_before_one_that_was_over() {
    let mut story = Story::new();
    let first = story.call(1, put("a", "1"));
    let second = story.call(2, put("b", "1"));
    story.pass(1);
    let (b, a) = (story.carry_out(second), story.carry_out(first));
    story.pass(1);
    story.ret(first, a);
    story.ret(second, b);
    story.is_fine();
    // Now `b` is called only after `a` had returned, but is before it in the log.
    story.pass(1);
    story.operation(second).call = story.now;
    story.operation(second).ret = Some(story.now);
    story.is_found(&["stale", "real-time"]);
}

#[test]
fn a_read_of_what_was_compacted_before() {
    let mut story = Story::new();
    for value in ["1", "2", "3"] {
        story.does(1, put("a", value));
    }
    let old = Input::Range(RangeRequest { revision: 2, ..RangeRequest::get("a") });
    story.does(2, old.clone());
    story.does(1, Input::Compact(3));
    story.is_fine();
    story.does(2, old);
    story.is_found(&["history"]);
}

#[test]
fn a_refusal_of_what_is_there() {
    let refusals = [
        (2, Failure::Compacted { compact_revision: 2 }),
        (1, Failure::Compacted { compact_revision: 2 }),
        (2, Failure::Rejected { code: 11, message: meta_types::Refusal::FutureRevision.to_string() }),
    ];
    for (revision, failure) in refusals {
        let mut story = Story::new();
        story.does(1, put("a", "1"));
        let at = story.does(2, Input::Range(RangeRequest { revision, ..RangeRequest::get("a") }));
        story.operation(at).outcome = Outcome::Failed(failure);
        story.is_found(&["history"]);
    }
}

/// Checks with the search alone: no revision tells it the order.
fn searched(story: &Story, limits: Limits) -> Vec<&'static str> {
    let replay = Replay::of(&story.log);
    let matching = Matching::of(&replay, &story.history, Recorded::All);
    let found = linearizability(&replay, &story.history, &matching, limits);
    found.iter().map(|finding| finding.name).collect()
}

#[test]
fn the_search_finds_what_crosses_keys_of_a_transaction() {
    let mut story = Story::new();
    story.does(1, put("a", "1"));
    story.does(1, put("b", "1"));
    let txn = meta_types::Txn {
        compare: vec![],
        success: vec![meta_types::Op::put("a", "2"), meta_types::Op::get("b")],
        failure: vec![],
    };
    let at = story.does(1, Input::Txn(txn));
    assert!(searched(&story, Limits::default()).is_empty());
    let Outcome::Ok { reply: crate::history::Reply::Txn(reply), .. } = &mut story.operation(at).outcome
    else {
        panic!("it was answered")
    };
    let meta_types::OpReply::Range(range) = &mut reply.replies[1] else { panic!("a range") };
    range.kvs.clear();
    range.count = 0;
    assert_eq!(searched(&story, Limits::default()), ["linearizability"]);
}

#[test]
fn many_that_overlap_are_searched_in_few_steps() {
    let mut story = Story::new();
    for round in 0..60 {
        let calls: Vec<usize> =
            (0..8).map(|client| story.call(client, put("a", &format!("{round}/{client}")))).collect();
        let reads: Vec<usize> = (8..12).map(|client| story.call(client, list(""))).collect();
        story.pass(1);
        for at in calls.into_iter().rev().chain(reads) {
            let outcome = story.carry_out(at);
            story.ret(at, outcome);
        }
        // One in ten is never answered.
        if round % 10 == 0 {
            let at = story.call(20, swap("a", story.revision(), &format!("{round}/swap")));
            story.carry_out(at);
        }
        story.pass(1);
    }
    assert!(searched(&story, Limits { steps: 200_000 }).is_empty());
}

#[test]
fn a_search_that_gives_up_is_no_pass() {
    let story = stale();
    assert_eq!(searched(&story, Limits { steps: 2 }), ["gave-up"]);
    let replay = Replay::of(&story.log);
    let matching = Matching::of(&replay, &story.history, Recorded::All);
    assert!(!witness(&replay, &story.history, &matching).is_empty());
}
