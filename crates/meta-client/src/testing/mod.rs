//! For tests: one suite that every [`crate::Kv`] must pass, a store that loses answers, and a small server that puts
//! [`crate::MemKv`] on the wire.

pub mod faulty;
pub mod server;
pub mod suite;
