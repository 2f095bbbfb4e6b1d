//! Faults of what is made of the log: order, monotony, state, revisions, leases, records.

use std::sync::Arc;
use std::time::Duration;

use meta_client::Snapshot;
use meta_types::KeyValue;
use records::{Scope, View};

use super::super::{LeaseMark, StateMark};
use super::rig::{Rig, entry};

#[test]
fn purged_beyond_the_checkpoint() {
    let mut rig = Rig::with_entries(3);
    rig.r(1).checkpoint = 1;
    rig.purge(1, 2, 1);
    rig.breaks(&["log-order"]);
}

#[test]
fn a_checkpoint_of_what_is_not_applied() {
    let mut rig = Rig::with_entries(1);
    rig.r(1).checkpoint = 2;
    rig.breaks(&["log-order"]);
}

#[test]
fn applied_before_it_is_committed() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).durable(2, 2).apply(1, 2);
    rig.breaks(&["log-order", "committed-quorum"]);
}

#[test]
fn committed_beyond_the_log() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).durable(2, 2).commit(1, 2);
    rig.commit(3, 2);
    rig.breaks(&["log-order"]);
}

#[test]
fn another_entry_applied_at_an_index() {
    let mut rig = Rig::with_entries(1);
    rig.append(3, entry(2, 9)).commit(3, 2).apply(3, 2);
    rig.step();
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).durable(2, 2).commit(1, 2).apply(1, 2);
    rig.breaks(&["committed-immutable", "committed-quorum", "state-machine-safety"]);
}

#[test]
fn applied_without_having_it() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).durable(2, 2).commit(1, 2);
    rig.commit(3, 2).apply(3, 2);
    rig.breaks(&["log-order", "state-machine-safety"]);
}

#[test]
fn numbers_that_go_back() {
    let mut rig = Rig::with_entries(2);
    rig.r(2).term = 0;
    rig.breaks(&["monotonic"]);

    let mut rig = Rig::with_entries(2);
    rig.r(2).lease_time_ms = 5;
    assert_eq!(rig.step(), []);
    rig.r(2).lease_time_ms = 4;
    rig.breaks(&["monotonic"]);

    let mut rig = Rig::with_entries(2);
    let replica = rig.r(2);
    (replica.applied, replica.revision, replica.state_hash) = (1, 2, 7);
    rig.breaks(&["monotonic"]);

    let mut rig = Rig::with_entries(2);
    rig.r(2).checkpoint = 2;
    assert_eq!(rig.step(), []);
    rig.r(2).checkpoint = 1;
    rig.breaks(&["monotonic"]);
}

#[test]
fn a_term_that_goes_back_at_a_restart() {
    let mut rig = Rig::with_entries(1);
    rig.stop(2).start(2, 0, vec![entry(1, 1)]);
    rig.r(2).term = 0;
    rig.breaks(&["monotonic"]);
}

#[test]
fn another_state_after_the_same_entries() {
    let mut rig = Rig::with_entries(2);
    rig.r(2).state_hash += 1;
    rig.breaks(&["equal-state"]);
    let mut rig = Rig::with_entries(2);
    rig.r(3).revision += 1;
    rig.breaks(&["equal-state"]);
}

#[test]
fn another_state_on_the_way() {
    let mut rig = Rig::with_entries(2);
    for id in 1..=3 {
        rig.append(id, entry(3, 1)).append(id, entry(4, 1)).durable(id, 4).commit(id, 4);
        rig.apply(id, 3);
        rig.apply(id, 4);
    }
    rig.r(2).states[0].hash += 1;
    rig.breaks(&["equal-state"]);
}

#[test]
fn a_revision_left_out() {
    let mut rig = Rig::with_entries(1);
    for id in 1..=3 {
        rig.append(id, entry(2, 1)).durable(id, 2).commit(id, 2);
        let replica = rig.r(id);
        (replica.applied, replica.revision, replica.state_hash) = (2, 4, 14);
        replica.states.push(StateMark { index: 2, revision: 4, written: 1, hash: 14 });
    }
    rig.breaks(&["revisions"]);
}

#[test]
fn a_store_that_does_not_start_at_one() {
    let mut rig = Rig::new();
    rig.r(1).revision = 0;
    rig.breaks(&["revisions"]);
}

#[test]
fn lease_time_faster_than_time() {
    let mut rig = Rig::with_entries(1);
    rig.view.at += Duration::from_secs(1);
    rig.r(1).lease_time_ms = 1000;
    assert_eq!(rig.step(), []);
    rig.r(1).lease_time_ms = 1100;
    rig.breaks(&["lease-bounds"]);
}

#[test]
fn a_lease_with_more_than_its_time() {
    let mut rig = Rig::with_entries(1);
    rig.r(1).leases.push(LeaseMark { id: 7, ttl_ms: 2000, remaining_ms: 2000 });
    assert_eq!(rig.step(), []);
    rig.r(1).leases.push(LeaseMark { id: 7, ttl_ms: 2000, remaining_ms: 2001 });
    rig.breaks(&["lease-bounds"]);
    rig.r(1).leases.push(LeaseMark { id: 8, ttl_ms: 1000, remaining_ms: 1000 });
    rig.breaks(&["lease-bounds"]);
}

fn records(revision: i64, kvs: Vec<KeyValue>) -> View {
    let ranges = Scope::everything().ranges().to_vec();
    Snapshot::new(revision, ranges, kvs.into_iter().map(Arc::new)).into()
}

#[test]
fn records_that_cannot_be() {
    let mut rig = Rig::with_entries(1);
    rig.view.records.push(records(2, Vec::new()));
    assert_eq!(rig.step(), []);
    // A pin of a job that is not there.
    let key = format!("/icp/pin/lib/1.0/{}", "0".repeat(32));
    let pin = KeyValue { key: key.into(), value: r#"{"v":1,"op":"o"}"#.into(), ..KeyValue::default() };
    rig.view.records.push(records(3, vec![pin]));
    rig.breaks(&["records"]);
}
