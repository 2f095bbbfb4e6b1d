//! Runs, jobs and packages, as clients and nodes saw them.
//!
//! | name | broken when | promise |
//! |---|---|---|
//! | one-job | a trigger made two jobs, or a job without an accepted request | P3 |
//! | one-request | two requests that differ were accepted under one trigger, or equal ones called different | P3 |
//! | lost-run | an accepted run is not found, or what was completed is not any more | P3 |
//! | two-attempts | two processes of a job ran at once, an attempt started twice, or one under an older epoch | P5 |
//! | start-after-delete | something of a run that had made no job runs after its DELETE was answered with 200 | P3 |
//! | package-bytes | a package is READY and a node that is said to have it has other bytes | P4 |
//!
//! Source: DESIGN sections 1 and 7. A DELETE of a run that made its job leaves the job alone, so such jobs may run on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Finding, Findings};
use crate::history::{
    Answer, History, JobEvent, JobEventKind, PackageSeen, RunInput, RunOperation, RunOutcome,
};

/// Everything about one trigger.
#[derive(Default)]
struct Trigger<'a> {
    calls: Vec<&'a RunOperation>,
    events: Vec<&'a JobEvent>,
}

/// Checks runs, job processes and packages.
pub fn runs(history: &History) -> Vec<Finding> {
    let mut findings = Findings::of("runs");
    let mut triggers: BTreeMap<&str, Trigger<'_>> = BTreeMap::new();
    for call in &history.runs {
        triggers.entry(&call.trigger).or_default().calls.push(call);
    }
    for event in &history.jobs {
        triggers.entry(&event.trigger).or_default().events.push(event);
    }
    for (name, trigger) in &mut triggers {
        trigger.calls.sort_by_key(|call| call.call);
        trigger.events.sort_by_key(|event| event.at);
        one_job(name, trigger, &mut findings);
        one_request(name, trigger, &mut findings);
        found_again(name, trigger, &mut findings);
        after_delete(name, trigger, &mut findings);
        attempts(trigger, &mut findings);
    }
    history.packages.iter().for_each(|seen| package_bytes(seen, &mut findings));
    findings.into_vec()
}

impl<'a> Trigger<'a> {
    fn posts(&self) -> impl Iterator<Item = (&'a RunOperation, &'a str)> {
        self.calls.iter().filter_map(|call| match &call.input {
            RunInput::Post { fingerprint } => Some((*call, fingerprint.as_str())),
            RunInput::Get | RunInput::Delete => None,
        })
    }

    /// True if a deletion may have taken effect before `until`.
    fn may_be_deleted(&self, until: Duration) -> bool {
        self.calls.iter().any(|call| {
            let may = match &call.outcome {
                RunOutcome::Unknown => true,
                RunOutcome::Ok(answer) => matches!(answer, Answer::Deleted | Answer::Cancelling),
                RunOutcome::Failed(_) => false,
            };
            call.input == RunInput::Delete && may && call.call <= until
        })
    }
}

fn is_accepted(call: &RunOperation) -> bool {
    call.outcome == RunOutcome::Ok(Answer::Accepted)
}

fn one_job(name: &str, trigger: &Trigger<'_>, findings: &mut Findings) {
    let mut jobs: BTreeSet<&str> = trigger.events.iter().map(|event| event.job.as_str()).collect();
    jobs.extend(trigger.calls.iter().filter_map(|call| match &call.outcome {
        RunOutcome::Ok(Answer::Completed { job }) => Some(job.as_str()),
        _ => None,
    }));
    if jobs.len() > 1 {
        findings.add_as("one-job", None, format!("trigger {name} made the jobs {jobs:?}"));
    }
    let may_run = |(call, _): (&RunOperation, _)| is_accepted(call) || call.outcome == RunOutcome::Unknown;
    if let (Some(first), false) = (trigger.events.first(), trigger.posts().any(may_run)) {
        let text = format!("job {} of trigger {name} ran, and no request was accepted", first.job);
        findings.add_as("one-job", Some(first.at), text);
    }
}

fn one_request(name: &str, trigger: &Trigger<'_>, findings: &mut Findings) {
    let accepted: BTreeSet<&str> =
        trigger.posts().filter(|(call, _)| is_accepted(call)).map(|(_, fingerprint)| fingerprint).collect();
    if accepted.len() > 1 {
        findings.add_as("one-request", None, format!("trigger {name}: {accepted:?} were all accepted"));
    }
    for (call, fingerprint) in trigger.posts() {
        let others = trigger.posts().any(|(_, other)| other != fingerprint);
        if call.outcome == RunOutcome::Ok(Answer::OtherRequest) && (!others || accepted.contains(fingerprint))
        {
            let text = format!("trigger {name}: {fingerprint} was refused as another request than itself");
            findings.add_as("one-request", call.ret, text);
        }
    }
}

