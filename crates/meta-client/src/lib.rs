//! The client side of the store: trait [`Kv`], typed keys, guarded transactions, the network client, watch resume,
//! keep-alive.

pub mod kv;

pub use kv::{Kv, KvError, LeaseGranted, Revisioned, WatchBatch, WatchRequest, Watcher};
