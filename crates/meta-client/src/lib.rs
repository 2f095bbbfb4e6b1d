//! The client side of the store: trait [`Kv`], typed keys, guarded transactions, the network client, watch resume,
//! keep-alive.

pub mod commit;
pub mod etcd;
pub mod key;
pub mod kv;
pub mod mem;
pub mod record;
pub mod snapshot;

pub use commit::{Commit, commit};
pub use etcd::{EtcdKv, EtcdOptions};
pub use key::{Stored, TypedKey};
pub use kv::{Kv, KvError, LeaseGranted, Revisioned, WatchBatch, WatchRequest, Watcher};
pub use mem::MemKv;
pub use record::{Extra, Record, RecordError};
pub use snapshot::Snapshot;
