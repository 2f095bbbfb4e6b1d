//! Jobs change hands: epochs fence, attempts count, strategy none starts main() once.

use records::jobs::{self, Driven, Ending};
use records::record::{Exit, JobState, Phase, RestartStrategy, RunResult};
use records::runs::{self, Admit, Advance, Advanced};
use records::{Class, packages};

use crate::world::{Proc, World, admit_wish, drive_wish, job, report, spec, trigger};

pub fn advance_wish(epoch: i64) -> Advance {
    Advance { trigger: trigger("t"), epoch, run_retention: 0, token_retention: 0, now_ms: 1 }
}

fn ending(state: JobState, created: bool) -> Ending {
    Ending { state, exit: Exit { code: Some(0), ..Exit::default() }, created, retention: 0, now_ms: 2 }
}

pub struct Setup {
    pub world: World,
    pub a: Proc,
    pub b: Proc,
    pub d: Proc,
}

/// Two server nodes with one package, one dispatcher, and a run of it.
pub fn setup(change: impl FnOnce(&mut Admit)) -> Setup {
    let world = World::default();
    let (a, b, d) = (world.server("a"), world.server("b"), world.dispatcher("d"));
    let package = world.package("p:1", &a, "x");
    world.must(|view| packages::present(view, &report(&package.unit, &package.op, &b), 3));
    let mut wish = admit_wish("t", 1, &package, &d);
    change(&mut wish);
    world.admit(&wish);
    Setup { world, a, b, d }
}

impl Setup {
    pub fn place(&self) -> &Proc {
        match self.world.must(|view| jobs::drive(view, &drive_wish(&job(1)))) {
            Driven::Placed(node) if node == self.a.me => &self.a,
            Driven::Placed(node) if node == self.b.me => &self.b,
            other => panic!("{other:?}"),
        }
    }

    pub fn state(&self) -> JobState {
        jobs::job(&self.world.view(), &job(1)).unwrap().unwrap().state()
    }
}

#[test]
fn a_run_follows_its_job_and_a_deposed_owner_is_refused() {
    let s = setup(|_| {});
    let run_epoch = runs::run(&s.world.view(), &trigger("t")).unwrap().unwrap().epoch.unwrap();
    let step = |s: &Setup| s.world.must(|view| runs::advance(view, &advance_wish(run_epoch)));
    assert_eq!(step(&s), Advanced::InProgress(Phase::Accepted));
    let first = s.place().clone();
    assert_eq!(step(&s), Advanced::InProgress(Phase::Staging));
    let old_epoch = s.world.launch(&job(1), &first);
    assert_eq!(step(&s), Advanced::InProgress(Phase::Launching));
    let late_created = jobs::created(&s.world.view(), &job(1), old_epoch, 1).unwrap();

    s.world.kill(&first);
    let second = s.place().clone();
    assert_ne!(first.me.node, second.me.node);
    let refusal = s.world.refused(|view| jobs::claim(view, &job(1), &first.me, first.lease));
    assert_eq!(refusal.class, Class::Fenced);
    let epoch = s.world.launch(&job(1), &second);
    assert!(epoch > old_epoch);
    assert!(s.world.commit(late_created).is_none(), "the old epoch is over");
    assert_eq!(s.world.refused(|view| jobs::created(view, &job(1), old_epoch, 1)).class, Class::Fenced);

    s.world.must(|view| jobs::created(view, &job(1), epoch, 1));
    assert_eq!(s.state(), JobState::Running);
    assert_eq!(step(&s), Advanced::Completed(RunResult::Jobid(job(1))));
    s.world.must(|view| jobs::ended(view, &job(1), epoch, &ending(JobState::Finished, true)));
    let view = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap();
    assert_eq!((view.job.attempt, view.state()), (2, JobState::Finished));
    assert_eq!(s.world.view().count("/icp/pin/").unwrap() + s.world.view().count("/icp/use/").unwrap(), 0);
}

/// Whatever an owner still has on its way when its lease runs out is refused, though nobody wrote the job since.
#[test]
fn what_a_dead_owner_sent_late_is_refused() {
    let s = setup(|_| {});
    let first = s.place().clone();
    let claim = s.world.must(|view| jobs::claim(view, &job(1), &first.me, first.lease));
    let late_release = jobs::release(&s.world.view(), &job(1), claim, "bye").unwrap();
    let epoch = s.world.launch(&job(1), &first);
    assert_eq!(epoch, claim, "claiming again answers the same");
    let view = s.world.view();
    let late_created = jobs::created(&view, &job(1), epoch, 1).unwrap();
    let late_end = jobs::ended(&view, &job(1), epoch, &ending(JobState::Failed, false)).unwrap();
    let late_mark = jobs::cancelling(&view, &job(1), epoch).unwrap();
    s.world.kill(&first);
    assert!(s.world.commit(late_release).is_none());
    assert!(s.world.commit(late_created).is_none());
    assert!(s.world.commit(late_end).is_none());
    assert!(s.world.commit(late_mark).is_none());
    assert_eq!(s.state(), JobState::Initializing);
}

