//! Runs, jobs and packages with one thing wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::checkers::runs;
use crate::history::{
    Answer, CopyOnNode, History, JobEvent, JobEventKind, PackageSeen, RunInput, RunOperation, RunOutcome,
};

/// One trigger's story, a second a step.
#[derive(Default)]
struct Story {
    now: u64,
    history: History,
}

impl Story {
    fn call(&mut self, input: RunInput, outcome: RunOutcome) -> &mut Self {
        let (call, ret) = (Duration::from_secs(self.now), Duration::from_millis(self.now * 1000 + 500));
        let trigger = "t".to_owned();
        self.history.runs.push(RunOperation { client: 1, call, ret: Some(ret), trigger, input, outcome });
        self.now += 1;
        self
    }

    fn post(&mut self, fingerprint: &str, answer: Answer) -> &mut Self {
        self.call(RunInput::Post { fingerprint: fingerprint.into() }, RunOutcome::Ok(answer))
    }

    fn get(&mut self, answer: Answer) -> &mut Self {
        self.call(RunInput::Get, RunOutcome::Ok(answer))
    }

    fn delete(&mut self, answer: Answer) -> &mut Self {
        self.call(RunInput::Delete, RunOutcome::Ok(answer))
    }

    fn job(&mut self, job: &str, node: &str, attempt: u32, kind: JobEventKind) -> &mut Self {
        self.history.jobs.push(JobEvent {
            at: Duration::from_secs(self.now),
            node: node.into(),
            trigger: "t".into(),
            job: job.into(),
            attempt,
            epoch: 10 * i64::from(attempt),
            kind,
        });
        self.now += 1;
        self
    }

    fn started(&mut self, node: &str, attempt: u32) -> &mut Self {
        self.job("j", node, attempt, JobEventKind::Started)
    }

    fn created(&mut self, node: &str, attempt: u32) -> &mut Self {
        self.job("j", node, attempt, JobEventKind::Created)
    }

    fn ended(&mut self, node: &str, attempt: u32) -> &mut Self {
        self.job("j", node, attempt, JobEventKind::Ended)
    }

    #[track_caller]
    fn is_found(&self, names: &[&str]) {
        let found = runs(&self.history);
        let found_names: BTreeSet<&str> = found.iter().map(|finding| finding.name).collect();
        assert_eq!(found_names, names.iter().copied().collect(), "{found:#?}");
    }
}

fn completed(job: &str) -> Answer {
    Answer::Completed { job: job.into() }
}

/// Accepted, answered again, failed over, completed, still there.
fn run() -> Story {
    let mut story = Story::default();
    story.call(RunInput::Post { fingerprint: "f".into() }, RunOutcome::Unknown);
    story.post("f", Answer::Accepted).post("f", Answer::Accepted).post("g", Answer::OtherRequest);
    story.get(Answer::InProgress).started("n1", 1).ended("n1", 1).started("n2", 2).created("n2", 2);
    story.get(completed("j")).get(completed("j"));
    story
}

#[test]
fn a_run_that_fails_over_and_is_deleted_is_no_fault() {
    let mut story = run();
    // It made its job, which runs on and moves once more after the run was deleted.
    story.delete(Answer::Deleted).get(Answer::NotFound).post("f", Answer::WasDeleted);
    story.ended("n2", 2).started("n3", 3);
    story.is_found(&[]);
}

#[test]
fn a_run_deleted_before_it_made_a_job_is_no_fault() {
    let mut story = Story::default();
    story.post("f", Answer::Accepted).started("n1", 1);
    // The first deletion is still on its way; something may even start until the second is answered.
    story.delete(Answer::Cancelling).ended("n1", 1).delete(Answer::Deleted).get(Answer::NotFound);
    story.is_found(&[]);
}

#[test]
fn refused_requests_are_no_fault() {
    let mut story = Story::default();
    story.post("f", Answer::Refused("no such package".into())).get(Answer::NotFound);
    story.call(RunInput::Get, RunOutcome::Failed("no dispatcher".into()));
    story.is_found(&[]);
}

