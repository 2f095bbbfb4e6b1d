//! What operators ask about packages: who holds one, how a node's disk fits its records, how far a package is, what
//! a removal would do.

use records::Class;
use records::keys::{CopyKey, UnitKey};
use records::nodes;
use records::packages::{
    self, Found, NodePackage, Published, Remove, Standing, Wanted, node_packages, preview, refs, standing,
    unknown_nodes,
};
use records::record::{CopyState, PackageRef, UnitState};

use crate::world::{Proc, World, admit_wish, job, report, reserve, unit};

fn wish(id: &str) -> Remove {
    Remove { unit: unit(id), op: None, reason: "removed".into() }
}

fn on_disk(id: &str, op: &str, digest: &str) -> Found {
    let unit = unit(id);
    let published = Published { op: op.into(), digest: digest.into(), bytes: 3, files: 1 };
    Found { name: unit.name, version: unit.version, published: Some(published) }
}

fn by_hand(name: &str, version: &str) -> Found {
    Found { name: name.into(), version: version.into(), published: None }
}

/// READY on `a`, a job of run `t` pins it and runs on it there; `b` fetches it.
fn used() -> (World, PackageRef, Proc, Proc) {
    let world = World::default();
    let (a, b, d) = (world.server("a"), world.server("b"), world.dispatcher("d"));
    let package = world.package("p:1", &a, "x");
    world.admit(&admit_wish("t", 1, &package, &d));
    world.must(|view| records::jobs::drive(view, &crate::world::drive_wish(&job(1))));
    let placed = records::jobs::job(&world.view(), &job(1)).unwrap().unwrap().job.placed.clone().unwrap();
    let node = if placed.node == "a" { &a } else { &b };
    if placed.node == "b" {
        world.must(|view| packages::present(view, &report(&package.unit, &package.op, &b), 3));
    }
    world.launch(&job(1), node);
    let (at, other) = if placed.node == "a" { (a, b) } else { (b, a) };
    (world, package, at, other)
}

#[test]
fn refs_name_run_job_attempt_and_nodes() {
    let (world, package, at, _) = used();
    let held = refs(&world.view(), &package.unit).unwrap();
    assert_eq!((held.op.as_str(), held.status), (package.op.as_str(), UnitState::Ready));
    assert_eq!(held.jobs.len(), 1);
    assert_eq!((held.jobs[0].job.clone(), held.jobs[0].run.as_str()), (job(1), "t"));
    assert_eq!(held.uses.len(), 1);
    let using = &held.uses[0];
    assert_eq!((using.node.as_str(), using.holder.as_str()), (at.me.node.as_str(), job(1).as_str()));
    assert_eq!((using.run.as_ref().map(|run| run.as_str()), using.attempt), (Some("t"), 1));
    assert!(
        held.nodes.iter().any(|hold| hold.node == "a" && hold.status == CopyState::Present && hold.alive)
    );
    assert_eq!(held.holders(), [format!("job {}", job(1)), format!("{} on {}", job(1), at.me.node)]);

    // The node dies: its use is gone with its lease, its row and the pin stay.
    world.kill(&at);
    let held = refs(&world.view(), &package.unit).unwrap();
    assert_eq!((held.jobs.len(), held.uses.len()), (1, 0));
    assert!(held.nodes.iter().any(|hold| hold.node == at.me.node && !hold.alive));
    assert_eq!(refs(&world.view(), &unit("p:2")).unwrap_err().class, Class::NotFound);
}

#[test]
fn a_preview_says_what_the_removal_does_and_changes_nothing() {
    let (world, package, at, _) = used();
    let revision = world.view().revision();
    let safe = preview(&world.view(), &wish("p:1"), false).unwrap();
    assert_eq!((safe.from, safe.to), (UnitState::Ready, UnitState::Removing));
    assert_eq!(safe.waits_for, refs(&world.view(), &package.unit).unwrap().holders());
    assert!(safe.ends.is_empty() && safe.deletes.contains(&"a".to_owned()));
    let forced = preview(&world.view(), &wish("p:1"), true).unwrap();
    assert_eq!(forced.to, UnitState::Purging);
    assert_eq!(forced.ends, [format!("{} on {}", job(1), at.me.node)]);
    assert!(forced.waits_for.is_empty());
    assert_eq!(world.view().revision(), revision);

    // What it would be refused for it is refused for; what is said is what then happens.
    let creating = reserve("q:1", "q", &at);
    world.must(|view| packages::reserve(view, &creating));
    assert_eq!(preview(&world.view(), &wish("q:1"), false).unwrap_err().class, Class::InProgress);
    assert_eq!(preview(&world.view(), &wish("r:1"), false).unwrap_err().class, Class::NotFound);
    let removal = world.must(|view| packages::remove(view, &wish("p:1")));
    assert_eq!((removal.state, removal.refs.holders()), (safe.to, safe.waits_for));
}

