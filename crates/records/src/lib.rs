//! What dispatchers, nodes and `metactl` write into the store: records, their keys, and **pure planners**.
//!
//! A planner takes a [`View`] (records of one revision) and a request, and answers a [`Plan`] (one guarded
//! transaction and what to say when it took place) or a [`Refusal`]. It does no I/O, knows no clock and no chance:
//! times, ids and leases come in with the request. [`carry_out`] loads, plans, commits, and plans anew while guards
//! fail. Planners recognise their own effect, so that an answer that was lost is found by planning again.

pub mod invariants;
pub mod jobs;
pub mod keys;
pub mod names;
pub mod nodes;
pub mod packages;
pub mod parsed;
pub mod plan;
pub mod record;
pub mod refusal;
pub mod runs;
pub mod time;
pub mod view;

pub use invariants::{Violation, invariants, step_violations};
pub use names::{JobId, TriggerId, UnitId};
pub use parsed::{Changes, Parsed, mod_revision};
pub use plan::{Carried, Failure, Plan, Steps, carry_out};
pub use refusal::{Class, Refusal};
pub use view::{Scope, View};