#[test]
fn two_jobs_of_one_trigger() {
    let mut story = run();
    story.ended("n2", 2).job("other", "n1", 1, JobEventKind::Started);
    story.is_found(&["one-job"]);
    let mut story = run();
    story.history.runs.last_mut().expect("a GET").outcome = RunOutcome::Ok(completed("other"));
    story.is_found(&["one-job", "lost-run"]);
}

#[test]
fn a_job_of_a_refused_request() {
    let mut story = Story::default();
    story.post("f", Answer::Refused("not ready".into())).started("n1", 1);
    story.is_found(&["one-job"]);
}

#[test]
fn two_requests_accepted() {
    let mut story = run();
    story.post("g", Answer::Accepted);
    story.is_found(&["one-request"]);
}

#[test]
fn an_equal_request_refused_as_another() {
    let mut story = run();
    story.post("f", Answer::OtherRequest);
    story.is_found(&["one-request"]);
    let mut story = Story::default();
    story.post("f", Answer::OtherRequest);
    story.is_found(&["one-request"]);
}

#[test]
fn an_accepted_run_not_found() {
    let mut story = Story::default();
    story.post("f", Answer::Accepted).get(Answer::NotFound);
    story.is_found(&["lost-run"]);
    // Unless somebody may have deleted it.
    let mut story = Story::default();
    story.post("f", Answer::Accepted).call(RunInput::Delete, RunOutcome::Unknown).get(Answer::NotFound);
    story.is_found(&[]);
}

#[test]
fn a_result_taken_back() {
    let mut story = run();
    story.get(Answer::InProgress);
    story.is_found(&["lost-run"]);
}

#[test]
fn a_deleted_run_that_comes_back() {
    let mut story = run();
    story.delete(Answer::Deleted).get(completed("j"));
    story.is_found(&["lost-run"]);
}

#[test]
fn two_attempts_at_once() {
    let mut story = run();
    story.started("n3", 3);
    story.is_found(&["two-attempts"]);
}

#[test]
fn one_attempt_twice() {
    let mut story = run();
    story.ended("n2", 2).started("n3", 2);
    story.is_found(&["two-attempts"]);
}

#[test]
fn an_attempt_under_an_old_epoch() {
    let mut story = run();
    story.ended("n2", 2).started("n3", 3);
    story.history.jobs.last_mut().expect("a start").epoch = 15;
    story.is_found(&["two-attempts"]);
}

#[test]
fn a_start_after_the_deletion() {
    let mut story = Story::default();
    story.post("f", Answer::Accepted).delete(Answer::Deleted).started("n1", 1);
    story.is_found(&["start-after-delete"]);
}

#[test]
fn something_runs_when_the_deletion_is_answered() {
    let mut story = Story::default();
    story.post("f", Answer::Accepted).started("n1", 1).delete(Answer::Deleted).ended("n1", 1);
    story.is_found(&["start-after-delete"]);
}

#[test]
fn packages_with_other_bytes() {
    let copy = |present, on_disk: Option<&str>| CopyOnNode {
        node: "n1".into(),
        present,
        on_disk: on_disk.map(str::to_owned),
    };
    let seen = |ready, digest: Option<&str>, copy| PackageSeen {
        at: Duration::ZERO,
        unit: "lib:1.0".into(),
        ready,
        digest: digest.map(str::to_owned),
        copies: vec![copy],
    };
    let check = |seen| runs(&History { packages: vec![seen], ..History::default() }).len();
    assert_eq!(check(seen(true, Some("d"), copy(true, Some("d")))), 0);
    assert_eq!(check(seen(true, Some("d"), copy(false, None))), 0);
    assert_eq!(check(seen(false, None, copy(false, Some("half")))), 0);
    assert_eq!(check(seen(true, Some("d"), copy(true, Some("e")))), 1);
    assert_eq!(check(seen(true, Some("d"), copy(true, None))), 1);
    assert_eq!(check(seen(true, None, copy(false, None))), 1);
}
