//! openraft wired to the core and the store: log, state machine, peers, proposing, reading, forming.
//!
//! ```text
//!  RaftHandle::propose ──> proposer ──> leader here, or over the peer connection
//!                             ^                   │ stamp, append
//!                answers      │                   v
//!  hook (watch hub) <── state machine <── openraft ──> log store ──> write-ahead log
//!                             ^               │
//!  RaftHandle::read_index ────┘ applied       └──> transport ──> peers
//! ```
//!
//! openraft lives in this crate only. What it is told and why: the module `config`; the traps of its traits are answered
//! in the modules that implement them.

mod checkpoint;
mod checkpoint_driver;
mod config;
mod data_dir;
mod errors;
mod fetch;
mod flush_watch;
mod forming;
mod handle;
mod hook;
mod in_flight;
mod inspect;
mod leader;
mod lease_clock;
mod log_store;
mod net;
mod node;
mod options;
mod payload;
mod proposer;
mod read_index;
mod recover;
mod state;
mod state_machine;
mod status;
mod status_task;
mod types;
mod upkeep;
mod workers;

pub use errors::{NotSent, ProposeError, ReadError, StartError};
pub use handle::{FlushReport, RaftHandle};
pub use hook::{AppliedBatch, ApplyHook, NoHook};
pub use inspect::{Inspection, LoggedEntry};
pub use net::{BoxFuture, Connection, Listener, Net, TcpNet};
pub use node::start;
pub use options::{
    CheckpointKind, CheckpointOptions, InitialMember, ProposerOptions, RaftOptions, Seams, Timing,
};
pub use status::{MemberStatus, RaftStatus};
pub use types::Member;
pub use workers::{Priority, Threads, Workers, blocking};

#[cfg(test)]
mod forwarded_tests;
#[cfg(test)]
mod openraft_suite;
