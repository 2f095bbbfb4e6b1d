//! A cluster of real replicas in a simulated world: one seed decides everything.
//!
//! ```text
//!  plan ──> world: turmoil hosts ── node (the real Replica on MemDisk, SimNet, SimClock, SimWorkers)
//!    │        │                 └── load (the real client, recorded)
//!    v        │ step
//!  inject ────┤
//!             v
//!  observer ──> view ──> invariants             after every step
//!     └─ every entry ──> verdict ──> checkers   at the end
//! ```
//!
//! A run is a function of its seed only in a process of its own, of which `getrandom` and the clocks are simulated
//! too (see `bin/prove`).

mod chance;
mod clock;
mod fault;
mod inject;
mod links;
mod load;
mod net;
mod node;
mod observer;
mod plan;
mod report;
mod run;
mod trace;
mod verdict;
mod workers;
mod world;

pub use self::report::Report;
pub use self::run::{Options, run};
