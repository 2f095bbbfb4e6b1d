//! Leases that end too early, too late, or by the wrong word.

use std::time::Duration;

use meta_types::Command;

use super::story::{Story, put_leased};
use crate::checkers::{LeaseRules, Replay, leases};
use crate::history::{Input, Outcome, Reply};

const TTL: Duration = Duration::from_secs(3);

/// A lease with a key, granted at about one second and not renewed since.
fn granted() -> Story {
    let mut story = Story::new();
    story.does(1, Input::LeaseGrant { id: 1, ttl: TTL });
    story.does(1, put_leased("l", "x", 1));
    story
}

fn answer(reply: Reply) -> Outcome {
    Outcome::Ok { revision: None, reply }
}

#[test]
fn a_lease_that_runs_out_early() {
    let mut story = granted();
    story.live(4000);
    story.is_fine();
    // The log is as it was, but time was half as fast: lease time ran ahead.
    for entry in &mut story.log {
        entry.at = entry.at.map(|at| Duration::from_secs(1) + (at - Duration::from_secs(1)) / 2);
    }
    story.is_found(&["lease-shortened"]);
}

#[test]
fn a_renewal_that_did_not_count() {
    let mut story = granted();
    story.live(2000);
    let at = story.call(1, Input::LeaseKeepAlive(1));
    story.ret(at, answer(Reply::LeaseKeepAlive(Some(TTL))));
    story.live(2000);
    story.is_found(&["lease-shortened"]);
}

#[test]
fn a_renewal_for_another_time_than_granted() {
    let mut story = granted();
    let at = story.does(1, Input::LeaseKeepAlive(1));
    story.operation(at).outcome = answer(Reply::LeaseKeepAlive(Some(TTL - Duration::from_secs(1))));
    story.is_found(&["lease-shortened"]);
}

#[test]
fn less_left_than_promised() {
    let mut story = granted();
    let at = story.does(1, Input::LeaseTimeToLive(1));
    story.is_fine();
    story.operation(at).outcome = answer(Reply::LeaseTimeToLive(Some(Duration::from_secs(1))));
    story.is_found(&["lease-shortened"]);
}

#[test]
fn a_lease_that_is_said_to_be_gone() {
    for (input, reply) in [
        (Input::LeaseKeepAlive(1), Reply::LeaseKeepAlive(None)),
        (Input::LeaseTimeToLive(1), Reply::LeaseTimeToLive(None)),
    ] {
        let mut story = granted();
        let at = story.does(1, input);
        story.operation(at).outcome = answer(reply);
        story.is_found(&["lease-lost"]);
    }
}

#[test]
fn a_lease_that_is_said_to_stand() {
    for (input, reply) in [
        (Input::LeaseKeepAlive(1), Reply::LeaseKeepAlive(Some(TTL))),
        (Input::LeaseTimeToLive(1), Reply::LeaseTimeToLive(Some(Duration::from_secs(3)))),
    ] {
        let mut story = granted();
        story.does(1, Input::LeaseRevoke(1));
        let at = story.does(1, input);
        story.is_fine();
        story.operation(at).outcome = answer(reply);
        story.is_found(&["lease-ghost"]);
    }
}

#[test]
fn more_left_than_was_granted() {
    let mut story = granted();
    let at = story.does(1, Input::LeaseTimeToLive(1));
    story.operation(at).outcome = answer(Reply::LeaseTimeToLive(Some(TTL * 2)));
    story.is_found(&["lease-ghost"]);
}

/// A store in which nobody takes due leases out.
fn neglected(ms: u64, outage: Duration, elections: u64) -> Story {
    let mut story = granted();
    for _ in 0..ms / 500 {
        story.pass(500);
        story.commit(Command::LeaseTick);
    }
    story.now += outage;
    for _ in 0..elections {
        story.elect();
    }
    story.commit(Command::LeaseTick);
    story
}

#[test]
fn a_lease_that_stands_too_long() {
    neglected(3500, Duration::ZERO, 0).is_fine();
    neglected(5000, Duration::ZERO, 0).is_found(&["lease-overdue"]);
    // An outage lengthens it by as much, an election by a second.
    neglected(3500, Duration::from_secs(10), 0).is_fine();
    neglected(5000, Duration::from_secs(10), 0).is_found(&["lease-overdue"]);
    neglected(5000, Duration::ZERO, 2).is_fine();
    neglected(7000, Duration::ZERO, 2).is_found(&["lease-overdue"]);
}

#[test]
fn a_renewal_starts_the_time_anew() {
    let mut story = granted();
    story.live(2500);
    let at = story.call(1, Input::LeaseKeepAlive(1));
    story.carry_out(at);
    for _ in 0..6 {
        story.pass(500);
        story.commit(Command::LeaseTick);
    }
    story.is_fine();
}

#[test]
fn a_lease_taken_by_a_deposed_leader() {
    let mut story = granted();
    story.live(3000);
    let mut replay = Replay::of(&story.log);
    let rules = LeaseRules { slack: Duration::ZERO, end: None };
    assert_eq!(leases(&replay, &story.log, &story.history, &rules), []);
    // The state obeyed an entry that another term's leader had proposed.
    for executed in &mut replay.executed {
        if let Command::LeaseExpire { term, .. } = &mut executed.command {
            *term += 1;
        }
    }
    let found = leases(&replay, &story.log, &story.history, &rules);
    assert!(found.iter().any(|finding| finding.name == "lease-deposed"), "{found:#?}");
}
