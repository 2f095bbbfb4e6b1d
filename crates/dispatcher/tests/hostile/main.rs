//! Hostile uploads, as bytes on a socket: each is refused with a reason, nothing is written where it does not belong,
//! nothing stays, and the process serves on.

#[path = "../support/mod.rs"]
mod support;

mod archives;
mod framing;
mod jars;
mod lists;
mod names;
mod rig;
