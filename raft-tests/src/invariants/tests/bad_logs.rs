//! Faults of elections and logs.

use super::rig::{Rig, entry};

#[test]
fn two_leaders_in_one_term() {
    let mut rig = Rig::with_entries(1);
    rig.r(3).term = 1;
    rig.r(3).is_leader = true;
    rig.breaks(&["election-safety"]);
}

#[test]
fn two_votes_in_one_term() {
    let mut rig = Rig::with_entries(1);
    rig.r(2).vote = Some(3);
    rig.breaks(&["election-safety"]);
}

#[test]
fn a_vote_forgotten_at_a_restart() {
    let mut rig = Rig::with_entries(1);
    rig.stop(2).start(2, 0, vec![entry(1, 1)]);
    rig.r(2).vote = None;
    rig.breaks(&["election-safety"]);
}

#[test]
fn a_leader_by_a_vote_that_is_not_on_its_disk() {
    let mut rig = Rig::with_entries(1);
    rig.elect(2, 2, &[2, 3]);
    rig.r(2).durable_term = 1;
    rig.breaks(&["election-safety"]);
}

#[test]
fn two_entries_of_one_index_and_term() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).step();
    let mut other = entry(2, 1);
    other.crc += 1;
    rig.append(2, other);
    rig.breaks(&["log-matching"]);
}

#[test]
fn one_entry_after_different_ones() {
    let mut rig = Rig::with_entries(1);
    rig.elect(2, 2, &[2, 3]).append(2, entry(2, 2)).append(2, entry(3, 2));
    assert_eq!(rig.step(), []);
    rig.append(3, entry(2, 1)).append(3, entry(3, 2));
    rig.breaks(&["log-matching"]);
}

#[test]
fn a_leader_that_drops_its_own_entries() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1));
    assert_eq!(rig.step(), []);
    rig.truncate(1, 2);
    rig.breaks(&["leader-append-only"]);
}

#[test]
fn a_leader_without_a_committed_entry() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).durable(2, 2).commit(1, 2).apply(1, 2);
    assert_eq!(rig.step(), []);
    rig.elect(3, 2, &[2, 3]);
    rig.breaks(&["leader-completeness"]);
}

#[test]
fn committed_on_a_minority() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).durable(1, 2).commit(1, 2);
    rig.breaks(&["committed-quorum"]);
}

#[test]
fn committed_before_a_majority_synced() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).commit(1, 2);
    rig.breaks(&["committed-quorum"]);
}

#[test]
fn the_durable_log_of_a_replica_that_is_down_counts() {
    let mut rig = Rig::with_entries(1);
    rig.append(2, entry(2, 1)).durable(2, 2).stop(2);
    rig.append(1, entry(2, 1)).durable(1, 2).commit(1, 2);
    assert_eq!(rig.step(), []);
    // But what it had not synced does not.
    let mut rig = Rig::with_entries(1);
    rig.append(2, entry(2, 1)).stop(2);
    rig.append(1, entry(2, 1)).durable(1, 2).commit(1, 2);
    rig.breaks(&["committed-quorum"]);
}

#[test]
fn both_sets_of_a_change_of_voters_have_to_agree() {
    let mut rig = Rig::with_entries(1);
    rig.r(1).voters = vec![[1, 2, 3].into(), [3].into()];
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).durable(2, 2).commit(1, 2);
    rig.breaks(&["committed-quorum"]);
}

#[test]
fn a_majority_that_lost_a_committed_entry() {
    let mut rig = Rig::with_entries(2);
    rig.stop(2).stop(3);
    rig.start(2, 0, vec![entry(1, 1)]).start(3, 0, vec![entry(1, 1)]);
    rig.breaks(&["committed-quorum", "durable-log"]);
}

#[test]
fn another_entry_committed_at_an_index() {
    let mut rig = Rig::with_entries(1);
    rig.append(1, entry(2, 1)).append(2, entry(2, 1)).durable(1, 2).durable(2, 2).commit(1, 2).apply(1, 2);
    assert_eq!(rig.step(), []);
    rig.append(3, entry(2, 2)).commit(3, 2);
    rig.breaks(&["committed-immutable"]);
}

#[test]
fn a_known_commit_dropped() {
    let mut rig = Rig::with_entries(2);
    rig.truncate(3, 2).commit(3, 1);
    let replica = rig.r(3);
    (replica.applied, replica.revision, replica.state_hash) = (1, 2, 7);
    rig.breaks(&["committed-immutable", "monotonic"]);
}

#[test]
fn a_restart_without_a_durable_entry() {
    let mut rig = Rig::with_entries(2);
    rig.stop(3).start(3, 0, vec![entry(1, 1)]);
    rig.breaks(&["durable-log"]);
}

#[test]
fn a_restart_may_drop_what_was_not_synced() {
    let mut rig = Rig::with_entries(2);
    rig.append(3, entry(3, 1)).stop(3).start(3, 0, vec![entry(1, 1), entry(2, 1)]);
    assert_eq!(rig.step(), []);
}

#[test]
fn a_hole_in_a_log() {
    let mut rig = Rig::with_entries(1);
    rig.append(2, entry(3, 1));
    rig.breaks(&["durable-log"]);
}

#[test]
fn a_log_end_that_is_not_there() {
    let mut rig = Rig::with_entries(1);
    rig.r(2).last_log = 2;
    rig.breaks(&["durable-log"]);
}
