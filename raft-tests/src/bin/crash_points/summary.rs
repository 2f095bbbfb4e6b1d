//! What became of the points, one a line as they end, and counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::points::{Outcome, Point};

/// A point that was run.
pub struct Ended {
    /// `None`: what was looked at after all points of a cluster.
    pub point: Option<Point>,
    /// What became of the package, or what is wrong.
    pub outcome: Result<Outcome, String>,
    pub took: Duration,
}

impl Ended {
    /// Something was left when a cluster's points were over.
    pub fn after_all(why: anyhow::Error) -> Self {
        Self { point: None, outcome: Err(format!("{why:#}")), took: Duration::ZERO }
    }
}

/// The run.
pub struct Summary {
    began: Instant,
    asked: usize,
    run: usize,
    /// By operation and who died: READY everywhere, undone everywhere, wrong.
    rows: BTreeMap<String, [usize; 3]>,
    wrong: Vec<String>,
}

impl Summary {
    pub fn of(chosen: &[Point]) -> Self {
        Self { began: Instant::now(), asked: chosen.len(), run: 0, rows: BTreeMap::new(), wrong: Vec::new() }
    }

    /// Counts it and says so.
    pub fn add(&mut self, ended: Ended) {
        let Some(point) = ended.point else {
            self.wrong.extend(ended.outcome.err());
            return;
        };
        self.run += 1;
        let (operation, at, step, when, dies, wanted) = point;
        let column = match &ended.outcome {
            Ok(Outcome::Everywhere) => 0,
            Ok(Outcome::Undone | Outcome::Either) => 1,
            Err(_) => 2,
        };
        self.rows.entry(format!("{operation:?} | {dies:?}")).or_default()[column] += 1;
        let became = match &ended.outcome {
            Ok(outcome) => format!("{outcome:?}"),
            Err(why) => format!("WRONG: {why}"),
        };
        let seconds = ended.took.as_secs_f64();
        println!(
            "{:>3} {seconds:5.1} s  {operation:?} {at:?} {step:?} {when:?}, dies {dies:?}, wanted {wanted:?}: {became}",
            self.run
        );
        if let Err(why) = ended.outcome {
            self.wrong.push(format!("{point:?}: {why}"));
        }
    }

    pub fn is_good(&self) -> bool {
        self.wrong.is_empty() && self.run == self.asked && self.asked > 0
    }

    pub fn print(&self) {
        println!(
            "\n| operation | killed | READY everywhere | undone everywhere | wrong |\n|---|---|---|---|---|"
        );
        for (row, [ready, undone, wrong]) in &self.rows {
            println!("| {row} | {ready} | {undone} | {wrong} |");
        }
        let (seconds, not_run) = (self.began.elapsed().as_secs(), self.asked - self.run);
        println!("\n{} points run in {seconds} s, {not_run} not run, {} wrong", self.run, self.wrong.len());
        self.wrong.iter().for_each(|why| println!("\n{why}"));
    }
}
