//! The replicated state machine of the store: `Core::apply(entry) -> outcomes and events`.
//!
//! Pure: no clock, no I/O, no async, no chance, and nothing whose order could differ between two machines. Whatever
//! is local (quota, memory, the choice of a lease's id) is decided before a command is proposed and never here.
//!
//! ```text
//!  Batch ──> Core::apply ──> admit (dedup) ──> apply/<command>.rs ──> Write ──> Keyspace, Leases
//!                │                                                      │
//!                └── outcomes by number, RevisionEvents <───────────────┘
//! ```
//!
//! * `tree`: the counted, persistent B-tree under everything that is large.
//! * `keyspace`, `versions`, `history`: MVCC; `snapshot`: what reads look at.
//! * `lease`, `dedup`: lease time and leases, applied command numbers.
//! * `hash`: the running hash that replicas compare.
//! * `checkpoint`: the whole state as sorted records, out and in.

mod apply;
mod checkpoint;
mod core;
mod dedup;
mod hash;
mod history;
mod keyspace;
mod lease;
mod snapshot;
mod tree;
mod validate;
mod versions;
mod write;

pub use self::checkpoint::{Frozen, ImportError, Record};
pub use self::core::{Applied, ClusterInfo, Core, EntryPosition};
pub use self::lease::LeaseInfo;
pub use self::snapshot::Snapshot;
