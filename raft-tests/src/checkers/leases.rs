//! Leases: what a keep-alive promised is kept, and a lease that nobody renews goes.
//!
//! | name | broken when |
//! |---|---|
//! | lease-shortened | a lease ran out, or has less left, before (call of an answered renewal) + TTL |
//! | lease-lost | a lease is answered to be gone, and the log has it standing |
//! | lease-ghost | a lease is answered to stand, and the log had it gone before the call |
//! | lease-overdue | a lease stood longer than TTL + outage + 1 s after its last renewal (1 s more for each new leader) |
//! | lease-deposed | a lease ran out by the word of a leader of another term than the entry's, or before it was due |
//!
//! Source: DESIGN section 5 "Lease time": a TTL is never shortened, and lengthened by at most the outage + 1 s; a
//! deposed leader revokes nothing. An outage is time in which nothing was committed for longer than lease time is
//! stamped. Times of the log are those at which an entry was first known to be committed.

use std::collections::BTreeMap;
use std::time::Duration;

use meta_types::{Command, LeaseId, Response};

use super::replay::{Executed, LogEntry, Replay};
use super::{Finding, Findings};
use crate::history::{History, Input, Operation, Outcome, Reply};

/// While leases exist something is committed at least so often, unless there is an outage.
const COMMITS_EVERY: Duration = Duration::from_millis(600);
/// What a lease may be lengthened by beside the outage.
const LENGTHENED: Duration = Duration::from_secs(1);
/// Answers are in whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// A clock may be wrong by one part in so many.
const DRIFT: u32 = 100;

/// What is allowed for, and how long leases were watched.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRules {
    /// An entry may be known to be committed so much later than it was.
    pub slack: Duration,
    /// When the seed ended; `None` = leases may be left standing.
    pub end: Option<Duration>,
}

impl Default for LeaseRules {
    fn default() -> Self {
        Self { slack: Duration::from_millis(50), end: None }
    }
}

/// A lease from its grant to its end.
#[derive(Debug, Clone)]
struct Life {
    ttl: Duration,
    granted: Option<Duration>,
    renewed: Option<Duration>,
    ended: Option<End>,
}

#[derive(Debug, Clone, Copy)]
struct End {
    at: Option<Duration>,
    ran_out: bool,
}

/// Checks every call about a lease, and every lease.
pub fn leases(replay: &Replay, log: &[LogEntry], history: &History, rules: &LeaseRules) -> Vec<Finding> {
    let mut findings = Findings::of("lease");
    let lives = lives(replay, &mut findings);
    let renewals = renewals(history);
    for operation in &history.operations {
        answered(&lives, operation, rules, &mut findings);
        left(&renewals, operation, &mut findings);
    }
    let outages = Outages::of(log, rules.end);
    for (id, life) in lives.iter().flat_map(|(id, lives)| lives.iter().map(move |life| (id, life))) {
        overdue(*id, life, &outages, rules, &mut findings);
    }
    findings.into_vec()
}

/// The lives of each lease id, from the log alone.
fn lives(replay: &Replay, findings: &mut Findings) -> BTreeMap<LeaseId, Vec<Life>> {
    let mut lives: BTreeMap<LeaseId, Vec<Life>> = BTreeMap::new();
    let mut due: BTreeMap<LeaseId, u64> = BTreeMap::new();
    for executed in &replay.executed {
        let Ok(response) = &executed.outcome.result else { continue };
        let Executed { at, lease_time_ms: now, .. } = *executed;
        match (&executed.command, response) {
            (Command::LeaseGrant { id, .. }, Response::LeaseGrant { ttl, .. }) => {
                let ttl = Duration::from_secs(ttl.unsigned_abs());
                due.insert(*id, now + ttl.as_millis() as u64);
                let life = Life { ttl, granted: at, renewed: at, ended: None };
                lives.entry(*id).or_default().push(life);
            }
            (Command::LeaseKeepAlive { ids }, _) => {
                for id in ids {
                    let life = lives.get_mut(id).and_then(|lives| lives.last_mut());
                    if let (Some(due), Some(life)) = (due.get_mut(id), life) {
                        life.renewed = at;
                        *due = now + life.ttl.as_millis() as u64;
                    }
                }
            }
            (Command::LeaseRevoke { id }, _) => {
                due.remove(id);
                end(&mut lives, *id, End { at, ran_out: false });
            }
            (Command::LeaseExpire { term, ids }, _) => {
                let mut gone = Vec::new();
                for id in ids.iter().filter(|id| due.get(id).is_some_and(|due| *due <= now)) {
                    if *term == executed.term {
                        gone.push(*id);
                    }
                }
                deposed(executed, &gone, findings);
                for id in gone {
                    due.remove(&id);
                    end(&mut lives, id, End { at, ran_out: true });
                }
            }
            _ => {}
        }
    }
    lives
}

