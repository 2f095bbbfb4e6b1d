//! Runs while processes are killed and stopped at random: `ROUNDS=200 cargo test -p raft-tests --test rounds -- --nocapture`,
//! one of them again with `ROUNDS_SEED`.

use raft_tests::rounds::Rounds;

/// Rounds of the normal suite.
const ROUNDS: u32 = 20;

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_has_one_job_that_ends_whatever_dies() {
    let seed = number("ROUNDS_SEED").unwrap_or_else(rand::random);
    println!("ROUNDS_SEED={seed}");
    let counts = Rounds::start(seed).await.run(number("ROUNDS").unwrap_or(ROUNDS)).await;
    println!("{counts:?}");
    assert!(counts.runs >= counts.rounds as usize);
}
