//! A crash at every numbered step of every operation on packages, once each, by a real SIGKILL.
//!
//!     crash_points             all points of the table; CRASH_POINT=TEXT: those that are printed with this text
//!     crash_points node ...    one server node, told what to do on stdin; what the first form starts
//!
//! The table is that of the crashes in process (`crates/jobmaster/tests/crashes`), and so is the judgement. Here a
//! store of three replicas, a dispatcher and two server nodes are processes. A node that comes to the step stands still
//! there; the coordinator, the target or the store's leader is killed; the node goes on if it was not that one. Then:
//! READY everywhere or undone everywhere, no record, file or temporary directory left, `metactl doctor` clean.
//! Run with `cargo run --bin crash_points`; exit code 1 if a point fails or is not run.

#[path = "../../../../crates/jobmaster/tests/crashes/client.rs"]
mod client;
mod crash;
#[path = "../../../../crates/jobmaster/tests/crashes/judge.rs"]
mod judge;
mod node;
mod party;
#[path = "../../../../crates/jobmaster/tests/crashes/points.rs"]
mod points;
mod summary;
// Here nodes die by SIGKILL and nothing else.
#[allow(dead_code)]
#[path = "../../../../crates/jobmaster/tests/crashes/trap.rs"]
mod trap;
#[path = "../../../../crates/jobmaster/tests/common/wishes.rs"]
mod wishes;
mod world;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use points::Point;
use summary::{Ended, Summary};
use tokio::runtime::{Builder, Handle};

/// Clusters at a time: they wait more than they work.
const LANES: usize = 2;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if arguments.first().is_some_and(|first| first == "node") {
        runtime.block_on(node::run(&arguments[1..]))?;
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::ensure!(arguments.is_empty(), "usage: crash_points   (CRASH_POINT=TEXT: some of the points)");
    let chosen = points::chosen();
    println!("{} points", chosen.len());
    let mut summary = Summary::of(&chosen);
    let queue = Mutex::new(VecDeque::from(chosen));
    let (ended, results) = channel();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            let (ended, queue, runtime) = (ended.clone(), &queue, runtime.handle());
            scope.spawn(move || lane(runtime, queue, |result| ended.send(result).expect("they are counted")));
        }
        drop(ended);
        results.iter().for_each(|result| summary.add(result));
    });
    summary.print();
    Ok(ExitCode::from(u8::from(!summary.is_good())))
}

/// Points one after the other over one cluster, and over a new one after a failure.
fn lane(runtime: &Handle, queue: &Mutex<VecDeque<Point>>, ended: impl Fn(Ended)) {
    let next = || queue.lock().expect("no panic while this is held").pop_front();
    let mut world = None;
    while let Some(point) = next() {
        let result = runtime.block_on(crash::crash(&mut world, point));
        if result.outcome.is_err() {
            world = None;
        }
        ended(result);
    }
    if let Some(world) = world
        && let Err(why) = runtime.block_on(world.until_no_blob_is_left())
    {
        ended(Ended::after_all(why));
    }
}
