//! Linearizability of the calls, found by search, without trusting revisions to tell the order.
//!
//! The state is what each key holds. Calls are cut into *actions* on few keys: a range becomes one read of each key
//! it says something about, a lease that ends becomes one drop on each key (linearizability is local: what each
//! key sees of an atomic call is atomic there too); a transaction stays whole and ties its keys together. Groups of
//! keys that are tied are searched one by one.
//!
//! Unknown writes are settled from the committed log first: those it does not have never were. A revision is used
//! as a *name* of a version only: two versions are equal if all their numbers are.
//!
//! The search is that of Wing and Gong with Lowe's cache of (calls taken, state); what only looks is taken as soon as
//! it fits, and revisions tell where to try first. It is bounded by steps, so that a seed's
//! verdict does not hang on the machine's speed. A search that ends at its bound is a finding, not a pass.

mod actions;
mod groups;
mod search;
mod state;

use super::matching::Matching;
use super::replay::Replay;
use super::{Finding, Findings};
use crate::history::History;

use self::search::Verdict;

/// Bounds of the search.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Steps of one group's search: about a million a second in a release build, a tenth of it in a debug build.
    pub steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 2_000_000 }
    }
}

/// Searches an order for the calls of each group of keys.
pub fn linearizability(
    replay: &Replay,
    history: &History,
    matching: &Matching,
    limits: Limits,
) -> Vec<Finding> {
    let mut findings = Findings::of("linearizability");
    let actions = actions::of(replay, history, matching);
    for group in groups::of(actions) {
        match search::search(&group, limits.steps) {
            Verdict::Linearizable => {}
            Verdict::Illegal { stuck } => {
                let keys = group.keys.len();
                let text = format!("no order explains {stuck} (a group of {keys} keys)");
                findings.add(Some(stuck.call), text);
            }
            Verdict::GaveUp => {
                let (actions, keys) = (group.actions.len(), group.keys.len());
                let text =
                    format!("gave up on {actions} actions on {keys} keys after {} steps", limits.steps);
                findings.add_as("gave-up", None, text);
            }
        }
    }
    findings.into_vec()
}
