//! A replica, and three of them, in this process, driven through the generated client over real ports.

mod apart;
mod cluster;
mod faults;
mod http;
mod kv;
mod lease;
mod rig;
mod status;
mod suite;
mod watch;
