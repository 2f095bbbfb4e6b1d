//! Registers: READY only when every live target holds the same, and never proof of anything that was not READY.

use records::packages::{self, Progress, Remove, Reserve, Targets, was_ready};
use records::record::{CopyState, Unit, UnitOrigin, UnitState};
use records::{Class, UnitId};

use crate::world::{Proc, World, content, report, reserve, unit};

fn begin(world: &World, coordinator: &Proc) -> (UnitId, String) {
    let wish = Reserve {
        origin: UnitOrigin::Register,
        manifest: None,
        targets: Targets::Live,
        from: Some("/opt/libs".into()),
        ..reserve("p:1", "x", coordinator)
    };
    world.must(|view| packages::reserve(view, &wish));
    assert_eq!(stored(world, &wish.unit).from.as_deref(), Some("/opt/libs"), "carried to the targets");
    (wish.unit, wish.op)
}

fn stored(world: &World, unit: &UnitId) -> Unit {
    world.view().get(&records::keys::UnitKey::new(unit)).unwrap().unwrap().value
}

fn announce(world: &World, unit: &UnitId, op: &str) -> String {
    let (digest, manifest) = content("x");
    world.must(|view| packages::announce(view, unit, op, 1, &digest, &manifest));
    digest
}

#[test]
fn a_register_is_ready_when_every_live_target_took_the_announced_files_over() {
    let world = World::default();
    let nodes = [world.server("a"), world.server("b"), world.server("c")];
    let (unit, op) = begin(&world, &nodes[0]);
    for node in &nodes[..2] {
        world.must(|view| packages::inspected(view, &report(&unit, &op, node), "digest-x", 3));
    }
    let said = packages::inspections(&world.view(), &unit, &op).unwrap();
    assert_eq!(said.waiting, ["c"]);
    assert_eq!(said.found, [("a".into(), "digest-x".into()), ("b".into(), "digest-x".into())]);
    // Found is not held.
    let rows = packages::package_status(&world.view(), &unit).unwrap();
    assert!(rows.nodes[..2].iter().all(|row| row.status == "FETCHING"));
    let early = world.refused(|view| packages::adopted(view, &report(&unit, &op, &nodes[0]), "digest-x", 3));
    assert_eq!(early.class, Class::WrongState, "nothing was announced");

    // A target that dies is dropped, and what its former boot said does not count when it is back.
    world.must(|view| packages::inspected(view, &report(&unit, &op, &nodes[2]), "digest-y", 3));
    world.kill(&nodes[2]);
    assert_eq!(packages::inspections(&world.view(), &unit, &op).unwrap().found.len(), 2);
    let again = world.server("c");
    assert_eq!(packages::inspections(&world.view(), &unit, &op).unwrap().waiting, ["c"]);
    world.must(|view| packages::failed(view, &report(&unit, &op, &again), "it is empty"));
    let said = packages::inspections(&world.view(), &unit, &op).unwrap();
    assert_eq!(said.failed, [("c".into(), "it is empty".into())]);
    world.kill(&again);

    let digest = announce(&world, &unit, &op);
    world.must(|view| packages::adopted(view, &report(&unit, &op, &nodes[0]), &digest, 3));
    let refusal = world.refused(|view| packages::ready(view, &unit, &op, 1));
    assert_eq!(refusal.class, Class::NotYet, "two of two are needed");
    world.must(|view| packages::adopted(view, &report(&unit, &op, &nodes[1]), &digest, 3));
    assert_eq!(packages::progress(&world.view(), &unit, &op).unwrap(), Progress::Enough);
    world.must(|view| packages::ready(view, &unit, &op, 1));
}

