//! Histories without a fault, with everything in them that a checker could take for one.

use std::time::Duration;

use meta_types::{
    Command, Compare, DeleteRangeRequest, KeyRange, Op, RangeRequest, SortOrder, SortTarget, Txn,
};

use super::story::{Story, delete, get, list, put, put_leased, swap};
use crate::history::{Failure, Input, Outcome, Reply};

#[test]
fn concurrent_calls_and_unknown_outcomes_are_no_fault() {
    let mut story = Story::new();
    let all = story.watch(9, "", 0);
    story.does(1, put("a", "1"));
    let late = story.watch(9, "a", 2);

    // Two writes overlap with two reads; one read sees neither, the other both.
    let first = story.call(1, put("a", "2"));
    let second = story.call(2, put("a", "3"));
    let early = story.call(3, get("a"));
    let both = story.call(4, get("a"));
    story.pass(1);
    let saw = story.carry_out(early);
    let wrote = story.carry_out(second);
    let over = story.carry_out(first);
    let saw_both = story.carry_out(both);
    story.pass(1);
    for (at, outcome) in [(both, saw_both), (first, over), (second, wrote), (early, saw)] {
        story.ret(at, outcome);
    }

    // Unknown: one that is never carried out, one that is, one that is long after its client gave up.
    story.call(1, put("a", "never"));
    let done = story.call(1, put("b", "done"));
    story.carry_out(done);
    let later = story.call(1, put("c", "later"));
    story.pass(1);
    story.ret(later, Outcome::Unknown);
    story.does(2, get("c"));
    story.carry_out(later);
    story.does(2, get("c"));

    // What is refused or does nothing takes no revision. Two deletes of one key, one of them unknown.
    story.does(3, swap("a", 99, "no"));
    let deleted = story.call(3, delete("b"));
    story.carry_out(deleted);
    story.does(4, delete("b"));
    story.does(4, delete("b"));
    story.does(5, put_leased("d", "1", 77));
    let refused = story.call(5, put("e", "1"));
    story.ret(refused, Outcome::Failed(Failure::NotSent));

    story.pass(5);
    story.deliver(all);
    story.deliver(late);
    let figures = story.is_fine();
    assert_eq!((figures.unknown, figures.unknown_committed), (4, 3));
    assert_eq!((figures.failed, figures.watches), (2, 2));
    assert!(figures.watch_events > 6);
}

#[test]
fn transactions_ranges_and_compactions_are_no_fault() {
    let mut story = Story::new();
    for (key, value) in [("k/1", "c"), ("k/2", "b"), ("k/3", "a"), ("other", "x")] {
        story.does(1, put(key, value));
    }
    story.does(1, list("k/"));
    let prefix = KeyRange::prefix("k/");
    for (order, target) in [
        (SortOrder::Descend, SortTarget::Key),
        (SortOrder::Ascend, SortTarget::Value),
        (SortOrder::None, SortTarget::Mod),
    ] {
        let request = RangeRequest {
            range: prefix.clone(),
            limit: 2,
            sort_order: order,
            sort_target: target,
            ..RangeRequest::default()
        };
        story.does(2, Input::Range(request));
    }
    story.does(2, Input::Range(RangeRequest { count_only: true, ..RangeRequest::prefix("") }));
    story.does(2, Input::Range(RangeRequest { keys_only: true, ..RangeRequest::prefix("") }));
    story.does(2, Input::Range(RangeRequest { revision: 3, ..RangeRequest::prefix("k/") }));

    let txn = Txn {
        compare: vec![Compare::exists("k/1"), Compare::empty_prefix("none/")],
        success: vec![
            Op::put("k/4", "d"),
            Op::Range(RangeRequest::prefix("k/")),
            Op::DeleteRange(DeleteRangeRequest { range: KeyRange::one("k/1"), prev_kv: true }),
        ],
        failure: vec![],
    };
    story.does(1, Input::Txn(txn));
    story.does(3, swap("k/2", 3, "bb"));
    story.does(3, swap("k/2", 3, "bbb"));
    story.does(3, Input::DeleteRange(DeleteRangeRequest { range: prefix, prev_kv: true }));

    // A watch behind the compaction ends; reads below it are refused.
    let watch = story.watch(9, "k/", 2);
    story.does(1, Input::Compact(4));
    let word = crate::history::WatchWord::Compacted { compact_revision: 4 };
    let response = crate::history::WatchResponse { at: story.now, word };
    story.history.watches[watch].responses.push(response);
    let old = story.call(2, Input::Range(RangeRequest { revision: 2, ..RangeRequest::get("k/1") }));
    story.ret(old, Outcome::Failed(Failure::Compacted { compact_revision: 4 }));
    story.does(2, Input::Compact(2));
    story.is_fine();
}