fn found_again(name: &str, trigger: &Trigger<'_>, findings: &mut Findings) {
    let gets = || trigger.calls.iter().filter(|call| call.input == RunInput::Get);
    for (earlier, ret) in trigger.calls.iter().filter_map(|call| Some((call, call.ret?))) {
        let RunOutcome::Ok(answer) = &earlier.outcome else { continue };
        for get in gets().filter(|get| get.call > ret) {
            let RunOutcome::Ok(now) = &get.outcome else { continue };
            let was_there = matches!(
                answer,
                Answer::Accepted | Answer::InProgress | Answer::Completed { .. } | Answer::RunFailed { .. }
            );
            let is_over = matches!(answer, Answer::Completed { .. } | Answer::RunFailed { .. });
            let deleted = get.ret.is_none_or(|ret| trigger.may_be_deleted(ret));
            let lost = was_there && *now == Answer::NotFound && !deleted;
            let went_back = is_over && now != answer && *now != Answer::NotFound;
            let came_back = *answer == Answer::Deleted && *now != Answer::NotFound;
            if lost || went_back || came_back {
                let text = format!("trigger {name} was {answer:?} at {ret:?} and is {now:?}");
                findings.add_as("lost-run", get.ret, text);
            }
        }
    }
}

fn after_delete(name: &str, trigger: &Trigger<'_>, findings: &mut Findings) {
    let deleted = trigger.calls.iter().filter(|call| call.outcome == RunOutcome::Ok(Answer::Deleted));
    let Some(ret) = deleted.filter_map(|call| call.ret).min() else { return };
    let until = |event: &&&JobEvent| event.at <= ret;
    let is_created = |event: &&JobEvent| event.kind == JobEventKind::Created;
    if trigger.events.iter().take_while(until).any(is_created) {
        return;
    }
    let started = trigger.events.iter().find(|event| event.kind == JobEventKind::Started && event.at > ret);
    if let Some(event) = started {
        let text =
            format!("trigger {name} was deleted at {ret:?}, then {} started {}", event.node, event.job);
        findings.add_as("start-after-delete", Some(event.at), text);
    }
    let mut running: BTreeSet<(&str, u32)> = BTreeSet::new();
    for event in trigger.events.iter().take_while(until) {
        match event.kind {
            JobEventKind::Started => drop(running.insert((&event.node, event.attempt))),
            JobEventKind::Ended => drop(running.remove(&(event.node.as_str(), event.attempt))),
            JobEventKind::Created => {}
        }
    }
    if !running.is_empty() {
        let text = format!("trigger {name} was deleted at {ret:?} while {running:?} ran");
        findings.add_as("start-after-delete", Some(ret), text);
    }
}

fn attempts(trigger: &Trigger<'_>, findings: &mut Findings) {
    // The processes of each job that run, and the last attempt with its epoch.
    let mut running: BTreeMap<&str, BTreeSet<(&str, u32)>> = BTreeMap::new();
    let mut last: BTreeMap<&str, (u32, i64)> = BTreeMap::new();
    for event in &trigger.events {
        let running = running.entry(&event.job).or_default();
        let process = (event.node.as_str(), event.attempt);
        match event.kind {
            JobEventKind::Created => {}
            JobEventKind::Ended => drop(running.remove(&process)),
            JobEventKind::Started => {
                if let Some((node, attempt)) = running.first() {
                    let text = format!(
                        "job {}: attempt {} started on {} while attempt {attempt} ran on {node}",
                        event.job, event.attempt, event.node
                    );
                    findings.add_as("two-attempts", Some(event.at), text);
                }
                let this = (event.attempt, event.epoch);
                let earlier = last.insert(&event.job, this);
                if earlier.is_some_and(|(attempt, epoch)| attempt >= this.0 || epoch >= this.1) {
                    let text = format!("job {}: attempt and epoch {this:?} after {earlier:?}", event.job);
                    findings.add_as("two-attempts", Some(event.at), text);
                }
                running.insert(process);
            }
        }
    }
}

fn package_bytes(seen: &PackageSeen, findings: &mut Findings) {
    if !seen.ready {
        return;
    }
    if seen.digest.is_none() {
        findings.add_as("package-bytes", Some(seen.at), format!("{} is READY without a digest", seen.unit));
    }
    for copy in seen.copies.iter().filter(|copy| copy.present && copy.on_disk != seen.digest) {
        let text =
            format!("{} is READY as {:?}, {} has {:?}", seen.unit, seen.digest, copy.node, copy.on_disk);
        findings.add_as("package-bytes", Some(seen.at), text);
    }
}
