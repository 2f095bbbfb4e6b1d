//! After everything is healed and has settled: all replicas hold the same, and it is what the log makes.

use meta_types::Revision;

use super::replay::Replay;
use super::{Finding, Findings};

/// A replica at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalState {
    /// The replica.
    pub replica: u64,
    /// Index of the last entry in its state.
    pub applied: u64,
    /// The state's revision.
    pub revision: Revision,
    /// The state's hash, as it runs along.
    pub hash: u64,
    /// The hash made anew by a walk over the state.
    pub recomputed: u64,
}

/// Compares the replicas with each other and with the log.
pub fn final_state(replay: &Replay, finals: &[FinalState]) -> Vec<Finding> {
    let mut findings = Findings::of("final-state");
    for state in finals {
        if state.hash != state.recomputed {
            findings.add(None, format!("{}: the running hash is not that of the state", state.replica));
        }
        let made = state.applied.checked_sub(1).and_then(|at| replay.hashes.get(at as usize));
        match made {
            Some(made) if *made != (state.revision, state.hash) => findings.add(
                None,
                format!(
                    "{} has revision {} and hash {:016x} after entry {}, the log makes {} and {:016x}",
                    state.replica, state.revision, state.hash, state.applied, made.0, made.1
                ),
            ),
            Some(_) => {}
            None => findings.add(
                None,
                format!("{} applied {}, the log ends at {}", state.replica, state.applied, replay.last_index),
            ),
        }
    }
    for pair in finals.windows(2) {
        let [a, b] = pair else { continue };
        if a.revision != b.revision {
            let text = format!(
                "{} stayed at revision {}, {} is at {}",
                a.replica, a.revision, b.replica, b.revision
            );
            findings.add(None, text);
        } else if a.applied == b.applied && a.hash != b.hash {
            let text = format!("{} and {} differ at entry {}", a.replica, b.replica, a.applied);
            findings.add(None, text);
        }
    }
    findings.into_vec()
}
