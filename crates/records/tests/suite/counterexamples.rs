//! The shortest traces that break the literal proposal, three of create and three of remove, and two dispatchers
//! with one triggerId. Each is run in the order that breaks; the guards refuse the step that would.

use records::packages::{self, Remove, Reserved};
use records::record::{CopyState, UnitState};
use records::runs::{self, differing_fields};
use records::{Class, jobs};

use crate::world::{
    World, admit_wish, begin, content, drive_wish, job, report, reserve, stated, trigger, unit,
};

fn remove_wish(id: &str) -> Remove {
    Remove { unit: unit(id), op: None, reason: "removed".into() }
}

/// Both read "none"; A creates to READY; B's step comes late. The record must not be A's with B's content behind.
#[test]
fn create_two_coordinators_that_both_read_none() {
    let world = World::default();
    let (a, b) = (world.server("a"), world.server("b"));
    let (wish_a, wish_b) = (reserve("p:1", "x", &a), reserve("p:1", "y", &b));
    let read_none = world.view();
    let plan_a = packages::reserve(&read_none, &wish_a).unwrap();
    let plan_b = packages::reserve(&read_none, &wish_b).unwrap();

    assert!(matches!(world.commit(plan_a), Some(Reserved::Started { .. })));
    assert!(world.commit(plan_b).is_none(), "the key is no longer absent");
    assert_eq!(world.refused(|view| packages::reserve(view, &wish_b)).class, Class::InProgress);
    world.must(|view| packages::present(view, &report(&wish_a.unit, "op-x", &a), 3));
    let fenced = world.refused(|view| packages::present(view, &report(&wish_a.unit, "op-y", &b), 3));
    assert_eq!(fenced.class, Class::Fenced);
    world.must(|view| packages::ready(view, &wish_a.unit, "op-x", 1));
    assert_eq!(packages::ready_package(&world.view(), &unit("p:1")).unwrap().op, "op-x");
}

/// The answer of the reservation was lost and the coordinator gave up: the create has an exit though its node lives.
#[test]
fn a_create_that_nobody_carries_is_found_by_its_coordinator() {
    let world = World::default();
    let (a, b) = (world.server("a"), world.server("b"));
    for (id, name) in [("p:1", "x"), ("p:2", "y")] {
        world.must(|view| packages::reserve(view, &reserve(id, name, &a)));
    }
    let refusal = world.refused(|view| packages::coordinator_lost(view, &unit("p:1"), "op-x"));
    assert_eq!(refusal.class, Class::WrongState, "it lives, nobody else may end it");
    assert!(packages::stranded(&world.view(), &b.me, |_| false).unwrap().is_empty());
    let found = packages::stranded(&world.view(), &a.me, |op| op == "op-y").unwrap();
    assert_eq!(found, [(unit("p:1"), "op-x".to_owned(), 1)]);
    world.must(|view| packages::abort(view, &found[0].0, &found[0].1, found[0].2, "nobody carries it"));
    world.must(|view| packages::finish(view, &unit("p:1"), "op-x"));
}

/// The coordinator dies after another node verified the bytes: that node finishes the create, and what the dead one
/// had on its way is refused.
#[test]
fn a_live_node_takes_a_create_over() {
    let world = World::default();
    let (a, b) = (world.server("a"), world.server("b"));
    let wish = packages::Reserve { targets: packages::Targets::Live, ..reserve("p:1", "x", &a) };
    world.must(|view| packages::reserve(view, &wish));
    let refusal = world.refused(|view| packages::take_over(view, &wish.unit, "op-x", &b.me));
    assert_eq!(refusal.class, Class::WrongState, "its coordinator lives");
    for node in [&a, &b] {
        world.must(|view| packages::present(view, &report(&wish.unit, "op-x", node), 3));
    }
    let late_ready = packages::ready(&world.view(), &wish.unit, "op-x", 1).unwrap();
    let late_abort = packages::abort(&world.view(), &wish.unit, "op-x", 1, "time is up").unwrap();
    world.kill(&a);
    let lost = packages::coordinator_lost(&world.view(), &wish.unit, "op-x").unwrap();
    assert_eq!(world.must(|view| packages::take_over(view, &wish.unit, "op-x", &b.me)), 2);
    for late in [late_ready, late_abort, lost] {
        assert!(world.commit(late).is_none());
    }
    let fenced = world.refused(|view| packages::abort(view, &wish.unit, "op-x", 1, "time is up"));
    assert_eq!(fenced.class, Class::Fenced);
    world.must(|view| packages::ready(view, &wish.unit, "op-x", 2));
}

