//! Why the state machine refuses a command or a read. Texts are etcd's, word for word: clients compare them.

use thiserror::Error;

/// A definite "no": nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// An empty key.
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    /// `ignore_value` or `ignore_lease` on a missing key.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// `ignore_value` together with a value.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// `ignore_lease` together with a lease.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// Too many compares or operations.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// One key written twice in a transaction.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// A sort option that does not exist.
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    /// A read below the compact revision, or a compaction at or below it.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted {
        /// The compact revision.
        compact_revision: i64,
    },
    /// A read or compaction above the current revision.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// The quota is used up.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// No such lease.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// A lease of this id exists.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// A TTL above the maximum.
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    /// A request above the size limit.
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    /// The command's origin was retired by a later boot of its member, or never registered.
    #[error("metastore: the command's origin is retired")]
    OriginRetired,
    /// The command's number is below its origin's low-water mark: it was settled before.
    #[error("metastore: the command was settled before")]
    BelowLowWater,
    /// A transaction that could write was given to a read.
    #[error("metastore: the transaction writes and has to be proposed")]
    NotReadOnly,
    /// The cluster's identity was set before, to another one.
    #[error("metastore: this store belongs to another cluster")]
    OtherCluster,
}
