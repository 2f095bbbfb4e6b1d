//! A command is executed once, whatever is proposed twice, late, or by a boot that is gone.

use meta_types::limits::MAX_DEDUP_WINDOW;
use meta_types::{Batch, Command, Op, Origin, PutRequest, RangeRequest, Refusal, Response, Sequenced, Txn};

use crate::rig::Rig;

fn append(key: &'static str) -> Command {
    Command::Put(PutRequest { key: key.into(), ..PutRequest::default() })
}

fn version(rig: &Rig, key: &'static str) -> i64 {
    rig.core.range(&RangeRequest::get(key)).unwrap().kvs.first().map_or(0, |kv| kv.version)
}

#[test]
fn a_duplicate_changes_nothing_and_has_no_outcome_but_advances_the_log() {
    let mut rig = Rig::new();
    let batch = rig.batch(vec![append("a"), append("b")], None);
    assert_eq!(rig.apply(batch.clone()).outcomes.len(), 2);
    let (hash, index) = (rig.core.state_hash(), rig.core.applied().unwrap().index);
    let again = rig.apply(batch);
    assert_eq!((again.outcomes.len(), again.events.len()), (0, 0));
    assert_eq!((rig.core.state_hash(), version(&rig, "a")), (hash, 1));
    assert_eq!(rig.core.applied().unwrap().index, index + 1);
}

#[test]
fn a_batch_may_repeat_some_and_bring_others() {
    let mut rig = Rig::new();
    let mut batch = rig.batch(vec![append("a")], None);
    rig.apply(batch.clone());
    batch.commands.push(Sequenced { seq: 50, command: append("a") });
    let outcomes = rig.apply(batch).outcomes;
    assert_eq!(outcomes.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [50]);
    assert_eq!(version(&rig, "a"), 2);
}

#[test]
fn a_refused_command_counts_as_applied() {
    let mut rig = Rig::new();
    let grant = Command::LeaseRevoke { id: 5 };
    let batch = rig.batch(vec![grant], None);
    assert_eq!(rig.apply(batch.clone()).outcomes[0].1.result, Err(Refusal::LeaseNotFound));
    rig.ask(Command::LeaseGrant { id: 5, ttl: 9 }).unwrap();
    assert!(rig.apply(batch).outcomes.is_empty(), "it would succeed now, but it was answered");
    assert_eq!(rig.core.leases(), [5]);
}

#[test]
fn below_the_low_water_mark_nothing_is_executed() {
    let mut rig = Rig::new();
    let lost = rig.batch(vec![append("lost")], None);
    rig.low_water = rig.next_seq;
    rig.ask(append("a")).unwrap();
    let outcome = &rig.apply(lost).outcomes[0];
    assert_eq!(outcome.1.result, Err(Refusal::BelowLowWater));
    assert_eq!(version(&rig, "lost"), 0);
}

#[test]
fn an_unregistered_origin_is_refused() {
    let mut rig = Rig::new();
    let origin = Origin { member: 2, boot: 7 };
    let commands = vec![Sequenced { seq: 1, command: append("a") }];
    let outcomes = rig.apply(Batch { origin, low_water: 1, stamp: None, commands }).outcomes;
    assert_eq!(outcomes[0].1.result, Err(Refusal::OriginRetired));
}

#[test]
fn a_new_boot_retires_the_one_before_for_good() {
    let mut rig = Rig::new();
    let first = rig.batch(vec![Command::RegisterOrigin, append("late")], None);
    rig.origin.boot = 200;
    rig.ask(Command::RegisterOrigin).unwrap();
    let hash = rig.core.state_hash();
    // A copy of an old registration does not bring its boot back.
    let outcomes = rig.apply(first).outcomes;
    assert!(outcomes.iter().all(|(_, outcome)| outcome.result == Err(Refusal::OriginRetired)));
    assert_eq!((rig.core.state_hash(), version(&rig, "late")), (hash, 0));
    assert_eq!(
        rig.ask(Command::RegisterOrigin),
        Ok(Response::Done),
        "asked again, the standing one says yes"
    );
    // Other members are not touched.
    let other =
        Batch { origin: Origin { member: 2, boot: 100 }, low_water: 1, stamp: None, commands: vec![] };
    let register = vec![Sequenced { seq: 1, command: Command::RegisterOrigin }];
    assert_eq!(rig.apply(Batch { commands: register, ..other }).outcomes[0].1.result, Ok(Response::Done));
    assert!(rig.ask(append("a")).is_ok());
}

#[test]
fn the_window_is_bounded_and_what_falls_out_of_it_is_refused() {
    let mut rig = Rig::new();
    let skipped = rig.batch(vec![append("skipped")], None);
    let first = rig.batch(vec![append("first")], None);
    rig.apply(first.clone());
    for _ in 0..MAX_DEDUP_WINDOW / 1024 + 1 {
        let batch = rig.batch(vec![Command::LeaseTick; 1024], None);
        assert_eq!(rig.apply(batch).outcomes.len(), 1024);
    }
    assert_eq!(rig.core.state_hash(), rig.core.recompute_hash());
    for old in [skipped, first] {
        assert_eq!(rig.apply(old).outcomes[0].1.result, Err(Refusal::BelowLowWater));
    }
    assert_eq!((version(&rig, "skipped"), version(&rig, "first")), (0, 1));
}

#[test]
fn entries_that_were_applied_are_passed_over() {
    let mut rig = Rig::new();
    rig.ask(append("a")).unwrap();
    let hash = rig.core.state_hash();
    let log = rig.log.clone();
    for (at, batch) in &log {
        let applied = rig.core.apply(*at, batch.as_ref().unwrap());
        assert!(applied.outcomes.is_empty() && applied.events.is_empty());
    }
    assert_eq!(rig.core.state_hash(), hash);
}

#[test]
#[should_panic(expected = "are missing")]
fn a_gap_in_the_log_stops_the_replica() {
    let mut rig = Rig::new();
    let mut at = rig.next_position();
    at.index += 1;
    rig.core.skip(at);
}

#[test]
fn the_cluster_is_set_once_and_its_feature_level_only_rises() {
    let mut rig = Rig::new();
    let set = |cluster_id, feature_level| Command::SetCluster { cluster_id, name: "c".into(), feature_level };
    rig.ask(set(1, 3)).unwrap();
    rig.ask(set(1, 2)).unwrap();
    assert_eq!(rig.core.cluster().unwrap().feature_level, 3);
    assert_eq!(rig.ask(set(2, 9)), Err(Refusal::OtherCluster));
    rig.ask(set(1, 4)).unwrap();
    assert_eq!(rig.core.cluster().unwrap().feature_level, 4);
    assert_eq!(rig.core.revision(), 1);
}

#[test]
fn a_transaction_proposed_twice_runs_once() {
    let mut rig = Rig::new();
    let txn = Command::Txn(Txn { success: vec![Op::put("a", "1"), Op::put("b", "1")], ..Txn::default() });
    let batch = rig.batch(vec![txn], None);
    rig.apply(batch.clone());
    rig.apply(batch);
    assert_eq!((version(&rig, "a"), rig.core.revision()), (1, 2));
}
