//! The numbered steps of every operation on packages, who dies at each, and what must become of the package: one table
//! for crashes in process (`crates/jobmaster/tests/crashes`) and of real processes (`raft-tests/src/bin/crash_points`).

use Operation::{
    Create, CreateListed, OnDemand, Register, RegisterUnequal, Remove, RemoveByForce, RemovePinned,
};
use Outcome::{Either, Everywhere, Undone};
use Who::{First, Leader, Second};

use crate::trap::Step::{
    self, Abort, Adopted, Announce, Draining, Dropped, Fetching, Inspected, Present, Ready, Reserve,
};
use crate::trap::When::{self, After, Before};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    /// The list of the files first, then the files that no node has.
    CreateListed,
    Register,
    /// The nodes hold different files.
    RegisterUnequal,
    Remove,
    /// A job pins the package for a while.
    RemovePinned,
    RemoveByForce,
    /// The package is on the first node, and the second is asked to have it.
    OnDemand,
}

/// The first node coordinates; the second is a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    First,
    Second,
    Leader,
}

/// What must become of the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Everywhere,
    Undone,
    /// The coordinator may have seen the step before it died.
    Either,
}

/// Operation; whose step; which; on which side of it; who dies; what must become of the package.
pub type Point = (Operation, Who, Step, When, Who, Outcome);

/// The outcome of a step's two sides, for each who may die at it.
const fn both(of: Operation, at: Who, step: Step, dies: Who, outcomes: [Outcome; 2]) -> [Point; 2] {
    [(of, at, step, Before, dies, outcomes[0]), (of, at, step, After, dies, outcomes[1])]
}

/// All of them.
pub fn points() -> Vec<Point> {
    let (ready, undone) = ([Everywhere; 2], [Undone; 2]);
    let rows = [
        // The coordinator's steps, and it dies: until a node has the bytes there is nobody to go on.
        both(Create, First, Reserve, First, undone),
        both(Create, First, Announce, First, undone),
        both(Create, First, Ready, First, ready),
        both(Create, First, Reserve, Leader, ready),
        both(Create, First, Announce, Leader, ready),
        both(Create, First, Present, Leader, ready),
        both(Create, First, Ready, Leader, ready),
        both(Create, First, Announce, Second, ready),
        both(Create, First, Ready, Second, ready),
        // The target's.
        both(Create, Second, Fetching, First, undone),
        both(Create, Second, Present, First, ready),
        both(Create, Second, Fetching, Second, ready),
        both(Create, Second, Present, Second, ready),
        both(Create, Second, Fetching, Leader, ready),
        both(Create, Second, Present, Leader, ready),
        // The same with the list of the files first. What was sent to a coordinator is lost with it.
        both(CreateListed, First, Reserve, First, undone),
        both(CreateListed, First, Announce, First, undone),
        both(CreateListed, First, Ready, First, ready),
        both(CreateListed, First, Reserve, Leader, ready),
        both(CreateListed, First, Announce, Leader, ready),
        both(CreateListed, First, Ready, Leader, ready),
        both(CreateListed, First, Reserve, Second, ready),
        both(CreateListed, First, Announce, Second, ready),
        both(CreateListed, Second, Fetching, First, undone),
        both(CreateListed, Second, Present, First, ready),
        both(CreateListed, Second, Fetching, Second, ready),
        both(CreateListed, Second, Present, Second, ready),
        both(CreateListed, Second, Present, Leader, ready),
        // Nobody goes on with a register but its coordinator; what it made READY stays.
        both(Register, First, Reserve, First, undone),
        both(Register, First, Inspected, First, undone),
        both(Register, First, Announce, First, undone),
        both(Register, First, Adopted, First, [Undone, Either]),
        both(Register, First, Ready, First, [Undone, Everywhere]),
        both(Register, Second, Inspected, First, undone),
        both(Register, Second, Adopted, First, [Undone, Either]),
        both(Register, Second, Inspected, Second, ready),
        both(Register, Second, Adopted, Second, ready),
        both(Register, First, Ready, Second, ready),
        both(Register, First, Reserve, Leader, ready),
        both(Register, First, Inspected, Leader, ready),
        both(Register, First, Announce, Leader, ready),
        both(Register, First, Adopted, Leader, ready),
        both(Register, First, Ready, Leader, ready),
        both(Register, Second, Inspected, Leader, ready),
        both(Register, Second, Adopted, Leader, ready),
        both(RegisterUnequal, First, Abort, First, undone),
        both(RegisterUnequal, First, Abort, Second, undone),
        both(RegisterUnequal, First, Abort, Leader, undone),
        both(RegisterUnequal, Second, Dropped, Second, undone),
        both(RegisterUnequal, Second, Dropped, Leader, undone),
        // A removal has no coordinator: each node does its part, whoever else is gone.
        both(Remove, First, Dropped, First, undone),
        both(Remove, Second, Dropped, First, undone),
        both(Remove, Second, Dropped, Leader, undone),
        both(RemovePinned, First, Draining, First, undone),
        both(RemovePinned, Second, Draining, First, undone),
        both(RemovePinned, Second, Draining, Leader, undone),
        both(RemoveByForce, First, Dropped, First, undone),
        both(RemoveByForce, Second, Dropped, First, undone),
        both(RemoveByForce, Second, Dropped, Leader, undone),
        // The source dies, the target dies, the leader dies.
        both(OnDemand, Second, Fetching, First, ready),
        both(OnDemand, Second, Present, First, ready),
        both(OnDemand, Second, Fetching, Second, ready),
        both(OnDemand, Second, Present, Second, ready),
        both(OnDemand, Second, Fetching, Leader, ready),
        both(OnDemand, Second, Present, Leader, ready),
    ];
    rows.concat()
}

/// Those that are printed with the text in `CRASH_POINT`, or all of them.
pub fn chosen() -> Vec<Point> {
    let only = std::env::var("CRASH_POINT").unwrap_or_default();
    points().into_iter().filter(|point| format!("{point:?}").contains(&only)).collect()
}
