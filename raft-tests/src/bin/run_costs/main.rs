//! What runs and jobs cost, as ratios to peers measured in the same run.
//!
//!     run_costs [first-line] [posts] [blocked] [many] [split]      (all of them by default)
//!
//! first-line: from a POST to the first line of main(), beside a bare `java -cp`. posts: a POST's answer beside a
//! guarded txn of the same client. blocked: the front while main()s block, exit, throw and start processes.
//! many: pages and states with 10,000 runs, 500 of them running, and what idle processes take. split: a dispatcher
//! with its JobMasters in a process of their own beside one that hosts them.
//! Needs a JDK of 14 or newer (javac, jar) for the first and the third, and a quiet machine for all.
//! Run with `cargo run --release -p raft-tests --bin run_costs`.

mod blocked;
mod figures;
mod first_line;
mod many;
mod posts;
mod split;
mod trial;

use anyhow::{Result, bail};

#[tokio::main]
async fn main() -> Result<()> {
    let parts = ["first-line", "posts", "blocked", "many", "split"];
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    if asked.is_empty() {
        asked = parts.map(str::to_owned).to_vec();
    }
    if let Some(unknown) = asked.iter().find(|part| !parts.contains(&part.as_str())) {
        bail!("{unknown:?} is not measured here; there are {}", parts.join(", "));
    }
    for part in &asked {
        println!("== {part}");
        match part.as_str() {
            "first-line" => first_line::measure().await?,
            "posts" => posts::measure().await?,
            "blocked" => blocked::measure().await?,
            "many" => many::measure().await?,
            _ => split::measure().await?,
        }
    }
    Ok(())
}