/// Both clients must not be told OK for different content.
#[test]
fn create_with_other_content_is_told_so() {
    let world = World::default();
    let (a, b) = (world.server("a"), world.server("b"));
    world.package("p:1", &a, "x");
    assert_eq!(world.refused(|view| packages::reserve(view, &reserve("p:1", "y", &b))).class, Class::Exists);
    let same = packages::Reserve { op: "op-z".into(), ..reserve("p:1", "x", &b) };
    let answer = world.must(|view| packages::reserve(view, &same));
    assert_eq!(answer, Reserved::Ready { op: "op-x".into(), digest: Some(content("x").0) });
}

/// B suspects A's coordinator and removes "the dead create" after A answered OK.
#[test]
fn create_suspected_coordinator_was_done() {
    let world = World::default();
    let (a, _b) = (world.server("a"), world.server("b"));
    let wish = reserve("p:1", "x", &a);
    world.must(|view| packages::reserve(view, &wish));
    world.must(|view| packages::present(view, &report(&wish.unit, "op-x", &a), 3));
    // B planned when it saw A's registration gone: a view in which A does not live.
    let suspicious = {
        let without_a = world.kv.snapshot();
        let kept = without_a.iter().filter(|kv| kv.key.as_ref() != b"/node/a").cloned();
        let covers = vec![meta_types::KeyRange::prefix("")];
        records::View::from(meta_client::Snapshot::new(without_a.revision(), covers, kept))
    };
    let plan_b = packages::coordinator_lost(&suspicious, &wish.unit, "op-x").unwrap();
    world.must(|view| packages::ready(view, &wish.unit, "op-x", 1));
    world.kill(&a);
    assert!(world.commit(plan_b).is_none(), "what was suspected is READY by now");
    assert!(packages::ready_package(&world.view(), &wish.unit).is_ok());
}

/// Start checks READY; the node drains and deletes; start runs on deleted files.
#[test]
fn remove_between_the_check_and_the_start() {
    let world = World::default();
    let a = world.server("a");
    let package = world.package("p:1", &a, "x");
    let late_start = packages::begin_use(&world.view(), &begin(&package, &job(1), &a)).unwrap();
    world.must(|view| packages::remove(view, &remove_wish("p:1")));
    world.must(|view| packages::draining(view, &report(&package.unit, &package.op, &a), 0));
    world.must(|view| packages::dropped(view, &report(&package.unit, &package.op, &a)));
    assert!(world.commit(late_start).is_none(), "the copy it checked is gone");
    let refusal = world.refused(|view| packages::begin_use(view, &begin(&package, &job(1), &a)));
    assert_eq!(refusal.class, Class::UnitNotReady);

    // The other order: the start was first, the node may not delete.
    let package = {
        world.must(|view| packages::finish(view, &package.unit, &package.op));
        world.package("p:1", &a, "y")
    };
    let late_drop = {
        world.must(|view| packages::remove(view, &remove_wish("p:1")));
        packages::dropped(&world.view(), &report(&package.unit, &package.op, &a)).unwrap()
    };
    let refusal = world.refused(|view| packages::begin_use(view, &begin(&package, &job(1), &a)));
    assert_eq!(refusal.class, Class::UnitNotReady, "REMOVING and not pinned");
    assert!(world.commit(late_drop).is_some());
}