fn end(lives: &mut BTreeMap<LeaseId, Vec<Life>>, id: LeaseId, end: End) {
    if let Some(life) = lives.get_mut(&id).and_then(|lives| lives.last_mut()) {
        life.ended.get_or_insert(end);
    }
}

/// Only keys of leases that may go go.
fn deposed(executed: &Executed, gone: &[LeaseId], findings: &mut Findings) {
    for event in executed.events.iter().flat_map(|events| events.events.iter()) {
        let lease = event.prev.as_ref().map_or(0, |prev| prev.lease);
        if !gone.contains(&lease) {
            let text = format!("entry {} of term {} took {event:?}", executed.index, executed.term);
            findings.add_as("lease-deposed", executed.at, text);
        }
    }
}

fn answered(
    lives: &BTreeMap<LeaseId, Vec<Life>>,
    operation: &Operation,
    rules: &LeaseRules,
    findings: &mut Findings,
) {
    let (Outcome::Ok { reply, .. }, Some(ret)) = (&operation.outcome, operation.ret) else { return };
    let none = Vec::new();
    let of = |id: &LeaseId| lives.get(id).unwrap_or(&none);
    let call = operation.call;
    match (&operation.input, reply) {
        (Input::LeaseGrant { .. }, Reply::LeaseGrant { id, ttl })
        | (Input::LeaseKeepAlive(id), Reply::LeaseKeepAlive(Some(ttl))) => {
            stands(*id, of(id), call, ret, findings);
            kept(*id, of(id), call, ret, *ttl, rules, findings);
        }
        (Input::LeaseTimeToLive(id), Reply::LeaseTimeToLive(Some(left))) => {
            stands(*id, of(id), call, ret, findings);
            if of(id).iter().all(|life| *left > life.ttl) {
                let text = format!("lease {id} has {left:?} left, more than was granted");
                findings.add_as("lease-ghost", Some(ret), text);
            }
        }
        (Input::LeaseKeepAlive(id), Reply::LeaseKeepAlive(None))
        | (Input::LeaseTimeToLive(id), Reply::LeaseTimeToLive(None)) => {
            let stood = of(id).iter().find(|life| life.stood_through(call, ret + rules.slack));
            if let Some(life) = stood {
                let text =
                    format!("{} was told that lease {id} is gone, it stands: {life:?}", operation.client);
                findings.add_as("lease-lost", Some(ret), text);
            }
        }
        _ => {}
    }
}

impl Life {
    /// True if it certainly stood from one time to another.
    fn stood_through(&self, from: Duration, to: Duration) -> bool {
        let began = self.granted.is_some_and(|granted| granted < from);
        began && self.ended.is_none_or(|end| end.at.is_some_and(|at| at > to))
    }

    /// True if it may have stood at some time between.
    fn may_have_stood(&self, from: Duration) -> bool {
        self.ended.is_none_or(|end| end.at.is_none_or(|at| at >= from))
    }
}

fn stands(id: LeaseId, lives: &[Life], call: Duration, ret: Duration, findings: &mut Findings) {
    if !lives.iter().any(|life| life.may_have_stood(call)) {
        let text = format!("lease {id} was answered to stand, called at {call:?}; the log has {lives:?}");
        findings.add_as("lease-ghost", Some(ret), text);
    }
}

