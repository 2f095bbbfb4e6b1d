//! main() fails: it starts again after a pause, as often as its strategy allows; a lost container is not a failure.

use records::jobs::{self, AfterFailure, Driven, Ending, MainFailed};
use records::record::{Backoff, Exit, Job, JobState, RestartStrategy, RunResult};
use records::runs::{self, Advanced};

use crate::failover::{Setup, advance_wish, setup};
use crate::world::{Proc, drive_wish, job, spec, trigger};

const ONCE: RestartStrategy = RestartStrategy::FixedDelay { attempts: 1, delay_ms: 1000 };

fn with(strategy: RestartStrategy) -> Setup {
    setup(|wish| wish.spec = spec(&wish.spec.program.clone(), 1, strategy))
}

fn failure(created: bool) -> MainFailed {
    let exit = Exit { code: Some(4), class: Some("MAIN_FAILED".into()), ..Exit::default() };
    let ending = Ending { state: JobState::Failed, exit, created, retention: 0, now_ms: 5 };
    MainFailed { ending, ran_ms: 10, dice: u32::MAX / 2 }
}

impl Setup {
    fn record(&self) -> Job {
        jobs::job(&self.world.view(), &job(1)).unwrap().unwrap().job.value
    }

    /// Places and starts it, after whatever pause there is.
    fn run(&self) -> (Proc, i64) {
        let wish = jobs::Drive { waited_ms: u64::MAX, ..drive_wish(&job(1)) };
        self.world.must(|view| jobs::drive(view, &wish));
        let node = self.place().clone();
        let epoch = self.world.launch(&job(1), &node);
        (node, epoch)
    }

    fn fail(&self, epoch: i64, wish: &MainFailed) -> AfterFailure {
        self.world.must(|view| jobs::main_failed(view, &job(1), epoch, wish))
    }

    fn created(&self, epoch: i64) {
        self.world.must(|view| jobs::created(view, &job(1), epoch, 1));
    }

    fn drive_after(&self, waited_ms: u64) -> Driven {
        let wish = jobs::Drive { waited_ms, ..drive_wish(&job(1)) };
        self.world.must(|view| jobs::drive(view, &wish))
    }
}

#[test]
fn a_failed_main_starts_again_after_its_pause_until_the_budget_is_used_up() {
    let s = with(ONCE);
    let (_, epoch) = s.run();
    s.created(epoch);
    let late = jobs::created(&s.world.view(), &job(1), epoch, 1).map(|plan| plan.is_empty());
    assert_eq!(late, Ok(true));
    let late_end = jobs::ended(&s.world.view(), &job(1), epoch, &failure(true).ending).unwrap();
    assert_eq!(s.fail(epoch, &failure(true)), AfterFailure::Restarts { pause_ms: 1000 });
    assert_eq!(s.state(), JobState::Restarting);
    let record = s.record();
    assert_eq!((record.failures, record.pause_ms), (1, Some(1000)));
    assert_eq!(record.last_failure.as_ref().and_then(|exit| exit.code), Some(4));
    let waiting = record.waiting.clone().unwrap();
    assert_eq!(waiting, "main() ended with exit code 4: restart 1 of 1, after a pause of 1000 ms");
    // Nothing of it is on the node; its packages stay for the next start.
    let count = |prefix| s.world.view().count(prefix).unwrap();
    assert_eq!((count("/job-owner/"), count("/icp/use/"), count("/icp/pin/")), (0, 0, 1));
    assert!(s.world.commit(late_end).is_none(), "the epoch is over");
    // The answer was lost: asking again finds its own effect, and counts nothing.
    assert_eq!(s.fail(epoch, &failure(true)), AfterFailure::Restarts { pause_ms: 1000 });
    assert_eq!(s.record().failures, 1);

    assert_eq!(s.drive_after(999), Driven::Pausing);
    assert!(matches!(s.drive_after(1000), Driven::Placed(_)));
    assert_eq!(s.record().pause_ms, None);
    let (_, second) = s.run();
    assert!(second > epoch, "an epoch of its own");
    s.created(second);
    assert_eq!(s.state(), JobState::Running);
    assert_eq!(s.fail(second, &failure(true)), AfterFailure::Over(JobState::Failed));
    let record = s.record();
    assert_eq!((record.attempt, record.failures, record.exit.and_then(|exit| exit.code)), (2, 1, Some(4)));
    let run_epoch = runs::run(&s.world.view(), &trigger("t")).unwrap().unwrap().epoch.unwrap();
    let result = s.world.must(|view| runs::advance(view, &advance_wish(run_epoch)));
    assert_eq!(result, Advanced::Completed(RunResult::Jobid(job(1))), "it was created once");
}

