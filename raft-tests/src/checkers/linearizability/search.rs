//! The search for an order, and what each action does to the state.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::actions::Action;
use super::groups::Group;
use super::state::State;

/// What the search found.
pub enum Verdict<'a> {
    /// There is an order.
    Linearizable,
    /// There is none. In the longest attempt this action had to come next and could not.
    Illegal {
        /// It.
        stuck: &'a Action,
    },
    /// The steps did not suffice.
    GaveUp,
}

/// A call or a return in the list of what is not taken yet.
#[derive(Debug, Clone, Copy)]
struct Node {
    action: usize,
    is_call: bool,
    prev: usize,
    next: usize,
}

/// The head of the list, and "no node" for actions that never return.
const HEAD: usize = 0;
const NONE: usize = usize::MAX;

/// Calls and returns in order of time, as a list that nodes are taken out of and put back into.
struct Timeline {
    nodes: Vec<Node>,
    /// The return of each action.
    returns: Vec<usize>,
}

impl Timeline {
    fn new(actions: &[Action]) -> Self {
        let mut moments: Vec<(Duration, bool, usize)> = Vec::new();
        for (at, action) in actions.iter().enumerate() {
            moments.push((action.call, false, at));
            if let Some(ret) = action.ret {
                // Bounds that contradict each other leave a moment.
                moments.push((ret.max(action.call), true, at));
            }
        }
        // Calls first: what returns at a moment overlaps with what is called then.
        moments.sort();
        let mut nodes = vec![Node { action: NONE, is_call: false, prev: NONE, next: NONE }];
        let mut returns = vec![NONE; actions.len()];
        for (_, is_return, action) in moments {
            let at = nodes.len();
            nodes[at - 1].next = at;
            nodes.push(Node { action, is_call: !is_return, prev: at - 1, next: NONE });
            if is_return {
                returns[action] = at;
            }
        }
        Self { nodes, returns }
    }

    fn unlink(&mut self, at: usize) {
        let Node { prev, next, .. } = self.nodes[at];
        self.nodes[prev].next = next;
        if next != NONE {
            self.nodes[next].prev = prev;
        }
    }

    fn relink(&mut self, at: usize) {
        let Node { prev, next, .. } = self.nodes[at];
        self.nodes[prev].next = at;
        if next != NONE {
            self.nodes[next].prev = at;
        }
    }

    /// Takes a call and its return out.
    fn lift(&mut self, call: usize) {
        self.unlink(call);
        let ret = self.returns[self.nodes[call].action];
        if ret != NONE {
            self.unlink(ret);
        }
    }

    /// Puts them back, in the reverse order.
    fn unlift(&mut self, call: usize) {
        let ret = self.returns[self.nodes[call].action];
        if ret != NONE {
            self.relink(ret);
        }
        self.relink(call);
    }
}

/// Which actions were taken.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Taken(Vec<u64>);

impl Taken {
    fn set(&mut self, at: usize, is_taken: bool) {
        let bit = 1 << (at % 64);
        if is_taken {
            self.0[at / 64] |= bit;
        } else {
            self.0[at / 64] &= !bit;
        }
    }
}

/// Equal seeds are searched alike: no random keys.
type Cache = HashMap<u64, Vec<(Taken, State)>, BuildHasherDefault<DefaultHasher>>;

/// True if the pair is new.
fn remember(cache: &mut Cache, taken: &Taken, state: &State) -> bool {
    let mut hasher = DefaultHasher::new();
    (taken, state).hash(&mut hasher);
    let seen = cache.entry(hasher.finish()).or_default();
    if seen.iter().any(|(t, s)| t == taken && s == state) {
        return false;
    }
    seen.push((taken.clone(), state.clone()));
    true
}

/// Looks for an order of a group's actions in which each does what it did.
pub fn search(group: &Group, mut steps: u64) -> Verdict<'_> {
    let actions = &group.actions;
    let mut timeline = Timeline::new(actions);
    let mut left = timeline.returns.iter().filter(|ret| **ret != NONE).count();
    let mut taken = Taken(vec![0; actions.len().div_ceil(64)]);
    let mut cache = Cache::default();
    let mut state = State::default();
    let mut done: Vec<(usize, State)> = Vec::new();
    let mut stuck = (usize::MAX, None);
    let mut at = timeline.nodes[HEAD].next;
    while left > 0 {
        if steps == 0 {
            return Verdict::GaveUp;
        }
        steps -= 1;
        let node = timeline.nodes[at];
        if node.is_call {
            if let Some(after) = state.after(&actions[node.action]) {
                taken.set(node.action, true);
                if remember(&mut cache, &taken, &after) {
                    timeline.lift(at);
                    left -= usize::from(timeline.returns[node.action] != NONE);
                    done.push((at, std::mem::replace(&mut state, after)));
                    at = timeline.nodes[HEAD].next;
                    continue;
                }
                taken.set(node.action, false);
            }
            at = node.next;
            continue;
        }
        // Whoever returns here has to be taken by now: go back and try the next instead of the last one taken.
        if left < stuck.0 {
            stuck = (left, Some(node.action));
        }
        let Some((call, before)) = done.pop() else {
            return Verdict::Illegal { stuck: &actions[stuck.1.unwrap_or(node.action)] };
        };
        state = before;
        let action = timeline.nodes[call].action;
        taken.set(action, false);
        timeline.unlift(call);
        left += usize::from(timeline.returns[action] != NONE);
        at = timeline.nodes[call].next;
    }
    Verdict::Linearizable
}
