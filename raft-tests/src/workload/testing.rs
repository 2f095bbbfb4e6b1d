//! Runs the workload of one seed on [`OneCore`] in virtual time, and judges what was seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use meta_client::Kv;
use tokio::sync::watch;

use super::one_core::OneCore;
use super::{Chance, Env, Options, Stage, Truth, run as run_workload, unsettled};
use crate::checkers::{self, Evidence, LeaseRules, Limits, LogEntry, Recorded};
use crate::history::{Clock, History, Recorder};
use crate::invariants::{ClusterView, Invariants};

/// One write in so many goes wrong on its way.
const ACCIDENTS: usize = 25;
/// Virtual time in which everything in progress must come to an end, once nobody dies any more.
const CALM: Duration = Duration::from_secs(30);
/// Pause between two looks whether it has.
const LOOK: Duration = Duration::from_millis(500);

/// What a seed showed.
pub struct Seen {
    /// The committed log.
    pub log: Vec<LogEntry>,
    /// What clients and nodes saw.
    pub history: History,
    /// The records after each change of them.
    pub records: Vec<records::View>,
    /// What happened how often.
    pub counts: BTreeMap<&'static str, u64>,
    /// What the domain's own world found wrong.
    pub findings: Vec<String>,
    /// What was still in progress at the end.
    pub unsettled: Vec<String>,
    /// When it ended.
    pub end: Duration,
}

/// Runs one seed with so many virtual seconds of storm, then the calm.
pub fn run(seed: u64, storm_s: u64) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(run_here(seed, Duration::from_secs(storm_s)))
}

async fn run_here(seed: u64, storm: Duration) -> Seen {
    let (clock, recorder, truth) = (Clock::start(), Recorder::new(), Truth::default());
    let (stage, stages) = watch::channel(Stage::Storm);
    let store = OneCore::new(clock, Chance::new(seed), ACCIDENTS);
    let door: Arc<dyn Kv> = Arc::new(store.clone());
    let env = Env::new(Arc::new(move |_| door.clone()), recorder.clone(), clock, stages, seed);
    let direct = async {
        tokio::time::sleep(storm).await;
        stage.send_replace(Stage::Calm);
        let end = tokio::time::Instant::now() + CALM;
        while tokio::time::Instant::now() < end && !unsettled(&store.records()).is_empty() {
            tokio::time::sleep(LOOK).await;
        }
        let left = unsettled(&store.records());
        stage.send_replace(Stage::Over);
        left
    };
    let workload = Box::pin(run_workload(&env, &truth, Options::default(), 1));
    let unsettled = tokio::select! {
        biased;
        () = store.lease_duty() => Vec::new(),
        (left, ()) = async { tokio::join!(direct, workload) } => left,
    };
    Seen {
        log: store.log(),
        history: recorder.take(),
        records: store.take_records(),
        counts: env.tally.counts(),
        findings: truth.findings(),
        unsettled,
        end: clock.now(),
    }
}

/// Everything that is wrong with what was seen, a line each.
pub fn check(seen: &Seen) -> Vec<String> {
    let evidence = Evidence {
        log: &seen.log,
        history: &seen.history,
        finals: &[],
        recorded: Recorded::All,
        lease_rules: LeaseRules { end: Some(seen.end), ..LeaseRules::default() },
        limits: Limits::default(),
    };
    let (_, found) = checkers::check_all(&evidence);
    let mut wrong: Vec<String> = found.iter().map(ToString::to_string).collect();
    let view = ClusterView { at: seen.end, records: seen.records.clone(), ..ClusterView::default() };
    wrong.extend(Invariants::new().check(&view).iter().map(ToString::to_string));
    wrong.extend(seen.findings.iter().cloned());
    wrong
}
