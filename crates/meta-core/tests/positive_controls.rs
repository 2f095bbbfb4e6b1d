//! That the known bugs which sit in this crate break what they are said to break, and only while they are on.
//! `cargo test -p meta-core --features positive-controls --test positive_controls`
#![cfg(feature = "positive-controls")]

#[path = "suite/rig.rs"]
#[expect(dead_code, reason = "the suite uses more of it")]
mod rig;

use std::sync::Mutex;

use meta_core::Core;
use meta_types::controls::{Control, passed, set};
use meta_types::{Command, PutRequest};
use rig::Rig;

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

fn put(key: &'static str, lease: i64) -> Command {
    Command::Put(PutRequest { key: key.into(), value: "v".into(), lease, ..PutRequest::default() })
}

#[test]
fn dedup_forgotten_in_a_checkpoint_executes_a_second_copy() {
    let revision_after_a_copy = || {
        let mut rig = Rig::new();
        let batch = rig.batch(vec![put("k", 0)], None);
        rig.apply(batch.clone());
        let mut frozen = rig.core.freeze();
        let steps = std::iter::from_fn(|| Some(frozen.step(1 << 20)).filter(|step| !step.is_empty()));
        let mut core = Core::import(steps.flatten()).expect("the checkpoint is whole");
        core.apply(rig.next_position(), &batch);
        core.revision()
    };
    assert_eq!(without_and_with(Control::DedupForgottenInCheckpoint, revision_after_a_copy), (2, 3));
}

#[test]
fn a_revocation_without_its_conditions_takes_a_lease_that_was_renewed() {
    let stands = || {
        let mut rig = Rig::new();
        rig.ask(Command::LeaseGrant { id: 7, ttl: 5 }).expect("granted");
        rig.stamp(6_000);
        rig.ask(Command::LeaseKeepAlive { ids: vec![7] }).expect("renewed");
        rig.ask(Command::LeaseExpire { term: 1, ids: vec![7] }).expect("done");
        let renewed = rig.core.lease(7).is_some();
        rig.stamp(60_000);
        rig.ask(Command::LeaseExpire { term: 0, ids: vec![7] }).expect("done");
        (renewed, rig.core.lease(7).is_some())
    };
    let (without, with) = without_and_with(Control::RevokeByDeposedLeader, stands);
    assert_eq!((without, with), ((true, true), (false, false)));
}
