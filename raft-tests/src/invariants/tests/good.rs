//! A story full of what is allowed: lost elections, conflicting tails, a crash, a purge, a checkpoint from a peer.

use super::rig::{Rig, entry};

#[test]
fn a_story_without_a_fault_breaks_nothing() {
    let mut rig = Rig::with_entries(3);

    // The leader appends two entries that reach nobody, and is cut off.
    rig.append(1, entry(4, 1)).append(1, entry(5, 1)).durable(1, 4);
    assert_eq!(rig.step(), []);

    // The others elect 2, which commits an entry of its own there; 1 still believes it leads.
    rig.elect(2, 2, &[2, 3]);
    rig.append(2, entry(4, 2)).append(3, entry(4, 2)).durable(2, 4).durable(3, 4);
    assert_eq!(rig.step(), []);
    rig.commit(2, 4).apply(2, 4);
    assert_eq!(rig.step(), []);

    // 1 loses power: entry 5 was not synced. 3 has not heard that 4 is committed.
    rig.stop(1);
    assert_eq!(rig.step(), []);
    rig.start(1, 0, vec![entry(1, 1), entry(2, 1), entry(3, 1), entry(4, 1)]);
    assert_eq!(rig.step(), []);

    // It follows 2: its tail is replaced, and it applies everything once more.
    rig.elect(2, 2, &[1, 2]);
    rig.truncate(1, 4).append(1, entry(4, 2)).durable(1, 4).commit(1, 4);
    for index in 1..=4 {
        rig.apply(1, index);
    }
    rig.commit(3, 4).apply(3, 4);
    assert_eq!(rig.step(), []);

    // A candidate of term 3 gets one vote and gives up; 2 is elected again, and hears so late that 3 knows more.
    rig.r(3).term = 3;
    rig.r(3).vote = Some(3);
    rig.elect(2, 4, &[1, 2, 3]);
    assert_eq!(rig.step(), []);

    // 2 checkpoints and purges; 1 is down meanwhile and gets the checkpoint instead of the log.
    rig.stop(1);
    for index in 5..=6 {
        for id in 2..=3 {
            rig.append(id, entry(index, 4)).durable(id, index).commit(id, index).apply(id, index);
        }
    }
    rig.r(2).checkpoint = 6;
    rig.purge(2, 5, 4);
    assert_eq!(rig.step(), []);
    rig.start(1, 0, (1..=4).map(|index| entry(index, if index < 4 { 1 } else { 2 })).collect());
    rig.elect(2, 4, &[1, 2]);
    assert_eq!(rig.step(), []);
    rig.r(1).checkpoint = 6;
    rig.purge(1, 6, 4).commit(1, 6);
    let replica = rig.r(1);
    (replica.applied, replica.revision, replica.state_hash) = (6, 7, 42);
    assert_eq!(rig.step(), []);

    // A restart may show an older state, and a checkpoint that was damaged falls back.
    rig.stop(3).start(
        3,
        3,
        (1..=6).map(|index| entry(index, [1, 1, 1, 2, 4, 4][index as usize - 1])).collect(),
    );
    assert_eq!(rig.step(), []);

    assert_eq!(rig.invariants.committed_at(4).map(|at| at.as_millis()), Some(50));
    assert_eq!(rig.invariants.committed_at(7), None);
}

#[test]
fn a_quiet_step_costs_nothing_and_finds_nothing() {
    let mut rig = Rig::with_entries(2);
    for _ in 0..100 {
        assert_eq!(rig.step(), []);
    }
}
