//! The whole workload over a correct store in one process, in virtual time: what the checkers say of a history that
//! has everything in it, and no fault.

mod logged_kv;

use std::sync::Arc;
use std::time::Duration;

use meta_client::Kv;
use raft_tests::checkers::{Evidence, FinalState, LeaseRules, Limits, Recorded, check_all};
use raft_tests::history::{Clock, Recorder};
use raft_tests::workload::{Connect, Env, Options, Stage, Truth, run};
use tokio::sync::watch;

use self::logged_kv::LoggedKv;

/// Runs a seed's workload for some seconds of virtual time and checks it; how much there was of each kind.
async fn checked(seed: u64) -> [u64; 7] {
    let clock = Clock::start();
    let recorder = Recorder::new();
    let (stage, stages) = watch::channel(Stage::Storm);
    let nobody: Connect = Arc::new(|_| -> Arc<dyn Kv> { unreachable!("nobody connects yet") });
    let chance = Env::new(nobody, recorder.clone(), clock, stages.clone(), seed).chance(u64::MAX);
    let kv = LoggedKv::new(clock, chance);
    let door = kv.clone();
    let connect: Connect = Arc::new(move |_| -> Arc<dyn Kv> { Arc::new(door.clone()) });
    let env = Env::new(connect, recorder.clone(), clock, stages, seed);
    let truth = Truth::default();

    let stages = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        stage.send_replace(Stage::Calm);
        tokio::time::sleep(Duration::from_secs(8)).await;
        stage.send_replace(Stage::Over);
    };
    tokio::select! {
        _ = async { tokio::join!(run(&env, &truth, Options::default(), 1), stages) } => {}
        () = kv.expire_leases() => {}
    }
    assert_eq!(truth.findings(), Vec::<String>::new(), "seed {seed}");

    let (log, revision, hash) = kv.log();
    let applied = log.len() as u64;
    // The watches were left in the middle of what they were to deliver: no final state is claimed for them.
    let (figures, found) = check_all(&Evidence {
        log: &log,
        history: &recorder.history(),
        finals: &[],
        recorded: Recorded::All,
        lease_rules: LeaseRules { slack: Duration::ZERO, end: Some(clock.now()) },
        limits: Limits::default(),
    });
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, Vec::<String>::new(), "seed {seed}: {figures:#?}");

    let state = FinalState { replica: 1, applied, revision, hash, recomputed: hash };
    let replay = raft_tests::checkers::Replay::of(&log);
    assert_eq!(raft_tests::checkers::final_state(&replay, &[state]), []);
    let counts = [
        figures.ok,
        figures.unknown,
        figures.unknown_committed,
        figures.revisions,
        figures.watch_events,
        figures.run_calls,
        figures.job_starts,
    ];
    println!("seed {seed}: {figures:?}");
    counts.map(|count| count as u64)
}

#[tokio::test(start_paused = true)]
async fn a_correct_store_has_no_findings() {
    let mut counts = [0; 7];
    for seed in 1..=8 {
        let of_seed = checked(seed).await;
        counts.iter_mut().zip(of_seed).for_each(|(sum, count)| *sum += count);
    }
    assert!(counts.iter().all(|count| *count > 0), "the seeds were too quiet: {counts:?}");
}
