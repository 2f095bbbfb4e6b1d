//! What all seeds together came to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use super::{seed, short};

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

/// Kinds of faults there are (`Kind::ALL` of the simulator, which this tool does not link); each takes effect in some
/// seed of so many.
const KINDS: usize = 23;
const KINDS_AFTER: u64 = 100;

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
        let mut violations = seed::violations(&report);
        if report["histories"].as_u64() != Some(1) && violations.is_empty() {
            violations.push("it ended well and checked no history".to_owned());
        }
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

    /// How many there were.
    pub const fn seeds(&self) -> u64 {
        self.seeds
    }

    /// An error if a seed failed, or if nothing was checked.
    pub fn verdict(&self) -> anyhow::Result<()> {
        if !self.failures.is_empty() {
            bail!("seeds failed: {}; each is repeated by the command printed with it", self.failures.len());
        }
        for key in ["histories", "steps", "ok"] {
            if self.sums.get(key).is_none_or(|sum| *sum == 0) {
                bail!("nothing was checked: {} seeds, {key} 0", self.seeds);
            }
        }
        if self.seeds >= KINDS_AFTER && self.faults.len() < KINDS {
            bail!("only {} kinds of faults took effect in {} seeds", self.faults.len(), self.seeds);
        }
        Ok(())
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
            let _ = writeln!(
                out,
                "| seed {seed} | {} |",
                texts.first().map_or_else(String::new, |text| short(text))
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fine() -> Value {
        json!({ "ok": 100, "histories": 1, "steps": 1000, "violations": [], "faults": { "Hold": 1 } })
    }

    fn verdict_of(reports: Vec<Result<Value, String>>) -> Result<(), String> {
        let mut table = Table::default();
        for (number, report) in (1..).zip(reports) {
            table.add(number, report);
        }
        table.verdict().map_err(|error| error.to_string())
    }

    #[test]
    fn seeds_that_are_fine_are_fine() {
        assert_eq!(verdict_of(vec![Ok(fine()), Ok(fine())]), Ok(()));
    }

    #[test]
    fn whatever_is_not_fine_fails_the_run() {
        let with = |key: &str, value: Value| {
            let mut report = fine();
            report[key] = value;
            vec![Ok(fine()), Ok(report)]
        };
        let failed = |reports| verdict_of(reports).is_err();
        assert!(failed(vec![]), "no seed at all");
        assert!(failed(with("violations", json!(["fault-not-injected at 1s: FullDisk"]))));
        assert!(failed(with("histories", json!(0))), "a run that checked nothing");
        assert!(failed(vec![Ok(fine()), Err("no report within 170 s".into())]));
        assert!(failed((0..KINDS_AFTER).map(|_| Ok(fine())).collect()), "one kind of fault in all of them");
    }
}
