//! Cancelling and deleting, before a claim, after it, and racing with the moment the job is created.

use records::jobs::{self, Cancel, CancelAnswer, Driven, Ending};
use records::record::{JobState, RunResult};
use records::runs::{self, Advance, Advanced, Delete};
use records::{Class, JobId};

use crate::world::{Proc, World, admit_wish, drive_wish, job, trigger};

fn cancel(id: &JobId) -> Cancel {
    Cancel { job: id.clone(), reason: "cancel".into(), retention: 0, now_ms: 0 }
}

fn delete() -> Delete {
    Delete { trigger: trigger("t"), token_retention: 0, job_retention: 0, now_ms: 0 }
}

fn setup() -> (World, Proc, Proc) {
    let world = World::default();
    let (a, d) = (world.server("a"), world.dispatcher("d"));
    let package = world.package("p:1", &a, "x");
    world.admit(&admit_wish("t", 1, &package, &d));
    (world, a, d)
}

fn launch(world: &World, node: &Proc) -> i64 {
    world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    world.launch(&job(1), node)
}

fn canceled() -> Ending {
    Ending { state: JobState::Canceled, exit: Default::default(), created: false, retention: 0, now_ms: 0 }
}

#[test]
fn before_a_claim_the_job_ends_at_once() {
    let (world, a, _) = setup();
    world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    let late_claim = jobs::claim(&world.view(), &job(1), &a.me, a.lease).unwrap();
    assert_eq!(world.must(|view| jobs::request_cancel(view, &cancel(&job(1)))), CancelAnswer::Canceled);
    assert!(world.commit(late_claim).is_none());
    assert_eq!(world.refused(|view| jobs::claim(view, &job(1), &a.me, a.lease)).class, Class::WrongState);
    let run_epoch = runs::run(&world.view(), &trigger("t")).unwrap().unwrap().epoch.unwrap();
    let step =
        Advance { trigger: trigger("t"), epoch: run_epoch, run_retention: 0, token_retention: 0, now_ms: 0 };
    let Advanced::Completed(RunResult::FailureCause(cause)) = world.must(|view| runs::advance(view, &step))
    else {
        panic!("no failure cause");
    };
    assert_eq!(cause.class, "CANCELED");
}

#[test]
fn after_a_claim_the_owner_confirms_or_is_lost() {
    let (world, a, _) = setup();
    let epoch = launch(&world, &a);
    assert_eq!(world.must(|view| jobs::request_cancel(view, &cancel(&job(1)))), CancelAnswer::Asked);
    assert_eq!(world.must(|view| jobs::request_cancel(view, &cancel(&job(1)))), CancelAnswer::Asked);
    assert_eq!(world.refused(|view| jobs::created(view, &job(1), epoch, 0)).class, Class::WrongState);
    world.must(|view| jobs::cancelling(view, &job(1), epoch));
    world.kill(&a);
    let driven = world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    assert_eq!(driven, Driven::Ended(JobState::Canceled));
    let refusal = world.must(|view| jobs::request_cancel(view, &cancel(&job(1))));
    assert_eq!(refusal, CancelAnswer::Canceled, "cancelling what is cancelled is fine");
}

/// Deleting a run races with "created": either cancelled and no job, or completed and the job exists.
#[test]
fn delete_and_created_exclude_each_other() {
    // Delete first.
    let (world, a, _) = setup();
    let epoch = launch(&world, &a);
    let late_created = jobs::created(&world.view(), &job(1), epoch, 0).unwrap();
    let deleted = world.must(|view| runs::delete(view, &delete()));
    assert!(!deleted.settled, "the owner has to kill it");
    assert!(world.commit(late_created).is_none(), "somebody wants it gone");
    assert!(!runs::is_settled(&world.view(), &job(1)).unwrap());
    let created_after_all = Ending { state: JobState::Finished, created: true, ..canceled() };
    assert_eq!(world.must(|view| jobs::ended(view, &job(1), epoch, &created_after_all)), JobState::Canceled);
    assert!(runs::is_settled(&world.view(), &job(1)).unwrap());
    assert!(world.must(|view| runs::delete(view, &delete())).settled, "repeating is fine");
    let package = jobs::job(&world.view(), &job(1)).unwrap().unwrap().job.spec.program.clone();
    let d2 = world.dispatcher("d2");
    let retry = world.refused(|view| runs::admit(view, &admit_wish("t", 9, &package, &d2)));
    assert_eq!(retry.class, Class::Deleted);

    // Created first: the late delete's plan fails, planned anew it also cancels the job that now exists.
    let (world, a, _) = setup();
    let epoch = launch(&world, &a);
    let late_delete = runs::delete(&world.view(), &delete()).unwrap();
    world.must(|view| jobs::created(view, &job(1), epoch, 0));
    assert!(world.commit(late_delete).is_none());
    assert!(!world.must(|view| runs::delete(view, &delete())).settled);
}

/// A retry that was on its way while the run was made and deleted must not revive it.
#[test]
fn a_late_admission_finds_the_tombstone() {
    let world = World::default();
    let (a, d, e) = (world.server("a"), world.dispatcher("d"), world.dispatcher("e"));
    let package = world.package("p:1", &a, "x");
    let late = runs::admit(&world.view(), &admit_wish("t", 2, &package, &e)).unwrap();
    world.admit(&admit_wish("t", 1, &package, &d));
    assert!(world.must(|view| runs::delete(view, &delete())).settled, "nobody had claimed it");
    assert!(world.commit(late).is_none());
    let refusal = world.refused(|view| runs::admit(view, &admit_wish("t", 2, &package, &e)));
    assert_eq!(refusal.class, Class::Deleted);
}

#[test]
fn a_completed_runs_job_outlives_its_deletion() {
    let (world, a, _) = setup();
    let epoch = launch(&world, &a);
    world.must(|view| jobs::created(view, &job(1), epoch, 0));
    let run_epoch = runs::run(&world.view(), &trigger("t")).unwrap().unwrap().epoch.unwrap();
    let step =
        Advance { trigger: trigger("t"), epoch: run_epoch, run_retention: 0, token_retention: 0, now_ms: 0 };
    world.must(|view| runs::advance(view, &step));
    assert!(world.must(|view| runs::delete(view, &delete())).settled);
    assert!(world.must(|view| runs::delete(view, &delete())).settled, "again, though the job runs");
    assert_eq!(jobs::job(&world.view(), &job(1)).unwrap().unwrap().state(), JobState::Running);
    let unknown = Delete { trigger: trigger("never"), ..delete() };
    assert_eq!(world.refused(|view| runs::delete(view, &unknown)).class, Class::NotFound);
}
