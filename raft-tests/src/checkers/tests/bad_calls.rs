//! Answers that are wrong, and commands that are lost, doubled or made up.

use std::time::Duration;

use meta_types::{Command, PutRequest};

use super::story::{Story, change, delete, get, header, list, put, put_leased, range_reply, swap};
use crate::checkers::Replay;
use crate::history::{Failure, Input, Outcome, Reply};

/// Five calls on one key and one on another.
fn story() -> (Story, [usize; 6]) {
    let mut story = Story::new();
    let ops = [put("a", "1"), get("a"), put("a", "2"), get("a"), delete("a"), put("b", "1")];
    let ops = ops.map(|input| story.does(1, input));
    (story, ops)
}

/// Takes the command of a revision out of the log: the entry stays, and does nothing.
fn lose(story: &mut Story, key: &str, value: &str) {
    for command in story.log.iter_mut().filter_map(|entry| entry.batch.as_mut()).flat_map(|b| &mut b.commands)
    {
        if matches!(&command.command, Command::Put(put) if put.key == key && put.value == value) {
            command.command = Command::LeaseTick;
        }
    }
}

#[test]
fn a_lost_write() {
    let (mut story, _) = story();
    lose(&mut story, "b", "1");
    // Nobody read it: only the log tells, and that its revision does not exist.
    story.is_found(&["lost", "phantom"]);
}

#[test]
fn a_lost_write_in_between_moves_everything() {
    let (mut story, _) = story();
    lose(&mut story, "a", "2");
    story.is_found(&["lost", "wrong-revision", "wrong-answer", "phantom"]);
}

#[test]
fn a_lost_write_that_others_miss() {
    let mut story = Story::new();
    story.does(1, put("a", "1"));
    let kept = story.does(1, put("b", "1"));
    let acknowledged = story.operation(kept).outcome.clone();
    let lost = story.call(1, put("a", "2"));
    story.pass(1);
    story.ret(lost, acknowledged);
    *header(story.operation(lost)) += 1;
    story.pass(1);
    story.does(2, get("a"));
    story.is_found(&["lost", "phantom", "stale", "linearizability"]);
}

#[test]
fn a_write_executed_twice() {
    let (mut story, _) = story();
    let Input::Put(request) = put("b", "1") else { unreachable!() };
    story.commit(Command::Put(request));
    story.is_found(&["duplicated"]);
}

/// A client that names its lease asks once: after an unknown outcome it looks.
#[test]
fn a_named_lease_granted_twice() {
    let mut story = Story::new();
    story.does(1, Input::LeaseGrant { id: 7, ttl: Duration::from_secs(2) });
    story.live(8000);
    story.commit(Command::LeaseGrant { id: 7, ttl: 2 });
    story.is_found(&["duplicated"]);
}

#[test]
fn a_write_that_nobody_asked_for() {
    let (mut story, _) = story();
    story.commit(Command::Put(PutRequest { key: "z".into(), ..PutRequest::default() }));
    story.is_found(&["phantom"]);
}

#[test]
fn a_write_that_was_denied_and_done() {
    for failure in [Failure::NotSent, Failure::Rejected { code: 8, message: "too many requests".into() }] {
        let (mut story, ops) = story();
        story.operation(ops[5]).outcome = Outcome::Failed(failure);
        story.is_found(&["denied"]);
    }
}

#[test]
fn a_refused_write_is_not_a_denied_one() {
    let mut story = Story::new();
    let at = story.does(1, put_leased("a", "1", 99));
    assert!(matches!(story.operation(at).outcome, Outcome::Failed(Failure::Rejected { .. })));
    story.is_fine();
}

#[test]
fn two_writes_acknowledged_with_one_revision() {
    let (mut story, ops) = story();
    *header(story.operation(ops[2])) = 2;
    story.is_found(&["wrong-revision", "stale", "linearizability"]);
}

#[test]
fn a_revision_that_does_not_exist() {
    let (mut story, ops) = story();
    *header(story.operation(ops[3])) = 99;
    story.is_found(&["phantom", "stale"]);
}

#[test]
fn a_read_of_a_value_that_never_was() {
    let (mut story, ops) = story();
    change(&mut range_reply(story.operation(ops[3])).kvs[0], |kv| kv.value = "9".into());
    story.is_found(&["wrong-answer", "linearizability"]);
}

#[test]
fn a_read_that_misses_a_key() {
    let (mut story, ops) = story();
    let reply = range_reply(story.operation(ops[3]));
    reply.kvs.clear();
    reply.count = 0;
    story.is_found(&["wrong-answer", "linearizability"]);
}

#[test]
fn a_list_of_two_moments() {
    let mut story = Story::new();
    for value in ["1", "2"] {
        story.does(1, put("k/a", value));
        story.does(1, put("k/b", value));
    }
    // Both calls overlap with all writes, so that each key alone could be as it was seen.
    let at = story.does(2, list("k/"));
    story.operation(at).call = story.history.operations[0].call;
    story.is_fine();
    let old = Replay::of(&story.log).model.keys.at(b"k/a", 2).cloned().expect("written at 2");
    range_reply(story.operation(at)).kvs[0] = old;
    story.is_found(&["wrong-answer"]);
}

#[test]
fn a_wrong_count() {
    let (mut story, ops) = story();
    range_reply(story.operation(ops[3])).count = 2;
    story.is_found(&["wrong-answer"]);
}

#[test]
fn a_delete_that_says_it_deleted_nothing() {
    let (mut story, ops) = story();
    let Outcome::Ok { reply: Reply::DeleteRange(reply), .. } = &mut story.operation(ops[4]).outcome else {
        panic!("a delete was answered")
    };
    reply.deleted = 0;
    story.is_found(&["wrong-answer", "linearizability"]);
}

#[test]
fn two_that_both_swapped() {
    let mut story = Story::new();
    story.does(1, put("a", "1"));
    let won = story.does(1, swap("a", 2, "x"));
    let lost = story.does(2, swap("a", 2, "y"));
    let winner = story.operation(won).outcome.clone();
    let Outcome::Ok { revision, .. } = story.operation(lost).outcome else { panic!("it was answered") };
    let Outcome::Ok { reply, .. } = winner else { panic!("it was answered") };
    story.operation(lost).outcome = Outcome::Ok { revision, reply };
    story.is_found(&["wrong-answer", "linearizability"]);
}

#[test]
fn a_hole_in_the_log_is_said() {
    let (mut story, _) = story();
    story.log.remove(3);
    let (_, found) = story.check();
    assert!(found.iter().any(|finding| finding.name == "replay"), "{found:#?}");
}

#[test]
fn replicas_that_differ_at_the_end() {
    use crate::checkers::final_state;
    let (story, _) = story();
    let replay = Replay::of(&story.log);
    assert_eq!(final_state(&replay, &story.finals()), []);
    let spoil = |how: fn(&mut crate::checkers::FinalState)| {
        let mut finals = story.finals();
        how(&mut finals[1]);
        final_state(&replay, &finals).len()
    };
    assert!(spoil(|state| state.hash ^= 1) > 0);
    assert!(spoil(|state| state.recomputed ^= 1) > 0);
    assert!(spoil(|state| state.revision -= 1) > 0);
    assert!(spoil(|state| state.applied += 1) > 0);
    // It stayed behind: what it has is right, and not all.
    let mut finals = story.finals();
    let (revision, hash) = replay.hashes[2];
    finals[1] = crate::checkers::FinalState { replica: 2, applied: 3, revision, hash, recomputed: hash };
    assert!(!final_state(&replay, &finals).is_empty());
}
