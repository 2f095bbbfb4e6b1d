//! Jobs that are kept while their node is away: nobody else starts them, and only who knows what became of them says so.

use std::collections::BTreeMap;

use records::jobs::{self, Cancel, CancelAnswer, Driven, Ending, ON_LOST_STORE, on_lost_store};
use records::record::{Exit, JobOwner, JobSpec, JobState, OnLostStore, Role};
use records::{Class, keys, packages};

use crate::failover::{Setup, setup};
use crate::world::{Proc, begin, drive_wish, job, node, report};

/// A job that is kept, started on one of two nodes that is gone since; its epoch and the other node.
fn lost() -> (Setup, Proc, Proc, i64) {
    let s = setup(|wish| wish.spec.on_lost_store = OnLostStore::Keep);
    let first = s.place().clone();
    let second = if first.me == s.a.me { s.b.clone() } else { s.a.clone() };
    let epoch = s.world.launch(&job(1), &first);
    s.world.must(|view| jobs::created(view, &job(1), epoch, 1));
    s.world.kill(&first);
    (s, first, second, epoch)
}

fn waits(s: &Setup) -> Option<String> {
    let view = s.world.view();
    jobs::lost_host(&view, &jobs::job(&view, &job(1)).unwrap().unwrap()).unwrap()
}

fn force() -> Cancel {
    Cancel { job: job(1), reason: "cancelled".into(), retention: 0, now_ms: 0 }
}

/// What the next boot does before it goes on.
fn use_again(s: &Setup, back: &Proc, epoch: i64) {
    let program = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap().job.spec.program.clone();
    s.world.must(|view| packages::present(view, &report(&program.unit, &program.op, back), 3));
    let wish = packages::BeginUse { epoch: Some(epoch), ..begin(&program, &job(1), back) };
    s.world.must(|view| packages::begin_use(view, &wish));
}

#[test]
fn it_goes_nowhere_while_its_node_is_away_and_on_when_that_is_back() {
    let (s, first, second, epoch) = lost();
    for _ in 0..3 {
        assert_eq!(s.world.must(|view| jobs::drive(view, &drive_wish(&job(1)))), Driven::Settled);
    }
    let refusal = s.world.refused(|view| jobs::claim(view, &job(1), &second.me, second.lease));
    assert_eq!(refusal.class, Class::Fenced);
    let says = waits(&s).expect("it waits");
    for word in [first.me.node.as_str(), "cancel --force"] {
        assert!(says.contains(word), "{says}");
    }
    // No other node goes on with it, nor one of the same name on another work directory.
    assert_eq!(s.world.refused(|view| jobs::resume(view, &job(1), epoch, &second.me)).class, Class::Fenced);
    let lease = s.world.kv.grant(std::time::Duration::from_secs(15)).id;
    let wish = records::nodes::Register {
        name: first.me.node.clone(),
        node: node(&[Role::Jobmaster], 4, "another-1"),
        lease,
    };
    let other = s.world.must(|view| records::nodes::register(view, &wish));
    assert_eq!(s.world.refused(|view| jobs::resume(view, &job(1), epoch, &other)).class, Class::Fenced);
    s.world.kill(&Proc { me: other, lease });
    // The node is back. What it kept takes slots of it before it goes on with it.
    let back = s.world.server(&first.me.node);
    let free = jobs::free_slots(&s.world.view(), None).unwrap()[&back.me].free;
    assert_eq!(free, 3);
    assert_eq!(
        s.world.refused(|view| jobs::resume(view, &job(1), epoch, &back.me)).class,
        Class::UnitNotReady
    );
    use_again(&s, &back, epoch);
    for _ in 0..2 {
        s.world.must(|view| jobs::resume(view, &job(1), epoch, &back.me));
    }
    assert_eq!(waits(&s), None);
    // Under the same epoch, through the loss of another lease.
    s.world.kill(&back);
    let end = Ending {
        state: JobState::Finished,
        exit: Exit { code: Some(0), ..Exit::default() },
        created: true,
        retention: 0,
        now_ms: 9,
    };
    s.world.must(|view| jobs::ended(view, &job(1), epoch, &end));
    let done = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap();
    assert_eq!((done.state(), done.job.attempt, done.owner), (JobState::Finished, 1, None));
}

#[test]
fn when_nothing_of_it_is_left_it_moves_and_that_is_no_failure() {
    let (s, first, _, epoch) = lost();
    s.world.must(|view| jobs::release(view, &job(1), epoch, "nothing is left"));
    let next = s.place().clone();
    assert_ne!(next.me, first.me);
    let second = s.world.launch(&job(1), &next);
    let record = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap().job.value;
    assert!(second > epoch);
    assert_eq!((record.attempt, record.failures), (2, 0));
}

