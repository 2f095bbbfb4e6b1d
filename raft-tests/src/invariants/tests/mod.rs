//! Each invariant against a story that breaks it, and all of them against one that breaks nothing.

mod bad_logs;
mod bad_states;
mod good;
mod rig;