fn row(world: &World, node: &str, disk: Option<&[Found]>) -> NodePackage {
    let mut rows = node_packages(&world.view(), node, disk).unwrap();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows.remove(0)
}

#[test]
fn record_and_disk_that_agree_are_no_drift() {
    let world = World::default();
    let a = world.server("a");
    let package = world.package("p:1", &a, "x");
    let good = [on_disk("p:1", &package.op, "digest-x")];
    let found = row(&world, "a", Some(&good));
    assert_eq!(
        (found.status, found.disk.state, found.package),
        (Some("PRESENT"), "PRESENT", Some(UnitState::Ready))
    );
    assert_eq!((found.drift, found.why, found.disk.files), (false, None, 1));
    // What does not answer is not known, and no drift.
    let found = row(&world, "a", None);
    assert_eq!((found.disk.state, found.drift, found.status), ("UNKNOWN", false, Some("PRESENT")));
    // What somebody put there by hand is listed, whatever its name is.
    let disk = [good[0].clone(), by_hand("no name!", "x"), by_hand("q", "1"), by_hand("file", "")];
    let rows = node_packages(&world.view(), "a", Some(&disk)).unwrap();
    assert_eq!(rows.len(), 4);
    let strangers: Vec<_> = rows.iter().filter(|row| row.disk.state == "UNREGISTERED").collect();
    assert!(strangers.len() == 3 && strangers.iter().all(|row| !row.drift && row.status.is_none()));
    // Another node's rows are not this one's.
    assert_eq!(node_packages(&world.view(), "b", Some(&[])).unwrap(), []);
}

#[test]
fn each_way_to_disagree_is_drift_and_says_so() {
    let world = World::default();
    let a = world.server("a");
    let package = world.package("p:1", &a, "x");
    let drifts = |disk: &[Found], why: &str| {
        let found = row(&world, "a", Some(disk));
        let said = found.why.unwrap_or_default();
        assert!(found.drift && said.contains(why), "{why}: {said}");
    };
    drifts(&[], "says PRESENT, and it is not on disk");
    drifts(&[on_disk("p:1", "other", "digest-x")], "operation op-x, other is on disk");
    drifts(&[on_disk("p:1", &package.op, "digest-y")], "manifest is digest-x, digest-y is on disk");
    drifts(&[by_hand("p", "1")], "did not publish");
    let copy = report(&package.unit, &package.op, &a);
    world.must(|view| packages::corrupt(view, &copy, "app.jar CORRUPT"));
    let damaged = row(&world, "a", Some(&[on_disk("p:1", &package.op, "digest-x")]));
    assert_eq!((damaged.status, damaged.drift), (Some("CORRUPT"), false));
    assert_eq!(damaged.error.as_deref(), Some("app.jar CORRUPT"));
    world.must(|view| packages::failed(view, &copy, "no source"));
    drifts(&[on_disk("p:1", &package.op, "digest-x")], "says FAILED, and it is on disk");
    assert!(!row(&world, "a", Some(&[])).drift, "FAILED, and nothing there");
    // Without a row.
    let disk = [on_disk("q:1", "gone", "digest-q")];
    let rows = node_packages(&world.view(), "b", Some(&disk)).unwrap();
    assert!(rows[0].drift && rows[0].why.as_ref().unwrap().contains("does not know operation gone"));
    assert_eq!((rows[0].package, rows[0].status), (None, None));
    let rows = node_packages(&world.view(), "b", Some(&[on_disk("p:1", &package.op, "digest-x")])).unwrap();
    assert!(rows[0].why.as_ref().unwrap().contains("says nothing of it"));
}

#[test]
fn a_dead_node_shows_what_its_records_say() {
    let world = World::default();
    let a = world.server("a");
    world.package("p:1", &a, "x");
    world.kill(&a);
    let found = row(&world, "a", None);
    assert_eq!((found.status, found.alive, found.disk.state), (Some("PRESENT"), false, "UNKNOWN"));
}

