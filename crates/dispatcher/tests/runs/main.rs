//! What `/run-async` promises over a run's whole life: retries, lists, long polls, limits, what is left when its details
//! are gone, and a dispatcher that stops.

#[path = "../support/mod.rs"]
mod support;

mod limits;
mod list;
mod retention;
mod retries;
mod stopping;
mod waits;
