//! Bytes on disk: the write-ahead log, the vote, sled checkpoint generations, identity.
//!
//! Everything here is synchronous and knows nothing of Raft beyond indexes and terms. The log is the truth
//! and is durable when [`Wal::sync`] returned; a generation is a whole state at one log position, written
//! once. All I/O goes through the [`disk::Disk`] seam, except sled's own.

pub mod disk;
pub mod generation;
pub mod identity;
pub mod wal;

pub use disk::{Disk, MemDisk, MemDiskFaults, RealDisk};
pub use generation::{
    BadGeneration, DiskGenerations, Generation, GenerationError, GenerationWriter, Generations, RecordStream,
    SledGenerations,
};
pub use identity::{DirectoryLock, Identity, IdentityError};
pub use wal::{LogEntry, Position, Recovered, SyncReport, Vote, Wal, WalError, WalOptions};