/// A job is given back while the begin of a use is on its way: the use would stay as long as the node lives, and no
/// removal would end.
#[test]
fn a_use_that_begins_after_the_job_was_given_back() {
    let world = World::default();
    let (a, d) = (world.server("a"), world.dispatcher("d"));
    let package = world.package("p:1", &a, "x");
    world.admit(&admit_wish("t", 1, &package, &d));
    world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    let epoch = world.must(|view| jobs::claim(view, &job(1), &a.me, a.lease));
    let wish = packages::BeginUse { epoch: Some(epoch), ..begin(&package, &job(1), &a) };
    let late = packages::begin_use(&world.view(), &wish).unwrap();
    world.must(|view| jobs::release(view, &job(1), epoch, "the node stops"));
    assert!(world.commit(late).is_none(), "nobody would end it");
    assert_eq!(world.refused(|view| packages::begin_use(view, &wish)).class, Class::Fenced);
}

/// A node read READY on demand, the package drains, the cleaner sees no rows, the node writes its row, the cleaner
/// deletes the record: an orphan.
#[test]
fn remove_while_a_node_fetches_on_demand() {
    let world = World::default();
    let (a, b, c) = (world.server("a"), world.server("b"), world.server("c"));
    let package = world.package("p:1", &a, "x");
    let fetch =
        |proc| packages::fetching(&world.view(), &report(&package.unit, &package.op, proc), 0).unwrap();
    let (early_row, late_row) = (fetch(&b), fetch(&c));
    assert!(world.commit(early_row).is_some());
    world.must(|view| packages::remove(view, &remove_wish("p:1")));
    assert!(world.commit(late_row).is_none(), "it is not READY any more");
    world.must(|view| packages::dropped(view, &report(&package.unit, &package.op, &a)));
    let refusal = world.refused(|view| packages::finish(view, &package.unit, &package.op));
    assert_eq!(refusal.class, Class::NotYet, "b has a row");
    world.must(|view| packages::dropped(view, &report(&package.unit, &package.op, &b)));
    world.must(|view| packages::finish(view, &package.unit, &package.op));
    assert!(packages::packages(&world.view()).unwrap().is_empty());
}

/// A copy is found damaged between the check and the start.
#[test]
fn start_on_a_copy_that_turns_out_damaged() {
    let world = World::default();
    let a = world.server("a");
    let package = world.package("p:1", &a, "x");
    let late_start = packages::begin_use(&world.view(), &begin(&package, &job(1), &a)).unwrap();
    world.must(|view| packages::corrupt(view, &report(&package.unit, &package.op, &a), "app.jar differs"));
    assert!(world.commit(late_start).is_none());
    let refusal = world.refused(|view| packages::begin_use(view, &begin(&package, &job(1), &a)));
    assert_eq!(refusal.class, Class::NotYet, "the package is READY: the job moves, it does not fail");
}

/// The same with a job: it was admitted while READY, so it runs and moves while REMOVING, and the package goes after.
#[test]
fn remove_under_a_job_that_moves() {
    let world = World::default();
    let (a, b, d) = (world.server("a"), world.server("b"), world.dispatcher("d"));
    let package = world.package("p:1", &a, "x");
    world.admit(&admit_wish("t", 1, &package, &d));
    let late_admission = runs::admit(&world.view(), &admit_wish("u", 2, &package, &d)).unwrap();
    world.must(|view| packages::remove(view, &remove_wish("p:1")));
    assert!(world.commit(late_admission).is_none(), "no pin on what is being removed");
    let refusal = world.refused(|view| runs::admit(view, &admit_wish("u", 2, &package, &d)));
    assert_eq!(refusal.class, Class::UnitNotReady);
    let refusal = world.refused(|view| packages::dropped(view, &report(&package.unit, &package.op, &a)));
    assert_eq!(refusal.class, Class::NotYet, "a job may still start here");
    world.must(|view| packages::draining(view, &report(&package.unit, &package.op, &a), 0));

    // It runs on the draining copy of whoever it was placed on; then that node dies and the other fetches for it.
    world.must(|view| {
        let only_a = Some(b.me.clone());
        jobs::drive(view, &jobs::Drive { give_up_on: only_a, ..drive_wish(&job(1)) })
    });
    let placed = world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    let (first, second) = if placed == jobs::Driven::Placed(a.me.clone()) { (&a, &b) } else { (&b, &a) };
    let fetch =
        |proc| packages::CopyReport { for_job: Some(job(1)), ..report(&package.unit, &package.op, proc) };
    if first.me == b.me {
        world.must(|view| packages::present(view, &fetch(&b), 3));
    }
    let epoch = world.launch(&job(1), first);
    world.must(|view| jobs::created(view, &job(1), epoch, 0));
    world.kill(first);
    world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    world.must(|view| packages::present(view, &fetch(second), 3));
    let epoch = world.launch(&job(1), second);
    let state = records::record::JobState::Finished;
    let ending = jobs::Ending { state, exit: Default::default(), created: true, retention: 0, now_ms: 0 };
    world.must(|view| jobs::ended(view, &job(1), epoch, &ending));

    world.must(|view| packages::dropped(view, &report(&package.unit, &package.op, second)));
    world.must(|view| packages::dead_copy(view, &package.unit, &first.me.node));
    world.must(|view| packages::finish(view, &package.unit, &package.op));
}

