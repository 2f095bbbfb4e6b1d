//! Random histories with one fault each: every kind is found, wherever it happens to be.

use std::collections::BTreeMap;
use std::time::Duration;

use meta_types::{Command, Event, PutRequest};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::random;
use super::story::{Story, change, header, range_reply};
use crate::history::{Failure, Input, Operation, Outcome, Reply, WatchWord};

/// Spoils a story at one of the places where it can be, picked by the number; false if there is none.
type Spoil = fn(&mut Story, usize) -> bool;

/// Each fault, and the names of which at least one has to be found.
const FAULTS: &[(&str, Spoil, &[&str])] = &[
    ("an acknowledged write is lost", lose, &["lost"]),
    ("a write is executed twice", double, &["duplicated"]),
    ("a write nobody asked for", make_up, &["phantom"]),
    ("a write that was denied", deny, &["denied"]),
    ("a write acknowledged at another revision", misnumber, &["wrong-revision"]),
    ("a read of the past", go_back, &["stale"]),
    ("a read of the past under today's revision", go_back_and_lie, &["wrong-answer"]),
    ("a read of a value that never was", mangle, &["wrong-answer"]),
    ("a write that was over and comes later", delay, &["stale", "real-time"]),
    ("a watch without an event", skip_event, &["reliable", "resumable", "watch-complete", "bookmarkable"]),
    ("a watch with an event twice", repeat_event, &["unique"]),
    ("a watch out of order", swap_responses, &["ordered"]),
    ("a watch with the wrong previous version", drop_prev, &["prev-kv"]),
    ("a watch with the wrong mark of creation", mark_created, &["is-create"]),
    ("a lease with more left than granted", stretch_lease, &["lease-ghost"]),
];

#[test]
fn every_fault_is_found_wherever_it_is() {
    let mut runner = TestRunner::deterministic();
    let mut spoilt: BTreeMap<&str, usize> = BTreeMap::new();
    for round in 0..30_usize {
        let drawn = random::drawn().new_tree(&mut runner).expect("a vector can be drawn").current();
        let story = random::story(&drawn);
        for (fault, spoil, names) in FAULTS {
            let mut story = story.clone();
            story.limits.steps = 20_000;
            if !spoil(&mut story, round * 7919) {
                continue;
            }
            *spoilt.entry(fault).or_default() += 1;
            let (_, found) = story.check();
            let is_found = found.iter().any(|finding| names.contains(&finding.name));
            assert!(is_found, "round {round}, {fault}: {found:#?}");
        }
    }
    for (fault, ..) in FAULTS {
        assert!(spoilt.get(fault).is_some_and(|times| *times >= 3), "{fault}: {spoilt:?}");
    }
}

/// The operations that a fault can spoil.
fn pick(story: &Story, at: usize, suits: impl Fn(&Operation) -> bool) -> Option<usize> {
    let suitable: Vec<usize> =
        (0..story.history.operations.len()).filter(|at| suits(&story.history.operations[*at])).collect();
    suitable.get(at.checked_rem(suitable.len())?).copied()
}

fn plain_put(operation: &Operation) -> Option<&PutRequest> {
    match &operation.input {
        Input::Put(request) if operation.is_ok() && request.lease == 0 => Some(request),
        _ => None,
    }
}

fn lose(story: &mut Story, at: usize) -> bool {
    let Some(at) = pick(story, at, |operation| plain_put(operation).is_some()) else { return false };
    let lost = Command::Put(plain_put(&story.history.operations[at]).expect("it was picked").clone());
    let batches = story.log.iter_mut().filter_map(|entry| entry.batch.as_mut());
    for command in batches.flat_map(|batch| &mut batch.commands).filter(|command| command.command == lost) {
        command.command = Command::LeaseTick;
    }
    true
}

fn double(story: &mut Story, at: usize) -> bool {
    let Some(at) = pick(story, at, |operation| plain_put(operation).is_some()) else { return false };
    let again = plain_put(&story.history.operations[at]).expect("it was picked").clone();
    story.commit(Command::Put(again));
    true
}

fn make_up(story: &mut Story, _: usize) -> bool {
    story.commit(Command::Put(PutRequest {
        key: "k/0".into(),
        value: "made up".into(),
        ..PutRequest::default()
    }));
    true
}

fn deny(story: &mut Story, at: usize) -> bool {
    let Some(at) = pick(story, at, |operation| plain_put(operation).is_some()) else { return false };
    story.operation(at).outcome = Outcome::Failed(Failure::NotSent);
    true
}

fn misnumber(story: &mut Story, at: usize) -> bool {
    let Some(at) = pick(story, at, |operation| plain_put(operation).is_some()) else { return false };
    *header(story.operation(at)) -= 1;
    true
}

