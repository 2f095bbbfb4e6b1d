//! What the reconcilers of a process did last: when, for how long, what by kind, and their last error.
//!
//! It is kept in memory: a process that starts anew has done nothing yet, and nothing of it is written to the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Bytes of an error that are kept: it is for people.
const ERROR_BYTES: usize = 1024;

/// What a round did, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Did(BTreeMap<&'static str, u64>);

impl Did {
    /// So many of a kind. None leave no trace.
    pub fn add(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(kind).or_default() += count;
        }
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// What a reconciler did last, as it is told to others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LastResult {
    /// Its name.
    pub name: String,
    /// Rounds since the process started.
    pub rounds: u64,
    /// When the last one ended, ms since 1970; none before the first.
    pub last_run: Option<u64>,
    /// How long it took.
    pub took_ms: f64,
    /// The last round that did something.
    pub last_did: Option<WorkDone>,
    /// What all rounds since the start did, by kind.
    pub did: BTreeMap<String, u64>,
    /// The last error, even if a later round went well.
    pub last_error: Option<LastError>,
}

/// What one round did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDone {
    /// When it ended, ms since 1970.
    pub at: u64,
    /// How many of each kind.
    pub counts: BTreeMap<String, u64>,
}

/// An error of a reconciler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// When, ms since 1970.
    pub at: u64,
    /// In words.
    pub text: String,
}

/// The reconcilers of a process; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Arc<Mutex<Vec<LastResult>>>);

/// Where one reconciler notes its rounds.
#[derive(Debug, Clone)]
pub struct RoundsOf {
    name: &'static str,
    all: Rounds,
}

impl Rounds {
    /// The notes of one reconciler, which is shown from now on.
    pub fn of(&self, name: &'static str) -> RoundsOf {
        let mut all = self.0.lock();
        if !all.iter().any(|known| known.name == name) {
            all.push(LastResult { name: name.to_owned(), ..LastResult::default() });
        }
        RoundsOf { name, all: self.clone() }
    }

    /// All of them, in the order they came.
    pub fn all(&self) -> Vec<LastResult> {
        self.0.lock().clone()
    }
}

impl RoundsOf {
    /// A round is over. `error`: it ended early; what it did before counts.
    pub fn ended(&self, took: Duration, did: &Did, error: Option<&str>) {
        let at = now_ms();
        self.change(|result| {
            result.rounds += 1;
            result.last_run = Some(at);
            result.took_ms = (took.as_secs_f64() * 1e6).round() / 1e3;
            result.note(at, did);
            result.note_error(at, error);
        });
    }

    /// Something that an earlier round began is over.
    pub fn finished(&self, did: &Did, error: Option<&str>) {
        let at = now_ms();
        self.change(|result| {
            result.note(at, did);
            result.note_error(at, error);
        });
    }

    fn change(&self, change: impl FnOnce(&mut LastResult)) {
        let mut all = self.all.0.lock();
        if let Some(result) = all.iter_mut().find(|result| result.name == self.name) {
            change(result);
        }
    }
}

impl LastResult {
    fn note(&mut self, at: u64, did: &Did) {
        if did.total() == 0 {
            return;
        }
        let counts: BTreeMap<String, u64> = did.0.iter().map(|(kind, n)| ((*kind).to_owned(), *n)).collect();
        for (kind, count) in &counts {
            *self.did.entry(kind.clone()).or_default() += count;
        }
        self.last_did = Some(WorkDone { at, counts });
    }

    fn note_error(&mut self, at: u64, error: Option<&str>) {
        if let Some(text) = error {
            let fits = text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= ERROR_BYTES);
            self.last_error = Some(LastError { at, text: fits.map(|(_, c)| c).collect() });
        }
    }
}

/// The wall clock, shown only.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_without_work_does_not_hide_the_last_work_nor_the_last_error() {
        let rounds = Rounds::default();
        let packages = rounds.of("packages");
        assert_eq!(rounds.all()[0].last_run, None, "known before its first round");
        let mut did = Did::default();
        did.add("rows-dropped", 2);
        did.add("removals-finished", 0);
        packages.ended(Duration::from_micros(1500), &did, Some("the store is away"));
        rounds.of("packages").ended(Duration::ZERO, &Did::default(), None);
        packages.finished(&did, None);
        let [result] = rounds.all().try_into().unwrap();
        assert_eq!((result.rounds, result.took_ms), (2, 0.0));
        assert_eq!(result.did, BTreeMap::from([("rows-dropped".to_owned(), 4)]));
        assert_eq!(result.last_did.unwrap().counts["rows-dropped"], 2);
        assert_eq!(result.last_error.unwrap().text, "the store is away");
    }

    #[test]
    fn a_long_error_is_cut_at_a_character() {
        let rounds = Rounds::default();
        rounds.of("a").ended(Duration::ZERO, &Did::default(), Some(&"\u{e4}".repeat(ERROR_BYTES)));
        assert_eq!(rounds.all()[0].last_error.as_ref().unwrap().text.len(), ERROR_BYTES);
    }
}
