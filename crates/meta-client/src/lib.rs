//! The client side of the store: trait [`Kv`], typed keys, guarded transactions, the network client, watch resume,
//! keep-alive.

pub mod commit;
pub mod etcd;
pub mod key;
pub mod kv;
pub mod lease;
pub mod mem;
pub mod mirror;
mod pieces;
pub mod record;
pub mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod tx;

pub use commit::{Commit, commit};
pub use etcd::{EtcdKv, EtcdOptions};
pub use key::{Stored, TypedKey};
pub use kv::{Kv, KvError, LeaseGranted, Revisioned, WatchBatch, WatchRequest, Watcher};
pub use lease::{LeaseKeeper, LeaseState};
pub use mem::MemKv;
pub use mirror::{Mirrored, follow};
pub use record::{Extra, Record, RecordError};
pub use snapshot::Snapshot;
pub use tx::{Tx, TxError, transact};
