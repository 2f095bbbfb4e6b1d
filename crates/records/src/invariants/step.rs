//! What one transaction may not do to the state before it.

use meta_client::TypedKey;

use super::{Violation, note};
use crate::keys::{JobKey, RunKey, UnitKey};
use crate::refusal::Refusal;
use crate::view::View;

/// S1: a package's state only moves forward under one operation. S2: a job that is over does not change. S3: a
/// run's result does not change. S4: attempts are never taken back.
pub fn step_violations(before: &View, after: &View) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Err(refusal) = check(before, after, &mut found) {
        note(&mut found, "S0", "", refusal.text);
    }
    found
}

fn check(before: &View, after: &View, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    for (key, was) in before.all::<UnitKey>()? {
        if after.get(&key)?.is_some_and(|is| is.op == was.op && is.state < was.state) {
            note(found, "S1", key.encode(), "went back");
        }
        if after.get(&key)?.is_some_and(|is| is.op != was.op) {
            note(found, "S1", key.encode(), "was replaced without having been removed");
        }
    }
    for (key, was) in before.all::<JobKey>()? {
        let Some(is) = after.get(&key)? else { continue };
        if was.state.is_terminal() && is.value != was.value {
            note(found, "S2", key.encode(), format!("was {}", was.state.as_str()));
        }
        if is.attempt < was.attempt || is.attempt > was.attempt + 1 {
            note(found, "S4", key.encode(), format!("attempt {} after {}", is.attempt, was.attempt));
        }
    }
    for (key, was) in before.all::<RunKey>()? {
        let Some(is) = after.get(&key)? else { continue };
        if was.result.is_some() && is.result != was.result {
            note(found, "S3", key.encode(), "its result changed");
        }
    }
    Ok(())
}
