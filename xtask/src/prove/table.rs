//! What all seeds together came to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::seed;

/// Figures that are added up, with the words for them.
const SUMS: [(&str, &str); 9] = [
    ("ok", "operations answered"),
    ("failed", "operations not carried out"),
    ("unknown", "operations with unknown outcome"),
    ("histories", "histories checked"),
    ("entries", "log entries replayed"),
    ("leaders", "terms with a leader"),
    ("boots", "starts of replicas"),
    ("steps", "steps, every invariant checked after each"),
    ("virtual_ms", "milliseconds of virtual time"),
];

/// See the module.
#[derive(Default)]
pub struct Table {
    seeds: u64,
    sums: BTreeMap<&'static str, u64>,
    faults: BTreeMap<String, u64>,
    failures: BTreeMap<u64, Vec<String>>,
}

impl Table {
    /// Adds a seed's report.
    pub fn add(&mut self, number: u64, report: Result<Value, String>) {
        self.seeds += 1;
        let report = match report {
            Ok(report) => report,
            Err(why) => {
                self.failures.insert(number, vec![why]);
                return;
            }
        };
        for (key, _) in SUMS {
            *self.sums.entry(key).or_default() += report[key].as_u64().unwrap_or(0);
        }
        for (kind, count) in report["faults"].as_object().into_iter().flatten() {
            *self.faults.entry(kind.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
        let violations = seed::violations(&report);
        if !violations.is_empty() {
            self.failures.insert(number, violations);
        }
    }

    /// A line now and then.
    pub fn progress(&self, elapsed: Duration) {
        if self.seeds.is_multiple_of(20) {
            let failed = self.failures.len();
            eprintln!("{} seeds, {failed} failed, {:.0} s", self.seeds, elapsed.as_secs_f64());
        }
    }

    /// True if a seed failed, or there was none.
    pub fn failed(&self) -> bool {
        self.seeds == 0 || !self.failures.is_empty()
    }

    /// The table, as `docs/proof.md` shows it.
    pub fn render(&self, elapsed: Duration) -> String {
        let mut out = String::from("| figure | value |\n|---|---|\n");
        let minutes = elapsed.as_secs_f64() / 60.0;
        let _ = writeln!(out, "| seeds | {} |", self.seeds);
        let _ = writeln!(out, "| seeds a minute | {:.0} |", self.seeds as f64 / minutes);
        for (key, words) in SUMS {
            let _ = writeln!(out, "| {words} | {} |", self.sums.get(key).unwrap_or(&0));
        }
        for (kind, count) in &self.faults {
            let _ = writeln!(out, "| fault {kind} | {count} |");
        }
        let _ = writeln!(out, "| seeds that failed | {} |", self.failures.len());
        for (seed, texts) in &self.failures {
            let _ = writeln!(out, "| seed {seed} | {} |", texts.first().map_or("", String::as_str));
        }
        out
    }
}
