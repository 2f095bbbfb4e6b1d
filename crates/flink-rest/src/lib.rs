//! Flink's REST contract as recorded from real clusters: request parsing, answers, error texts, headers, paths, JARs.
//!
//! Nothing here knows the store or the records: the dispatcher turns records into these shapes and back.

pub mod answers;
pub mod args;
pub mod checkpoints;
pub mod coerce;
pub mod error;
pub mod exceptions;
pub mod jar;
pub mod job_id;
pub mod path;
pub mod query;
pub mod respond;
mod run_query;
pub mod run_request;
pub mod sensitive;
pub mod upload;

pub use error::RestError;
pub use run_request::{RestoreMode, Route, RunRequest};
