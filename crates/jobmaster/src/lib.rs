//! JobMaster processes: the container runner, JobMasters, coordinators, engines, the guard, logs.
//!
//! ```text
//! Node::start (container_runner)
//!   take_over            nothing of an earlier process on this work directory is alive; how it ended is reported
//!   session              /node/<name> under a lease, renewed from its own thread; each renewal moves the guards' deadline
//!   mirror               the records, a moment behind
//!   package_agent        fetches, drains, deletes packages as the records say
//!   deploy_coordinator   carries one create
//!   register_coordinator, register_target   one register: what lies on the nodes already, if it is equal
//!   claims               takes the jobs that are placed here
//!   job_master           one task a job: claim -> packages -> attempt -> guard -> created -> ended
//!     engines::process   the program to start      attempt, guard   the processes, their deadline and output
//!     adoption           what a killed guard left comes here, and is killed
//!   node_api             packages in, bytes and output out
//! ```
//! Everything written goes through the planners of `records`; whatever is decided on the mirror is guarded there.

pub mod adoption;
pub mod attempt;
pub mod blob_api;
pub mod claims;
pub mod container_runner;
pub mod deploy_coordinator;
pub mod engines;
pub mod error;
mod fates;
pub mod gates;
pub mod guard;
pub mod halt;
pub mod host;
pub mod job_master;
pub mod kept;
pub mod leftovers;
pub mod limits;
pub mod metrics;
pub mod mirror;
pub mod node_api;
pub mod operation;
pub mod options;
pub mod package_agent;
pub mod package_copy;
pub mod package_handlers;
pub mod package_repair;
pub mod package_tasks;
pub mod receive;
mod register_api;
pub mod register_coordinator;
pub mod register_report;
pub mod register_target;
pub mod session;
mod settle;
pub mod take_over;
pub mod upload_api;

pub use container_runner::Node;
pub use error::NodeError;
pub use options::{CreatedBy, HostConfig, JobmasterConfig, NodeOptions};
pub use session::Session;
