//! That the known bugs which sit in this crate break what they are said to break, and only while they are on.
//! `cargo test -p records --features positive-controls --test positive_controls`
#![cfg(feature = "positive-controls")]

#[path = "suite/world.rs"]
#[expect(dead_code, reason = "the suite uses more of it")]
mod world;

use std::sync::Mutex;

use meta_types::controls::{Control, passed, set};
use records::packages::{self, Remove};
use records::{invariants, runs, step_violations};
use world::{World, admit_wish, report, reserve};

/// The switch is of the process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// What `look` says without the bug and with it. The bug's place has to be passed.
fn without_and_with<T>(control: Control, look: impl Fn() -> T) -> (T, T) {
    let _one = ONE.lock().expect("no test panics with the switch");
    set(None);
    let without = look();
    set(Some(control));
    let with = look();
    assert!(passed() > 0, "{control}: its place was not passed");
    set(None);
    (without, with)
}

#[test]
fn ready_without_its_guard_brings_a_package_back() {
    let broken = || {
        let world = World::default();
        let node = world.server("n1");
        let wish = reserve("p:1", "p", &node);
        world.must(|view| packages::reserve(view, &wish));
        world.must(|view| packages::present(view, &report(&wish.unit, &wish.op, &node), 3));
        let ready = packages::ready(&world.view(), &wish.unit, &wish.op, 1).expect("it is on enough nodes");
        let removal = Remove { unit: wish.unit.clone(), op: None, reason: "by force".into() };
        world.must(|view| packages::force_remove(view, &removal));
        let before = world.view();
        let reply = world.kv.apply_txn(ready.txn()).expect("carried out or refused");
        (reply.value.succeeded, step_violations(&before, &world.view()).len())
    };
    let (without, with) = without_and_with(Control::ReadyWithoutGuard, broken);
    assert_eq!((without, with), ((false, 0), (true, 1)));
}

#[test]
fn a_trigger_that_is_only_looked_up_makes_two_jobs() {
    let broken = || {
        let world = World::default();
        let (node, dispatcher) = (world.server("n1"), world.dispatcher("d1"));
        let program = world.package("p:1", &node, "p");
        let view = world.view();
        let posts = [1, 2].map(|job| admit_wish("t", job, &program, &dispatcher));
        let plans = posts.map(|wish| runs::admit(&view, &wish).expect("new, as far as the view goes"));
        let done = plans.map(|plan| world.kv.apply_txn(plan.txn()).is_ok_and(|reply| reply.value.succeeded));
        (done, invariants(&world.view()).is_empty())
    };
    let (without, with) = without_and_with(Control::TriggerOutsideTxn, broken);
    assert_eq!((without, with), (([true, false], true), ([true, true], false)));
}
