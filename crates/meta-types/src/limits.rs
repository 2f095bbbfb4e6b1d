//! Named limits of the store's nouns, each with the error a user gets.

/// Largest client request in bytes (etcd's `--max-request-bytes`): "request is too large".
pub const MAX_REQUEST_BYTES: usize = 1_572_864;
/// gRPC's own bound: `MAX_REQUEST_BYTES` + 512 KiB, as etcd.
pub const MAX_GRPC_MESSAGE_BYTES: usize = MAX_REQUEST_BYTES + 512 * 1024;
/// Compares, or operations of one branch: "too many operations in txn request".
pub const MAX_TXN_OPS: usize = 128;
/// Largest lease TTL in seconds: "too large lease TTL".
pub const MAX_LEASE_TTL_S: i64 = 9_000_000_000;
/// Smallest lease TTL in seconds: shorter ones are raised.
pub const MIN_LEASE_TTL_S: i64 = 2;
/// Commands of one batch: the proposer starts another.
pub const MAX_BATCH_COMMANDS: usize = 1024;
/// Bytes of one batch's commands: the proposer starts another (one larger command travels alone).
pub const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Applied numbers above the low-water mark that the state remembers per origin; the proposer keeps fewer in flight.
pub const MAX_DEDUP_WINDOW: usize = 65_536;
/// Largest encoded blob the codec takes, in bytes.
pub const MAX_ENCODED_BYTES: usize = 16 * 1024 * 1024;