/// A client that was not answered asks again, and what it wanted gone ran out meanwhile.
#[test]
fn a_revoke_of_what_ran_out_may_be_told_done() {
    let mut story = Story::new();
    story.does(1, Input::LeaseGrant { id: 1, ttl: Duration::from_secs(2) });
    story.live(8000);
    let at = story.call(1, Input::LeaseRevoke(1));
    let refused = story.carry_out(at);
    assert!(matches!(refused, Outcome::Failed(Failure::Rejected { .. })));
    story.pass(1);
    story.ret(at, Outcome::Ok { revision: None, reply: Reply::Done });
    story.is_fine();
}

/// A client that leaves the id of a lease to chance takes one for all its tries. The first lease ran out unseen.
#[test]
fn a_grant_may_be_asked_again_when_its_first_lease_ran_out() {
    let ttl = Duration::from_secs(2);
    for answered in [true, false] {
        let mut story = Story::new();
        let at = story.call(1, Input::LeaseGrant { id: 0, ttl });
        story.commit(Command::LeaseGrant { id: 7, ttl: 2 });
        story.live(8000);
        story.commit(Command::LeaseGrant { id: 7, ttl: 2 });
        story.pass(1);
        if answered {
            story.ret(at, Outcome::Ok { revision: None, reply: Reply::LeaseGrant { id: 7, ttl } });
        }
        story.is_fine();
    }
}

#[test]
fn stale_reads_may_be_stale() {
    let mut story = Story::new();
    story.does(1, put("a", "1"));
    let stale = RangeRequest { serializable: true, ..RangeRequest::get("a") };
    let at = story.call(2, Input::Range(stale));
    let seen = story.carry_out(at);
    story.does(1, put("a", "2"));
    story.operation(at).call = story.now;
    story.pass(1);
    story.ret(at, seen);
    story.is_fine();
}

#[test]
fn leases_that_run_out_in_time_are_no_fault() {
    let mut story = Story::new();
    let ttl = Duration::from_secs(3);
    let watch = story.watch(9, "", 0);
    for id in 1..=3 {
        story.does(1, Input::LeaseGrant { id, ttl });
        story.does(1, put_leased(&format!("l/{id}"), "x", id));
    }
    story.live(2000);
    story.does(1, Input::LeaseKeepAlive(1));
    story.does(1, Input::LeaseTimeToLive(1));
    story.does(1, Input::LeaseRevoke(3));
    story.live(2000);
    story.does(1, list("l/"));
    story.does(1, Input::LeaseKeepAlive(2));
    story.does(1, Input::LeaseTimeToLive(2));
    story.does(1, Input::LeaseTimeToLive(1));

    // An outage: lease time stands still, and the next leader counts on from where it stood.
    let stood = story.now;
    story.pass(20_000);
    let woke = story.now;
    story.now = stood;
    story.elect();
    for entry in story.log.iter_mut().rev().take(1) {
        entry.at = Some(woke);
    }
    story.live(2000);
    for entry in story.log.iter_mut().filter(|entry| entry.term == 2).skip(1) {
        entry.at = entry.at.map(|at| at + (woke - stood));
    }
    story.now += woke - stood;
    story.does(1, list("l/"));
    story.does(1, Input::LeaseTimeToLive(1));

    // The word of a leader that was deposed counts for nothing, nor does one that is early.
    story.does(1, Input::LeaseGrant { id: 5, ttl });
    story.does(1, put_leased("l/5", "x", 5));
    story.commit(Command::LeaseExpire { term: 1, ids: vec![5] });
    story.commit(Command::LeaseExpire { term: 2, ids: vec![5] });
    story.does(1, list("l/"));
    story.deliver(watch);
    story.is_fine();
}