#[test]
fn by_force_it_is_over_at_once_and_its_epoch_is_too() {
    let (s, first, _, epoch) = lost();
    // Without force it waits for the node.
    assert_eq!(s.world.must(|view| jobs::request_cancel(view, &force())), CancelAnswer::Asked);
    assert_eq!(s.state(), JobState::Cancelling);
    // A node that is back and goes on with it just then, and an operator who saw it away: one of them is refused.
    let back = s.world.server(&first.me.node);
    use_again(&s, &back, epoch);
    let resumed = jobs::resume(&s.world.view(), &job(1), epoch, &back.me).unwrap();
    let forced = jobs::cancel_by_force(&s.world.view(), &force()).unwrap();
    assert_eq!(s.world.commit(forced), Some(CancelAnswer::Canceled));
    assert!(s.world.commit(resumed).is_none(), "its epoch is over");
    let refusal = s.world.refused(|view| jobs::resume(view, &job(1), epoch, &back.me));
    assert_eq!(refusal.class, Class::Fenced);
    let done = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap();
    assert_eq!((done.state(), done.job.attempt), (JobState::Canceled, 1));
    let text = done.job.exit.clone().unwrap().text;
    assert!(text.contains(&first.me.node) && text.contains("by force"), "{text}");
    assert_eq!(s.world.view().count("/icp/use/").unwrap() + s.world.view().count("/icp/pin/").unwrap(), 0);
    assert_eq!(s.world.must(|view| jobs::cancel_by_force(view, &force())), CancelAnswer::Canceled);
}

#[test]
fn force_is_a_plain_cancel_for_a_job_whose_node_lives_or_that_is_not_kept() {
    for keep in [OnLostStore::Keep, OnLostStore::Kill] {
        let s = setup(|wish| wish.spec.on_lost_store = keep);
        let first = s.place().clone();
        let epoch = s.world.launch(&job(1), &first);
        let owner = s.world.view().get(&keys::JobOwnerKey::new(&job(1))).unwrap().unwrap();
        assert_eq!(owner.lease == 0, keep == OnLostStore::Keep);
        assert_eq!(owner.create_revision, epoch, "the same epoch as before main() was started");
        assert_eq!(s.world.must(|view| jobs::cancel_by_force(view, &force())), CancelAnswer::Asked);
        assert_eq!(s.state(), JobState::Cancelling);
    }
}

/// A claim alone has started nothing: the job moves as any other.
#[test]
fn before_main_is_started_it_moves_with_its_nodes_lease() {
    let s = setup(|wish| wish.spec.on_lost_store = OnLostStore::Keep);
    let first = s.place().clone();
    s.world.must(|view| jobs::claim(view, &job(1), &first.me, first.lease));
    s.world.kill(&first);
    assert_ne!(s.place().me, first.me);
}

#[test]
fn its_setting_is_kill_or_keep_and_older_records_say_kill() {
    let with = |value: &str| BTreeMap::from([(ON_LOST_STORE.to_owned(), value.to_owned())]);
    assert_eq!(on_lost_store(&BTreeMap::new(), "kill").unwrap(), OnLostStore::Kill);
    assert_eq!(on_lost_store(&BTreeMap::new(), "keep").unwrap(), OnLostStore::Keep);
    assert_eq!(on_lost_store(&with(" kill "), "keep").unwrap(), OnLostStore::Kill);
    assert_eq!(on_lost_store(&with("keep"), "kill").unwrap(), OnLostStore::Keep);
    let refusal = on_lost_store(&with("Kept"), "kill").unwrap_err();
    assert_eq!(refusal.class, Class::BadRequest);
    assert_eq!(refusal.text, "on-lost-store = \"Kept\": wants kill or keep");

    let s = setup(|wish| wish.spec.on_lost_store = OnLostStore::Keep);
    let spec = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap().job.spec.clone();
    let mut json = serde_json::to_value(&spec).unwrap();
    assert_eq!(json["on_lost_store"], "keep");
    json.as_object_mut().unwrap().remove("on_lost_store");
    let old: JobSpec = serde_json::from_value(json).unwrap();
    assert_eq!(old, JobSpec { on_lost_store: OnLostStore::Kill, ..spec });
    let owner: JobOwner = serde_json::from_str("{\"node\":\"a\",\"incarnation\":3,\"slots\":1}").unwrap();
    assert_eq!(owner.work_dir, None);
}