#[test]
fn before_main_made_it_a_job_its_failure_is_the_runs() {
    let s = with(ONCE);
    let (_, epoch) = s.run();
    assert_eq!(s.fail(epoch, &failure(false)), AfterFailure::Over(JobState::Failed));
    // Seen in the same moment: it was a job.
    let s = with(ONCE);
    let (_, epoch) = s.run();
    assert!(matches!(s.fail(epoch, &failure(true)), AfterFailure::Restarts { .. }));
    assert!(s.record().is_created());
    // Once it was, a later attempt that fails earlier is one of its failures.
    let (_, epoch) = s.run();
    assert_eq!(s.fail(epoch, &failure(false)), AfterFailure::Over(JobState::Failed));
    assert_eq!(s.record().attempt, 2);
}

#[test]
fn without_a_budget_a_failure_is_the_end() {
    for strategy in [RestartStrategy::None, RestartStrategy::OnContainerLoss] {
        let s = with(strategy);
        let (_, epoch) = s.run();
        s.created(epoch);
        assert_eq!(s.fail(epoch, &failure(true)), AfterFailure::Over(JobState::Failed), "{strategy:?}");
    }
}

#[test]
fn a_lost_container_is_not_counted_and_does_not_pause() {
    let s = with(ONCE);
    let (node, epoch) = s.run();
    s.created(epoch);
    s.world.kill(&node);
    assert!(!s.record().ended_cleanly(), "whoever is next waits a moment");
    assert!(matches!(s.drive_after(0), Driven::Placed(_)));
    let (_, epoch) = s.run();
    s.created(epoch);
    assert_eq!((s.record().attempt, s.record().failures), (2, 0));
    assert!(matches!(s.fail(epoch, &failure(true)), AfterFailure::Restarts { .. }));
}

#[test]
fn who_wants_it_gone_comes_before_any_restart() {
    let cancel = || jobs::Cancel { job: job(1), reason: "cancel".into(), retention: 0, now_ms: 0 };
    let s = with(ONCE);
    let (_, epoch) = s.run();
    s.created(epoch);
    // A plan from before the wish does not take place.
    let late = jobs::main_failed(&s.world.view(), &job(1), epoch, &failure(true)).unwrap();
    s.world.must(|view| jobs::request_cancel(view, &cancel()));
    assert!(s.world.commit(late).is_none());
    assert!(matches!(s.fail(epoch, &failure(true)), AfterFailure::Over(_)));

    let s = with(ONCE);
    let (_, epoch) = s.run();
    s.fail(epoch, &failure(true));
    let answer = s.world.must(|view| jobs::request_cancel(view, &cancel()));
    assert_eq!(answer, jobs::CancelAnswer::Canceled, "nothing runs during a pause");
    assert_eq!((s.state(), s.record().pause_ms), (JobState::Canceled, None));
}