#[test]
fn names_of_nodes_to_wait_for() {
    assert_eq!("all".parse::<Wanted>().unwrap(), Wanted::All);
    assert_eq!("majority".parse::<Wanted>().unwrap(), Wanted::Majority);
    assert_eq!("a, b".parse::<Wanted>().unwrap(), Wanted::Named(vec!["a".into(), "b".into()]));
    for bad in ["", "a,,b", ",", "a/b", "a b"] {
        assert_eq!(bad.parse::<Wanted>().unwrap_err().class, Class::BadRequest, "{bad:?}");
    }
}

#[test]
fn waiting_ends_when_enough_live_nodes_have_it() {
    let world = World::default();
    let (a, b, c) = (world.server("a"), world.server("b"), world.server("c"));
    let id = unit("p:1");
    let stands = |wanted: &Wanted| standing(&world.view(), &id, wanted).unwrap();
    assert_eq!(stands(&Wanted::All), Standing::Absent);
    let mut create = reserve("p:1", "x", &a);
    create.targets = packages::Targets::Live;
    create.policy = records::record::Policy::Majority;
    world.must(|view| packages::reserve(view, &create));
    let Standing::Waiting { state, present, needed, missing, .. } = stands(&Wanted::All) else {
        panic!("nobody has it")
    };
    assert_eq!((state, present, needed, missing.len()), (UnitState::Creating, 0, 3, 3));
    for node in [&a, &b] {
        world.must(|view| packages::present(view, &report(&id, &create.op, node), 3));
    }
    assert!(matches!(stands(&Wanted::Majority), Standing::Waiting { .. }), "not READY yet");
    world.must(|view| packages::ready(view, &id, &create.op, 1));
    assert_eq!(stands(&Wanted::Majority), Standing::Usable { on: vec!["a".into(), "b".into()] });
    let named = "a,c".parse().unwrap();
    let Standing::Waiting { missing, .. } = stands(&named) else { panic!("c has none") };
    assert_eq!(missing, [("c".to_owned(), "waiting".to_owned())]);
    world.must(|view| packages::failed(view, &report(&id, &create.op, &c), "disk full"));
    let Standing::Waiting { missing, .. } = stands(&Wanted::All) else { panic!("c has none") };
    assert_eq!(missing, [("c".to_owned(), "FAILED: disk full".to_owned())]);
    // A target that dies is not waited for any more, as in a create; one that was named is.
    world.kill(&c);
    assert!(matches!(stands(&Wanted::All), Standing::Usable { .. }));
    assert!(matches!(stands(&named), Standing::Waiting { .. }));
    // A copy of a boot that is gone does not count.
    world.kill(&b);
    assert_eq!(stands(&Wanted::All), Standing::Usable { on: vec!["a".into()] });
    world.kill(&a);
    assert!(matches!(stands(&Wanted::All), Standing::Waiting { needed: 1, .. }), "nobody is left to have it");
}

#[test]
fn waiting_is_over_when_the_package_goes() {
    let world = World::default();
    let a = world.server("a");
    let package = world.package("p:1", &a, "x");
    let over = |id: &str| match standing(&world.view(), &unit(id), &Wanted::All).unwrap() {
        Standing::Over { why } => why,
        other => panic!("{other:?}"),
    };
    world.must(|view| packages::remove(view, &wish("p:1")));
    assert_eq!(over("p:1"), "p:1 is being removed: removed");
    world.must(|view| packages::force_remove(view, &wish("p:1")));
    assert!(over("p:1").starts_with("p:1 is being removed"));
    let create = reserve("q:1", "q", &a);
    world.must(|view| packages::reserve(view, &create));
    world.must(|view| packages::abort(view, &create.unit, &create.op, 1, "node a failed: disk full"));
    assert_eq!(over("q:1"), "the create of q:1 failed: node a failed: disk full");
    // Which names mean nothing.
    let view = world.view();
    let ask = |id: &str, names: &str| unknown_nodes(&view, &unit(id), &names.parse().unwrap()).unwrap();
    assert_eq!(ask("q:1", "a,b"), ["b"]);
    assert_eq!(ask("q:1", "all"), Vec::<String>::new());
    assert!(view.get(&CopyKey::new(&package.unit, &"a".into())).unwrap().is_some());
    assert!(view.get(&UnitKey::new(&package.unit)).unwrap().is_some());
    assert_eq!(nodes::servers_line(&view).unwrap(), "live server nodes: a");
}