#[test]
fn a_target_that_holds_something_else_fails_the_register() {
    let world = World::default();
    let nodes = [world.server("a"), world.server("b"), world.server("c")];
    let (unit, op) = begin(&world, &nodes[0]);
    let digest = announce(&world, &unit, &op);
    for node in &nodes[..2] {
        world.must(|view| packages::adopted(view, &report(&unit, &op, node), &digest, 3));
    }
    let other = world.refused(|view| packages::adopted(view, &report(&unit, &op, &nodes[2]), "digest-y", 3));
    assert_eq!(other.class, Class::WrongState);
    // A copy that does not say which files it is counts for nothing, however many others there are.
    world.must(|view| packages::present(view, &report(&unit, &op, &nodes[2]), 3));
    let progress = packages::progress(&world.view(), &unit, &op).unwrap();
    assert_eq!(
        progress,
        Progress::Failed { reason: "node c failed: it holds other files".into(), disk_full: false }
    );
    assert_eq!(world.refused(|view| packages::ready(view, &unit, &op, 1)).class, Class::NotYet);
}

#[test]
fn only_targets_of_a_register_that_goes_on_report_about_it() {
    let world = World::default();
    let (a, b) = (world.server("a"), world.server("b"));
    let created = reserve("q:1", "y", &a);
    world.must(|view| packages::reserve(view, &created));
    let refusal =
        world.refused(|view| packages::inspected(view, &report(&created.unit, &created.op, &a), "d", 3));
    assert_eq!(refusal.class, Class::UnitNotReady, "a create is no register");

    let (unit, op) = begin(&world, &a);
    world.must(|view| packages::inspected(view, &report(&unit, &op, &b), "digest-x", 3));
    let stranger = world.server("late");
    let refusal = world.refused(|view| packages::inspected(view, &report(&unit, &op, &stranger), "d", 3));
    assert_eq!(refusal.class, Class::UnitNotReady, "not a target");
    world.must(|view| packages::abort(view, &unit, &op, 1, "they differ"));
    let late = world.refused(|view| packages::inspected(view, &report(&unit, &op, &a), "digest-x", 3));
    assert_eq!(late.class, Class::UnitNotReady);
    assert_eq!(packages::inspections(&world.view(), &unit, &op).unwrap_err().class, Class::Fenced);
    world.must(|view| packages::dropped(view, &report(&unit, &op, &b)));
    world.must(|view| packages::finish(view, &unit, &op));
}

/// The word of the records on which nodes delete what users had put there.
#[test]
fn only_a_package_that_was_ready_lets_nodes_delete_its_files() {
    let removal = |unit: &UnitId| Remove { unit: unit.clone(), op: None, reason: "removed".into() };
    let world = World::default();
    let a = world.server("a");
    let (id, op) = begin(&world, &a);
    assert!(!was_ready(&stored(&world, &id)), "CREATING");
    let forced = World::clone(&world);
    forced.must(|view| packages::force_remove(view, &removal(&id)));
    assert_eq!(stored(&forced, &id).state, UnitState::Purging);
    assert!(!was_ready(&stored(&forced, &id)), "forced away while CREATING");
    forced.must(|view| packages::finish(view, &id, &op));

    let (id, op) = begin(&world, &a);
    world.kill(&a);
    world.must(|view| packages::coordinator_lost(view, &id, &op));
    assert!(!was_ready(&stored(&world, &id)), "its coordinator was lost");
    world.must(|view| packages::finish(view, &id, &op));

    let a = world.server("a");
    let (id, op) = begin(&world, &a);
    let digest = announce(&world, &id, &op);
    world.must(|view| packages::adopted(view, &report(&id, &op, &a), &digest, 3));
    world.must(|view| packages::ready(view, &id, &op, 1));
    assert!(was_ready(&stored(&world, &id)), "READY");
    world.must(|view| packages::remove(view, &removal(&id)));
    assert!(was_ready(&stored(&world, &id)), "REMOVING");
    world.must(|view| packages::force_remove(view, &removal(&id)));
    assert!(was_ready(&stored(&world, &id)), "PURGING after READY");
}

#[test]
fn records_from_before_there_were_registers_are_read_and_written_as_they_were() {
    let old = r#"{"v":1,"op":"o","state":"PRESENT","incarnation":5,"bytes_done":3,"uses":0}"#;
    let copy: records::record::Copy = serde_json::from_str(old).unwrap();
    assert_eq!((copy.state, copy.digest.as_deref()), (CopyState::Present, None));
    assert!(!serde_json::to_string(&copy).unwrap().contains("digest"));
    assert_eq!(unit("p:1").to_string(), "p:1");
}
