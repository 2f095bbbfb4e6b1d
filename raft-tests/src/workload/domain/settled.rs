//! What is still in progress: once nobody dies and nothing new is asked for, all of it must come to an end.

use meta_client::TypedKey;
use records::View;
use records::keys::{JobCancelKey, JobKey, JobOwnerKey, PinKey, RunKey, RunOwnerKey, UnitKey, UseKey};
use records::record::{Phase, UnitState};

/// What is in progress, in words. Scope: everything.
pub fn unsettled(view: &View) -> Vec<String> {
    let mut left = Vec::new();
    for (key, run) in view.all::<RunKey>().unwrap_or_default() {
        if run.phase != Phase::Completed {
            left.push(format!("{} is {:?}", key.encode(), run.phase));
        }
    }
    for (key, job) in view.all::<JobKey>().unwrap_or_default() {
        if !job.state.is_terminal() {
            left.push(format!("{} is {}", key.encode(), job.state.as_str()));
        }
    }
    for (key, unit) in view.all::<UnitKey>().unwrap_or_default() {
        if unit.state != UnitState::Ready {
            left.push(format!("{} is {:?}", key.encode(), unit.state));
        }
    }
    keys::<PinKey>(view, &mut left);
    keys::<UseKey>(view, &mut left);
    keys::<JobOwnerKey>(view, &mut left);
    keys::<JobCancelKey>(view, &mut left);
    keys::<RunOwnerKey>(view, &mut left);
    left
}

fn keys<K: TypedKey>(view: &View, left: &mut Vec<String>) {
    left.extend(view.all::<K>().unwrap_or_default().into_iter().map(|(key, _)| key.encode()));
}
