//! Leases: time comes from the log, and a deposed leader's word counts for nothing.

use meta_types::{Command, EventKind, LeaseId, LeaseStamp, PutRequest, RangeRequest, Response};

use crate::rig::Rig;

fn put(key: &'static str, lease: LeaseId) -> Command {
    Command::Put(PutRequest { key: key.into(), value: "v".into(), lease, ..PutRequest::default() })
}

fn with_lease(id: LeaseId, ttl: i64, keys: &[&'static str]) -> Rig {
    let mut rig = Rig::new();
    rig.ask(Command::LeaseGrant { id, ttl }).unwrap();
    for key in keys {
        rig.ask(put(key, id)).unwrap();
    }
    rig
}

fn count(rig: &Rig) -> i64 {
    rig.core.range(&RangeRequest::prefix("")).unwrap().count
}

#[test]
fn a_revoked_lease_takes_its_keys_sorted_in_one_revision() {
    let mut rig = with_lease(777, 60, &["c", "a", "b"]);
    let batch = rig.batch(vec![Command::LeaseRevoke { id: 777 }], None);
    let applied = rig.apply(batch);
    assert_eq!(applied.events.len(), 1);
    let events = &applied.events[0];
    assert_eq!(events.revision, 5);
    let keys: Vec<_> = events.events.iter().map(|event| (event.kind, &event.kv.key[..])).collect();
    assert_eq!(keys, [(EventKind::Delete, &b"a"[..]), (EventKind::Delete, b"b"), (EventKind::Delete, b"c")]);
    assert_eq!((count(&rig), rig.core.lease(777)), (0, None));
}

#[test]
fn a_put_without_the_lease_detaches() {
    let mut rig = with_lease(777, 60, &["lk"]);
    rig.ask(put("lk", 0)).unwrap();
    assert!(rig.core.lease(777).unwrap().keys.is_empty());
    rig.ask(Command::LeaseRevoke { id: 777 }).unwrap();
    assert_eq!(count(&rig), 1);
}

#[test]
fn ignore_lease_keeps_it_and_another_lease_takes_over() {
    let mut rig = with_lease(777, 60, &["lk"]);
    let keep = PutRequest { key: "lk".into(), ignore_lease: true, ..PutRequest::default() };
    rig.ask(Command::Put(keep)).unwrap();
    assert_eq!(rig.core.lease(777).unwrap().keys, ["lk"]);
    rig.ask(Command::LeaseGrant { id: 778, ttl: 60 }).unwrap();
    rig.ask(put("lk", 778)).unwrap();
    rig.ask(Command::LeaseRevoke { id: 777 }).unwrap();
    assert_eq!(count(&rig), 1);
    rig.ask(Command::LeaseRevoke { id: 778 }).unwrap();
    assert_eq!(count(&rig), 0);
}

#[test]
fn time_moves_only_by_stamps_of_the_entrys_own_term_and_never_back() {
    let mut rig = Rig::new();
    rig.stamp(5_000);
    rig.stamp(3_000);
    assert_eq!(rig.core.lease_time_ms(), 5_000);
    let mut batch = rig.batch(vec![Command::LeaseTick], None);
    batch.stamp = Some(LeaseStamp { term: 0, lease_time_ms: 9_000 });
    rig.apply(batch);
    assert_eq!(rig.core.lease_time_ms(), 5_000);
}

#[test]
fn a_lease_lives_its_full_ttl_from_grant_and_from_each_renewal() {
    let mut rig = Rig::new();
    rig.stamp(1_000);
    rig.ask(Command::LeaseGrant { id: 1, ttl: 10 }).unwrap();
    rig.stamp(10_999);
    assert_eq!(rig.core.due_leases(9), []);
    assert_eq!(rig.core.lease(1).unwrap().remaining_ms, 1);
    // Stamp and renewal in one batch: the renewal counts from the stamp.
    let batch = rig.batch(vec![Command::LeaseKeepAlive { ids: vec![1] }], Some(12_000));
    let applied = rig.apply(batch);
    assert_eq!(applied.outcomes[0].1.result, Ok(Response::LeaseKeepAlive { ttls: vec![10] }));
    rig.stamp(21_999);
    assert_eq!(rig.core.due_leases(9), []);
    rig.stamp(22_000);
    assert_eq!(rig.core.due_leases(9), [1]);
    assert_eq!(rig.core.lease(1).unwrap().remaining_ms, 0);
}

#[test]
fn expiry_needs_the_lease_to_be_due_and_the_term_to_stand() {
    let mut rig = with_lease(1, 10, &["k"]);
    let expire = |term| Command::LeaseExpire { term, ids: vec![1, 2] };
    rig.stamp(9_999);
    rig.ask(expire(1)).unwrap();
    assert_eq!(count(&rig), 1, "not due");
    rig.stamp(10_000);
    rig.term = 2;
    rig.ask(expire(1)).unwrap();
    assert_eq!(count(&rig), 1, "the leader that proposed it is deposed");
    // A renewal that came first wins.
    rig.ask(Command::LeaseKeepAlive { ids: vec![1] }).unwrap();
    rig.ask(expire(2)).unwrap();
    assert_eq!(count(&rig), 1, "renewed");
    rig.stamp(20_000);
    let revision = rig.outcome(expire(2)).revision;
    assert_eq!((count(&rig), revision), (0, 3));
    assert_eq!(rig.core.lease(1), None);
    assert_eq!(rig.outcome(expire(2)).revision, 3, "a second time it finds nothing");
}

#[test]
fn each_expired_lease_has_a_revision_of_its_own_and_the_longest_overdue_comes_first() {
    let mut rig = with_lease(1, 20, &["b"]);
    for id in [2, 3, 4] {
        rig.ask(Command::LeaseGrant { id, ttl: 10 }).unwrap();
    }
    rig.ask(put("a", 2)).unwrap();
    rig.stamp(20_000);
    assert_eq!(rig.core.due_leases(9), [2, 3, 4, 1]);
    assert_eq!(rig.core.due_leases(2), [2, 3]);
    let batch = rig.batch(vec![Command::LeaseExpire { term: 1, ids: rig.core.due_leases(9) }], None);
    let applied = rig.apply(batch);
    let keys: Vec<_> = applied.events.iter().map(|h| (h.revision, h.events[0].kv.key.clone())).collect();
    assert_eq!(keys, [(4, "a".into()), (5, "b".into())]);
    assert!(rig.core.leases().is_empty());
}
