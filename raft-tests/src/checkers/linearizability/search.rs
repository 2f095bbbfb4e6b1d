//! The search for an order, and what each action does to the state.

use std::collections::BTreeSet;
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

    /// The calls that may come next, the likeliest first: all before the first return. One that only looks, and saw
    /// what is there, is the only choice: whatever order there is, there is one in which it comes now.
    fn candidates(&self, actions: &[Action], state: &State) -> Vec<usize> {
        let mut calls = Vec::new();
        let mut at = self.nodes[HEAD].next;
        while at != NONE && self.nodes[at].is_call {
            let action = &actions[self.nodes[at].action];
            if state.shows(action) {
                return vec![at];
            }
            calls.push(at);
            at = self.nodes[at].next;
        }
        calls.sort_by_key(|call| actions[self.nodes[*call].action].hint);
        calls
    }

    /// Whose return comes first.
    fn first_return(&self) -> Option<usize> {
        let mut at = self.nodes[HEAD].next;
        while at != NONE {
            if !self.nodes[at].is_call {
                return Some(self.nodes[at].action);
            }
            at = self.nodes[at].next;
        }
        None
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

/// Which actions were taken: a sum that each of them moves by a number of its own, so that it costs the same however
/// many there are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Taken(u64);

impl Taken {
    fn number(action: usize) -> u64 {
        // Mixed as splitmix64 does it.
        let mut mixed = (action as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn add(&mut self, action: usize) {
        self.0 = self.0.wrapping_add(Self::number(action));
    }

    fn remove(&mut self, action: usize) {
        self.0 = self.0.wrapping_sub(Self::number(action));
    }
}

/// The pairs of (actions taken, state) that were looked at, by their sums of 64 bits each.
type Cache = BTreeSet<(Taken, u64)>;

/// A choice that was made, and those that are left.
struct Level {
    candidates: Vec<usize>,
    next: usize,
    taken: usize,
    before: State,
}

/// Looks for an order of a group's actions in which each does what it did.
pub fn search(group: &Group, mut steps: u64) -> Verdict<'_> {
    let actions = &group.actions;
    let mut timeline = Timeline::new(actions);
    let mut left = timeline.returns.iter().filter(|ret| **ret != NONE).count();
    let mut taken = Taken::default();
    let mut cache = Cache::default();
    let mut state = State::default();
    let mut levels: Vec<Level> = Vec::new();
    let mut stuck = (usize::MAX, None);
    let (mut candidates, mut next) = (timeline.candidates(actions, &state), 0);
    while left > 0 {
        if steps == 0 {
            return Verdict::GaveUp;
        }
        steps -= 1;
        if let Some(call) = candidates.get(next).copied() {
            next += 1;
            let action = timeline.nodes[call].action;
            let Some(after) = state.after(&actions[action]) else { continue };
            taken.add(action);
            if !cache.insert((taken, after.sum())) {
                taken.remove(action);
                continue;
            }
            timeline.lift(call);
            left -= usize::from(timeline.returns[action] != NONE);
            let before = std::mem::replace(&mut state, after);
            levels.push(Level { candidates, next, taken: call, before });
            (candidates, next) = (timeline.candidates(actions, &state), 0);
            continue;
        }
        // Whoever returns first has to be taken by now: go back to the last choice.
        if left < stuck.0 {
            stuck = (left, timeline.first_return());
        }
        let Some(level) = levels.pop() else {
            let stuck = stuck.1.expect("an action that has to return is left");
            return Verdict::Illegal { stuck: &actions[stuck] };
        };
        let action = timeline.nodes[level.taken].action;
        taken.remove(action);
        timeline.unlift(level.taken);
        left += usize::from(timeline.returns[action] != NONE);
        (state, candidates, next) = (level.before, level.candidates, level.next);
    }
    Verdict::Linearizable
}
