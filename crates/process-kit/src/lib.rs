//! How every process of ours boots, is configured, logs, is measured and stops.
//!
//! A `main.rs` reads as: parse [`boot::BootArgs`], load the config, [`telemetry::init`], [`net::bind`] every port,
//! build, run, [`shutdown::Shutdown::finish`], exit code. Nothing here knows what a process is for.

pub mod boot;
pub mod config;
pub mod form;
pub mod metrics;
pub mod net;
pub mod refused;
pub mod rounds;
pub mod seams;
pub mod serve;
pub mod shutdown;
pub mod telemetry;

pub use boot::BootArgs;
pub use config::{ByteSize, Config, ConfigError, Loaded, Row};
pub use form::{Form, FormError, Part};
pub use metrics::{Metrics, Readiness, ops_routes};
pub use net::{BindError, bind};
pub use rounds::{Did, LastResult, Rounds};
pub use seams::{SystemClock, SystemRng};
pub use serve::serve;
pub use shutdown::Shutdown;