/// A pinned job's node fetches while the package is removed, and drains what it has meanwhile: there is nothing yet
/// to start from, and the fetch is not undone. (Found by the simulator: the two undid each other without an end.)
#[test]
fn draining_leaves_a_pinned_fetch_alone() {
    let world = World::default();
    let (a, b, d) = (world.server("a"), world.server("b"), world.dispatcher("d"));
    let package = world.package("p:1", &a, "x");
    world.admit(&admit_wish("t", 1, &package, &d));
    world.must(|view| packages::remove(view, &remove_wish("p:1")));
    let mine = report(&package.unit, &package.op, &b);
    let fetch = packages::CopyReport { for_job: Some(job(1)), ..mine.clone() };
    let state = || {
        let key = records::keys::CopyKey::new(&package.unit, &b.me.node);
        world.view().get(&key).unwrap().unwrap().state
    };
    let pinned = begin(&package, &job(1), &b);
    for unfinished in [CopyState::Fetching, CopyState::Failed, CopyState::Corrupt] {
        match unfinished {
            CopyState::Failed => world.must(|view| packages::failed(view, &fetch, "no source")),
            CopyState::Corrupt => world.must(|view| packages::corrupt(view, &fetch, "app.jar differs")),
            _ => world.must(|view| packages::fetching(view, &fetch, 1)),
        }
        world.must(|view| packages::draining(view, &mine, 0));
        assert_eq!(state(), unfinished);
        let refusal = world.refused(|view| packages::begin_use(view, &pinned));
        assert_eq!(refusal.class, Class::NotYet, "nothing is there to start from");
    }
    world.must(|view| packages::present(view, &fetch, 3));
    world.must(|view| packages::draining(view, &mine, 0));
    assert_eq!(state(), CopyState::Draining);
    world.must(|view| packages::begin_use(view, &pinned));
}

/// The only holder is away while its package is removed, its row is deleted, and it comes back: a pinned job will need
/// the bytes that it still has. (Found by the simulator: it deleted them.)
#[test]
fn a_holder_that_was_away_keeps_what_a_job_pins() {
    let world = World::default();
    let (a, d) = (world.server("a"), world.dispatcher("d"));
    let package = world.package("p:1", &a, "x");
    world.admit(&admit_wish("t", 1, &package, &d));
    world.must(|view| packages::remove(view, &remove_wish("p:1")));
    world.kill(&a);
    world.must(|view| packages::dead_copy(view, &package.unit, "a"));
    let back = world.server("a");
    let mine = report(&package.unit, &package.op, &back);
    let refusal = world.refused(|view| packages::dropped(view, &mine));
    assert_eq!(refusal.class, Class::NotYet);
    let for_job = packages::CopyReport { for_job: Some(job(1)), ..mine };
    world.must(|view| packages::present(view, &for_job, 3));
    world.must(|view| packages::begin_use(view, &begin(&package, &job(1), &back)));
}

