//! Nodes that take no new jobs: an operator drains them, or they are stopping.

use records::jobs::{self, Driven};
use records::record::JobState;
use records::{Class, nodes};

use crate::failover::{Setup, setup};
use crate::world::{Proc, drive_wish, job};

impl Setup {
    fn other(&self, than: &Proc) -> &Proc {
        if than.me == self.a.me { &self.b } else { &self.a }
    }

    fn drain(&self, node: &Proc) {
        self.world.must(|view| nodes::drain(view, &node.me.node, 0));
    }
}

#[test]
fn a_drained_node_claims_nothing_and_what_is_placed_there_goes_elsewhere_at_once() {
    let s = setup(|_| {});
    let node = s.place().clone();
    let late = jobs::claim(&s.world.view(), &job(1), &node.me, node.lease).unwrap();
    s.drain(&node);
    assert!(s.world.commit(late).is_none(), "planned before the drain");
    let refusal = s.world.refused(|view| jobs::claim(view, &job(1), &node.me, node.lease));
    assert_eq!(refusal.class, Class::NotYet);
    let other = s.other(&node).clone();
    assert_eq!(s.place().me, other.me);
    // It is the last one, and it is drained too: the job waits, and is not over.
    s.drain(&other);
    let waits = "every server node is being drained or is stopping";
    let drive = || s.world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    assert_eq!(drive(), Driven::Waiting(waits.into()));
    s.world.must(|view| nodes::cancel_drain(view, &other.me.node));
    assert_eq!(s.place().me, other.me);
    s.world.launch(&job(1), &other);
}

/// nomad#17563: a job that leaves the only node waits for one, and is never taken for ended.
#[test]
fn a_job_that_leaves_the_only_node_waits() {
    let s = setup(|_| {});
    let node = s.place().clone();
    s.world.kill(s.other(&node));
    let epoch = s.world.launch(&job(1), &node);
    s.world.must(|view| jobs::created(view, &job(1), epoch, 1));
    s.drain(&node);
    s.world.must(|view| jobs::release(view, &job(1), epoch, "node is being drained"));
    let drive = || s.world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    assert!(matches!(drive(), Driven::Waiting(_)));
    assert_eq!(s.state(), JobState::Restarting);
    s.world.must(|view| nodes::cancel_drain(view, &node.me.node));
    s.world.launch(&job(1), s.place());
    assert_eq!(jobs::job(&s.world.view(), &job(1)).unwrap().unwrap().job.attempt, 2);
}

#[test]
fn only_a_live_server_node_is_drained() {
    let s = setup(|_| {});
    let refusal = s.world.refused(|view| nodes::drain(view, "c", 0));
    assert_eq!((refusal.class, refusal.text.contains("a, b")), (Class::NotFound, true), "{refusal}");
    let refusal = s.world.refused(|view| nodes::drain(view, "d", 0));
    assert_eq!((refusal.class, refusal.text.contains("runs no jobs")), (Class::WrongState, true));
    s.drain(&s.a);
    s.drain(&s.a);
    // The wish outlives the boot, and is taken back with or without one.
    s.world.kill(&s.a);
    s.world.must(|view| nodes::cancel_drain(view, "a"));
    s.world.must(|view| nodes::cancel_drain(view, "a"));
    assert!(!nodes::is_draining(&s.world.view(), "a").unwrap());
}

#[test]
fn a_stopping_node_claims_nothing() {
    let s = setup(|_| {});
    let node = s.place().clone();
    s.world.must(|view| nodes::say_stopping(view, &node.me));
    let refusal = s.world.refused(|view| jobs::claim(view, &job(1), &node.me, node.lease));
    assert_eq!(refusal.class, Class::NotYet);
}

#[test]
fn what_a_stopping_node_gives_back_is_not_placed_on_it_again() {
    let s = setup(|_| {});
    let node = s.place().clone();
    let epoch = s.world.launch(&job(1), &node);
    s.world.must(|view| nodes::say_stopping(view, &node.me));
    s.world.must(|view| nodes::say_stopping(view, &node.me));
    s.world.must(|view| jobs::release(view, &job(1), epoch, "node is stopping"));
    let other = s.other(&node).clone();
    assert_eq!(s.place().me, other.me, "the stopping one is as free, and stands for a while");
    // The registration kept its lease and goes with it; the next boot is not stopping.
    s.world.kill(&node);
    assert_eq!(s.world.refused(|view| nodes::say_stopping(view, &node.me)).class, Class::Fenced);
    let again = s.world.server(&node.me.node);
    s.world.kill(&other);
    let drive = s.world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    assert_eq!(drive, Driven::Placed(again.me));
}