/// An answered renewal: the lease stands its TTL from the call on.
fn kept(
    id: LeaseId,
    lives: &[Life],
    call: Duration,
    ret: Duration,
    ttl: Duration,
    rules: &LeaseRules,
    findings: &mut Findings,
) {
    // The life that was renewed: the last that began before the answer.
    let began = |life: &&Life| life.granted.is_none_or(|granted| granted <= ret + rules.slack);
    let Some(life) = lives.iter().rfind(began) else { return };
    if life.ttl != ttl {
        let text = format!("lease {id} was granted {:?} and answered with {ttl:?}", life.ttl);
        findings.add_as("lease-shortened", Some(ret), text);
    }
    let Some(End { at: Some(at), ran_out: true }) = life.ended else { return };
    // A clock that runs fast makes a lease shorter by as much.
    if at >= call && at < call + ttl - ttl / DRIFT {
        let text = format!("lease {id} was renewed at {call:?} for {ttl:?} and ran out at {at:?}");
        findings.add_as("lease-shortened", Some(at), text);
    }
}

/// An answered grant or renewal: when it was called, when it returned, and for how long.
type Renewal = (Duration, Duration, Duration);

fn renewals(history: &History) -> BTreeMap<LeaseId, Vec<Renewal>> {
    let mut renewals: BTreeMap<LeaseId, Vec<Renewal>> = BTreeMap::new();
    for operation in &history.operations {
        let (Outcome::Ok { reply, .. }, Some(ret)) = (&operation.outcome, operation.ret) else { continue };
        let (id, ttl) = match (&operation.input, reply) {
            (Input::LeaseGrant { .. }, Reply::LeaseGrant { id, ttl }) => (*id, *ttl),
            (Input::LeaseKeepAlive(id), Reply::LeaseKeepAlive(Some(ttl))) => (*id, *ttl),
            _ => continue,
        };
        renewals.entry(id).or_default().push((operation.call, ret, ttl));
    }
    renewals
}

/// What is left of a lease is not less than its last answered renewal allows.
fn left(renewals: &BTreeMap<LeaseId, Vec<Renewal>>, operation: &Operation, findings: &mut Findings) {
    let Input::LeaseTimeToLive(id) = &operation.input else { return };
    let Outcome::Ok { reply: Reply::LeaseTimeToLive(Some(left)), .. } = &operation.outcome else { return };
    let (Some(renewals), Some(ret)) = (renewals.get(id), operation.ret) else { return };
    let before = renewals.iter().filter(|(_, returned, _)| *returned < operation.call);
    let Some((call, _, ttl)) = before.max() else { return };
    let least = ttl.saturating_sub(ret - *call + *ttl / DRIFT + ROUNDING);
    if *left < least {
        let text = format!("lease {id} was renewed at {call:?} for {ttl:?} and has {left:?} left");
        findings.add_as("lease-shortened", Some(ret), text);
    }
}

/// When nothing was committed, and when leaders changed.
struct Outages {
    commits: Vec<(Duration, u64)>,
    end: Option<Duration>,
}

impl Outages {
    fn of(log: &[LogEntry], end: Option<Duration>) -> Self {
        Self { commits: log.iter().filter_map(|entry| Some((entry.at?, entry.term))).collect(), end }
    }

    /// What a lease that is renewed at `from` may be lengthened by if it stands until `to`.
    fn lengthened(&self, from: Duration, to: Duration) -> Duration {
        let mut last = (from, None);
        let mut more = LENGTHENED;
        let within = self.commits.iter().filter(|(at, _)| (from..=to).contains(at));
        for (at, term) in within.map(|(at, term)| (*at, Some(*term))).chain([(to, None)]) {
            let gap = at.saturating_sub(last.0);
            if gap > COMMITS_EVERY {
                more += gap;
            }
            if last.1.is_some() && term.is_some() && term != last.1 {
                more += LENGTHENED;
            }
            last = (at, term.or(last.1));
        }
        more
    }
}

fn overdue(id: LeaseId, life: &Life, outages: &Outages, rules: &LeaseRules, findings: &mut Findings) {
    let Some(renewed) = life.renewed else { return };
    let stood_until = match life.ended {
        Some(End { ran_out: false, .. }) => return,
        Some(End { at, .. }) => at,
        None => outages.end,
    };
    let Some(until) = stood_until else { return };
    let most = life.ttl + life.ttl / DRIFT + outages.lengthened(renewed, until) + rules.slack;
    if until > renewed + most {
        let text =
            format!("lease {id} of {:?} was last renewed at {renewed:?} and stood until {until:?}", life.ttl);
        findings.add_as("lease-overdue", Some(until), text);
    }
}
