//! Flink's REST contract against a dispatcher: every recorded exchange of real clusters, every path that Flink has, and
//! what our own answers on those paths say.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod compare;
mod differences;
mod paths;
mod recordings;
mod replay;