#[test]
fn a_growing_pause_is_forgotten_after_a_good_run() {
    let backoff = Backoff {
        initial_ms: 100,
        max_ms: 1000,
        multiplier_permille: 3000,
        reset_ms: 60_000,
        jitter_permille: 0,
        attempts: Some(2),
    };
    let s = with(RestartStrategy::ExponentialDelay(backoff));
    let fail = |ran_ms| {
        let (_, epoch) = s.run();
        s.fail(epoch, &MainFailed { ran_ms, ..failure(true) })
    };
    let restarts = |pause_ms| AfterFailure::Restarts { pause_ms };
    assert_eq!([fail(0), fail(0)], [restarts(100), restarts(300)]);
    assert!(s.record().waiting.unwrap().contains("restart 2 of 2 in a row"));
    assert_eq!([fail(60_000), fail(59_999)], [restarts(100), restarts(300)]);
    assert_eq!(fail(59_999), AfterFailure::Over(JobState::Failed));
}

#[test]
fn a_start_that_came_to_nothing_is_not_a_start_of_main() {
    let s = with(RestartStrategy::None);
    let (node, epoch) = s.run();
    s.world.must(|view| jobs::release_unstarted(view, &job(1), epoch, "no guard"));
    let record = s.record();
    assert_eq!((record.attempt, record.main_starts(), record.false_starts()), (1, 0, 1));
    assert!(record.ended_cleanly());
    // Not where it did not work, if there is another.
    let (other, epoch) = s.run();
    assert_ne!(node.me, other.me);
    s.world.kill(if other.me == s.a.me { &s.b } else { &s.a });
    s.world.must(|view| jobs::release_unstarted(view, &job(1), epoch, "no guard"));
    let (again, epoch) = s.run();
    assert_eq!((again.me, s.record().main_starts()), (other.me.clone(), 1));
    // This one started: given back, it may not start again.
    s.world.must(|view| jobs::release(view, &job(1), epoch, "node b is stopping"));
    assert_eq!(s.drive_after(0), Driven::Ended(JobState::Failed));
    let exit = s.record().exit.unwrap();
    assert_eq!(exit.class.as_deref(), Some("OWNER_LOST"));
    assert!(exit.text.contains("node b is stopping"), "{}", exit.text);
}

/// Two nodes that cannot have its package do not keep it from a third that can.
#[test]
fn nodes_that_gave_it_back_unstarted_come_last_and_each_in_turn() {
    let s = with(RestartStrategy::OnContainerLoss);
    let c = s.world.server("c");
    let mut tried = Vec::new();
    for _ in 0..5 {
        let Driven::Placed(node) = s.drive_after(0) else { panic!("it fits on three nodes") };
        tried.push(node.clone());
        let lease = [&s.a, &s.b, &c].into_iter().find(|proc| proc.me == node).unwrap().lease;
        let epoch = s.world.must(|view| jobs::claim(view, &job(1), &node, lease));
        s.world.must(|view| jobs::release_unstarted(view, &job(1), epoch, "it cannot have the package"));
        assert!(s.record().unfit.contains(&node));
    }
    let mut first = tried[..3].to_vec();
    first.sort();
    assert_eq!(first, [s.a.me.clone(), s.b.me.clone(), c.me.clone()], "each once, then again: {tried:?}");
    assert_eq!(tried[..2], tried[3..]);
    s.world.kill(&c);
    s.run();
    assert_eq!(s.record().unfit, [], "a start is a new beginning");
}

#[test]
fn a_job_that_was_given_back_says_so_to_its_successor() {
    let s = with(RestartStrategy::OnContainerLoss);
    let (_, epoch) = s.run();
    s.world.must(|view| jobs::release(view, &job(1), epoch, "node a is stopping"));
    assert!(s.record().ended_cleanly());
    // Claimed and given back without a start: what ran last ended cleanly.
    let node = s.place().clone();
    let claim = s.world.must(|view| jobs::claim(view, &job(1), &node.me, node.lease));
    s.world.must(|view| jobs::release(view, &job(1), claim, "no package"));
    let (node, _) = s.run();
    s.world.kill(&node);
    assert!(!s.record().ended_cleanly());
}
