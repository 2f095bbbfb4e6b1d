//! Runs: asynchronous run operations, idempotent by their triggerId.
//!
//! * [`lookup`] first: an equal retry gets the first answer, a different request under the same id is refused;
//! * [`admit()`] is one transaction: no run, no token, no job of these ids, packages READY -> run, job, pins, owner;
//! * the **run owner** (a dispatcher, by `/run-owner/<trigger>` on its lease) calls [`advance()`]: it follows the job
//!   and completes the run; only it writes `/run`, under the epoch of that key;
//! * an **orphan** (in progress, no owner key in the same snapshot) is [`adopt()`]ed by any dispatcher;
//! * [`delete()`] is one transaction: run -> tombstone, and a wish to cancel if the job may still start or run.

mod admit;
mod adopt;
mod advance;
mod delete;
mod list;
mod request;

pub use admit::{Admit, Admitted, Earlier, admit, lookup};
pub use adopt::{adopt, mine, orphans};
pub use advance::{Advance, Advanced, advance, shown_phase, would_complete};
pub use delete::{Delete, Deleted, delete, is_settled};
pub use list::{RunView, run, runs};
pub use request::{differing_fields, merge, tokenize};