#[test]
fn a_job_that_ran_restarts_and_keeps_its_run_a_success() {
    let s = setup(|_| {});
    let first = s.place().clone();
    let epoch = s.world.launch(&job(1), &first);
    s.world.must(|view| jobs::created(view, &job(1), epoch, 1));
    s.world.kill(&first);
    let second = s.place().clone();
    assert_eq!(s.state(), JobState::Restarting);
    let epoch = s.world.launch(&job(1), &second);
    s.world.must(|view| jobs::ended(view, &job(1), epoch, &ending(JobState::Failed, false)));
    let run_epoch = runs::run(&s.world.view(), &trigger("t")).unwrap().unwrap().epoch.unwrap();
    let result = s.world.must(|view| runs::advance(view, &advance_wish(run_epoch)));
    assert_eq!(result, Advanced::Completed(RunResult::Jobid(job(1))), "it was created once");
}

#[test]
fn strategy_none_starts_main_at_most_once() {
    let s = setup(|wish| wish.spec = spec(&wish.spec.program.clone(), 1, RestartStrategy::None));
    // Claimed but not started: it may move.
    let first = s.place().clone();
    s.world.must(|view| jobs::claim(view, &job(1), &first.me, first.lease));
    s.world.kill(&first);
    let second = s.place().clone();
    // Started: a lost owner is the end.
    s.world.launch(&job(1), &second);
    s.world.kill(&second);
    assert_eq!(s.world.must(|view| jobs::drive(view, &drive_wish(&job(1)))), Driven::Ended(JobState::Failed));
    let view = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap();
    assert_eq!(view.job.exit.as_ref().unwrap().class.as_deref(), Some("OWNER_LOST"));
}

#[test]
fn main_that_fails_before_it_makes_a_job_is_the_runs_failure() {
    let s = setup(|_| {});
    let first = s.place().clone();
    let epoch = s.world.launch(&job(1), &first);
    let exit = Exit { code: Some(3), text: "boom".into(), ..Exit::default() };
    let bad = Ending { exit, ..ending(JobState::Failed, false) };
    let plan = jobs::ended(&s.world.view(), &job(1), epoch, &bad).unwrap();
    s.world.commit(plan).unwrap();
    // The answer was lost: asking again finds its own effect.
    assert_eq!(s.world.must(|view| jobs::ended(view, &job(1), epoch, &bad)), JobState::Failed);

    // The dispatcher died; another adopts the run and completes it.
    s.world.kill(&s.d);
    let e = s.world.dispatcher("e");
    assert_eq!(runs::orphans(&s.world.view()).unwrap(), [trigger("t")]);
    let run_epoch = s.world.must(|view| runs::adopt(view, &trigger("t"), &e.me, e.lease));
    let Advanced::Completed(RunResult::FailureCause(cause)) =
        s.world.must(|view| runs::advance(view, &advance_wish(run_epoch)))
    else {
        panic!("no failure cause");
    };
    assert_eq!((cause.class.as_str(), cause.stack_trace.as_str()), ("MAIN_FAILED", "exit code 3\nboom"));
}

#[test]
fn slots_are_counted_and_waiting_says_why() {
    let s = setup(|wish| wish.spec.parallelism = 8);
    let waiting = s.world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
    assert_eq!(waiting, Driven::Waiting("needs 8 slots, largest node has 4".into()));
    let package = jobs::job(&s.world.view(), &job(1)).unwrap().unwrap().job.spec.program.clone();
    for number in 2..=4 {
        let mut wish = admit_wish(&format!("t{number}"), number, &package, &s.d);
        wish.spec.parallelism = 3;
        s.world.admit(&wish);
    }
    let place = |number| s.world.must(|view| jobs::drive(view, &drive_wish(&job(number))));
    let (second, third) = (place(2), place(3));
    assert_ne!(second, third, "each node has room for one of them");
    assert_eq!(place(4), Driven::Waiting("needs 3 free slots, the freest node has 1".into()));
    let waiting = jobs::job(&s.world.view(), &job(4)).unwrap().unwrap().job.waiting.clone();
    assert_eq!(waiting.as_deref(), Some("needs 3 free slots, the freest node has 1"));
    s.world.kill(&s.a);
    s.world.kill(&s.b);
    let nobody = s.world.must(|view| jobs::drive(view, &drive_wish(&job(2))));
    assert_eq!(
        nobody,
        Driven::Waiting("no server node lives: start a jobmaster or set single.enable=false".into())
    );
}