/// Answers a linearizable read of one key from before what was seen when it was called.
fn read_before(story: &mut Story, at: usize, lies: bool) -> bool {
    let spoilt = |operation: &Operation| {
        let Input::Range(request) = &operation.input else { return None };
        if request.serializable || !operation.is_ok() {
            return None;
        }
        let before = story.history.operations.iter().filter(|other| other.ret < Some(operation.call));
        let seen = before.filter_map(Operation::revision).max()?;
        let then = story.model.keys.range(request, seen - 1);
        let now = story.model.keys.range(request, operation.revision()?);
        (seen > 1 && (!lies || then != now)).then_some((seen - 1, then))
    };
    let Some(at) = pick(story, at, |operation| spoilt(operation).is_some()) else { return false };
    let (revision, reply) = spoilt(&story.history.operations[at]).expect("it was picked");
    *range_reply(story.operation(at)) = reply;
    if !lies {
        *header(story.operation(at)) = revision;
    }
    true
}

fn go_back(story: &mut Story, at: usize) -> bool {
    read_before(story, at, false)
}

fn go_back_and_lie(story: &mut Story, at: usize) -> bool {
    read_before(story, at, true)
}

fn mangle(story: &mut Story, at: usize) -> bool {
    let shows = |operation: &Operation| match &operation.outcome {
        Outcome::Ok { reply: Reply::Range(reply), .. } => !reply.kvs.is_empty(),
        _ => false,
    };
    let Some(at) = pick(story, at, shows) else { return false };
    change(&mut range_reply(story.operation(at)).kvs[0], |kv| kv.value = "never was".into());
    true
}

/// A write that is said to be called after everything else was over.
fn delay(story: &mut Story, at: usize) -> bool {
    let last = story.revision();
    let suits = |operation: &Operation| {
        plain_put(operation).is_some() && operation.revision().is_some_and(|revision| revision < last)
    };
    let Some(at) = pick(story, at, suits) else { return false };
    story.pass(1);
    let now = story.now;
    let operation = story.operation(at);
    (operation.call, operation.ret) = (now, Some(now + Duration::from_millis(1)));
    true
}

/// Places of the events of all watches: watch, response, event.
fn places(story: &Story, suits: impl Fn(&Event) -> bool) -> Vec<(usize, usize, usize)> {
    let mut places = Vec::new();
    for (watch, history) in story.history.watches.iter().enumerate() {
        for (response, came) in history.responses.iter().enumerate() {
            let WatchWord::Events { events, .. } = &came.word else { continue };
            let suitable = (0..events.len()).filter(|event| suits(&events[*event]));
            places.extend(suitable.map(|event| (watch, response, event)));
        }
    }
    places
}

fn spoil_event(
    story: &mut Story,
    at: usize,
    suits: impl Fn(&Event) -> bool,
    how: impl FnOnce(&mut Vec<Event>, usize),
) -> bool {
    let places = places(story, suits);
    let Some(place) = at.checked_rem(places.len()) else { return false };
    let (watch, response, event) = places[place];
    let WatchWord::Events { events, .. } = &mut story.history.watches[watch].responses[response].word else {
        return false;
    };
    how(events, event);
    true
}

fn skip_event(story: &mut Story, at: usize) -> bool {
    spoil_event(story, at, |_| true, |events, event| drop(events.remove(event)))
}

fn repeat_event(story: &mut Story, at: usize) -> bool {
    spoil_event(story, at, |_| true, |events, event| events.insert(event, events[event].clone()))
}

fn drop_prev(story: &mut Story, at: usize) -> bool {
    spoil_event(story, at, |event| event.prev.is_some(), |events, event| events[event].prev = None)
}

fn mark_created(story: &mut Story, at: usize) -> bool {
    let renewed = |event: &Event| event.kv.version > 1;
    spoil_event(story, at, renewed, |events, event| {
        change(&mut events[event].kv, |kv| kv.create_revision = kv.mod_revision);
    })
}

fn swap_responses(story: &mut Story, at: usize) -> bool {
    let responses = &mut story.history.watches[0].responses;
    // The last one is a word of progress.
    let Some(pairs) = responses.len().checked_sub(2).filter(|pairs| *pairs > 0) else { return false };
    responses.swap(at % pairs, at % pairs + 1);
    true
}

fn stretch_lease(story: &mut Story, at: usize) -> bool {
    let tells = |operation: &Operation| {
        matches!(operation.outcome, Outcome::Ok { reply: Reply::LeaseTimeToLive(Some(_)), .. })
    };
    let Some(at) = pick(story, at, tells) else { return false };
    let reply = Reply::LeaseTimeToLive(Some(Duration::from_secs(60)));
    story.operation(at).outcome = Outcome::Ok { revision: None, reply };
    true
}