/// Two dispatchers and one triggerId at the same moment: one job, one answer.
#[test]
fn one_trigger_from_two_dispatchers() {
    let world = World::default();
    let (a, d, e) = (world.server("a"), world.dispatcher("d"), world.dispatcher("e"));
    let package = world.package("p:1", &a, "x");
    let (wish_d, wish_e) = (admit_wish("t", 1, &package, &d), admit_wish("t", 2, &package, &e));
    let view = world.view();
    let (plan_d, plan_e) = (runs::admit(&view, &wish_d).unwrap(), runs::admit(&view, &wish_e).unwrap());
    let first = world.commit(plan_e).unwrap();
    assert!(first.new);
    assert!(world.commit(plan_d).is_none());
    let second = world.admit(&wish_d);
    assert_eq!((second.job, second.new), (job(2), false), "the loser answers the winner's job");
    assert_eq!(jobs::jobs(&world.view()).unwrap().len(), 1);

    let other = runs::Admit { stated: stated("other"), ..wish_d.clone() };
    let refusal = world.refused(|view| runs::admit(view, &other));
    assert_eq!(refusal.class, Class::Different);
    assert!(refusal.text.contains("jar"), "{refusal}");
    assert_eq!(differing_fields(&stated("d"), &stated("other")), ["jar"]);

    let taken = runs::Admit { trigger: trigger("t2"), job: job(2), ..wish_d };
    let refusal = world.refused(|view| runs::admit(view, &taken));
    assert_eq!(refusal.class, Class::JobIdInUse);
    assert!(refusal.text.contains("run t"), "{refusal}");
}

/// A name that differs only in case; freeing the name with its last version.
#[test]
fn names_that_differ_in_case() {
    let world = World::default();
    let a = world.server("a");
    let first = world.package("Lib:1", &a, "x");
    let refusal = world.refused(|view| packages::reserve(view, &reserve("lib:2", "y", &a)));
    assert_eq!(refusal.class, Class::NameCase);
    let second = world.package("Lib:2", &a, "z");
    for package in [first, second] {
        assert_eq!(
            world.refused(|view| packages::reserve(view, &reserve("lib:3", "y", &a))).class,
            Class::NameCase
        );
        world.must(|view| {
            packages::remove(view, &Remove { op: None, unit: package.unit.clone(), reason: String::new() })
        });
        world.must(|view| packages::dropped(view, &report(&package.unit, &package.op, &a)));
        world.must(|view| packages::finish(view, &package.unit, &package.op));
    }
    world.package("lib:3", &a, "y");
}

/// Status joins rows, nodes, uses; LOST and DEGRADED are derived.
#[test]
fn status_is_derived() {
    let world = World::default();
    let (a, b) = (world.server("a"), world.server("b"));
    let wish = packages::Reserve { targets: packages::Targets::Live, ..reserve("p:1", "x", &a) };
    world.must(|view| packages::reserve(view, &wish));
    world.must(|view| packages::present(view, &report(&wish.unit, &wish.op, &a), 3));
    assert_eq!(
        packages::progress(&world.view(), &wish.unit, &wish.op).unwrap(),
        packages::Progress::Waiting { on: vec!["b".into()] }
    );
    assert_eq!(world.refused(|view| packages::ready(view, &wish.unit, &wish.op, 1)).class, Class::NotYet);
    world.must(|view| packages::disk_full(view, &report(&wish.unit, &wish.op, &b), "no space left"));
    let progress = packages::progress(&world.view(), &wish.unit, &wish.op).unwrap();
    let reason = "node b failed: no space left".to_owned();
    assert_eq!(progress, packages::Progress::Failed { reason, disk_full: true });
    world.must(|view| packages::present(view, &report(&wish.unit, &wish.op, &b), 3));
    world.must(|view| packages::ready(view, &wish.unit, &wish.op, 1));
    let status = |world: &World| packages::package_status(&world.view(), &wish.unit).unwrap().status;
    assert_eq!(status(&world), "READY");
    world.kill(&b);
    assert_eq!(status(&world), "DEGRADED");
    world.kill(&a);
    assert_eq!(status(&world), "LOST");
    let rows = world.view().all::<records::keys::CopyKey>().unwrap();
    assert!(rows.iter().all(|(_, row)| row.state == CopyState::Present), "nothing of it is stored");
    let unit = world.view().get(&records::keys::UnitKey::new(&wish.unit)).unwrap().unwrap();
    assert_eq!(unit.state, UnitState::Ready);
}
