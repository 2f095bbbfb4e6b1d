//! What the invariants look at: the cluster after one step, and what changed in each log since the step before.
//!
//! A view is cheap to make: numbers that each replica has at hand, and *changes*. Whoever fills it in reports each
//! change of a replica's log exactly once, in order; the invariants keep mirrors of the logs from these changes and
//! never walk a log again. A step in which nothing happened costs a few comparisons a replica.
//!
//! All of one view is of one moment: numbers that lag behind each other (a status that is published later than the
//! state it tells of) are not mixed. What a view says of a replica that is down is what its disk would say; of its
//! numbers only `voters` is then looked at.

use std::collections::BTreeSet;
use std::time::Duration;

use meta_types::Revision;

/// A replica's id.
pub type ReplicaId = u64;

/// The cluster after a step.
#[derive(Debug, Clone, Default)]
pub struct ClusterView {
    /// Virtual time since the start of the seed.
    pub at: Duration,
    /// Every replica that ever had a log, also those that are down.
    pub replicas: Vec<ReplicaView>,
    /// The records at revisions not looked at before, ascending. The step from one to the next is checked only
    /// where they are of consecutive revisions. May be left empty in most steps.
    pub records: Vec<records::View>,
}

/// One replica after a step.
#[derive(Debug, Clone, Default)]
pub struct ReplicaView {
    /// Its id.
    pub id: ReplicaId,
    /// True while its process runs.
    pub alive: bool,
    /// Counts its boots: what was only in memory may go back when this changes.
    pub incarnation: u64,
    /// The term of its vote.
    pub term: u64,
    /// The term of the vote that its disk has; 0 = none.
    pub durable_term: u64,
    /// Whom it voted for in that term, if it did.
    pub vote: Option<ReplicaId>,
    /// True if it leads in `term`: it was elected and has not stepped down (not: it believes a metric that does).
    pub is_leader: bool,
    /// Whom it takes for the leader.
    pub leader: Option<ReplicaId>,
    /// The voters it goes by: one set, or two while a change is under way. Every set has to agree.
    pub voters: Vec<BTreeSet<ReplicaId>>,
    /// Index of the last entry in its log, or of what was purged if that is all; 0 = none.
    pub last_log: u64,
    /// Index of the last entry it knows to be committed; 0 = none.
    pub committed: u64,
    /// Index of the last entry in its state; 0 = none.
    pub applied: u64,
    /// Index of the last entry purged from its log; 0 = none.
    pub purged: u64,
    /// Index of the newest checkpoint that counts; 0 = none.
    pub checkpoint: u64,
    /// The state's revision.
    pub revision: Revision,
    /// The state's hash.
    pub state_hash: u64,
    /// The state's lease time.
    pub lease_time_ms: u64,
    /// Leases that were granted or renewed since the last step; may be left empty.
    pub leases: Vec<LeaseMark>,
    /// What happened to its log since the last step, in order.
    pub log_changes: Vec<LogChange>,
    /// Its state after entries applied since the last step, ascending. Best: after each entry. Enough: the last one.
    pub states: Vec<StateMark>,
}

/// An entry of a log, without what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryMark {
    /// Its index, from 1.
    pub index: u64,
    /// The term it was appended in.
    pub term: u64,
    /// Checksum of the stored payload.
    pub crc: u32,
}

/// The state after one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateMark {
    /// The entry's index.
    pub index: u64,
    /// The revision after it.
    pub revision: Revision,
    /// Revisions that it wrote.
    pub written: u64,
    /// The state's hash after it.
    pub hash: u64,
}

/// A lease after it was granted or renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseMark {
    /// Its id.
    pub id: i64,
    /// Its time to live.
    pub ttl_ms: u64,
    /// What is left of it.
    pub remaining_ms: u64,
}

/// A change of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogChange {
    /// The entry follows the last one. It may not be on disk yet.
    Appended(EntryMark),
    /// Everything up to this index is on disk: it survives a power cut.
    Durable {
        /// The index.
        up_to: u64,
    },
    /// Entries from this index on were dropped for those of another leader.
    Truncated {
        /// The index.
        from: u64,
    },
    /// Entries up to this index were dropped: a durable checkpoint holds what they did, or a peer's checkpoint
    /// replaced the log (then also entries after it may be gone: say so with `Truncated` first).
    Purged {
        /// The index.
        up_to: u64,
        /// The term of the entry at that index.
        term: u64,
    },
    /// The process ended. What was not durable may be gone.
    Stopped,
    /// It started again, and this is the whole log that it found on its disk, ascending.
    Found {
        /// Index and term of what was purged; 0, 0 = nothing.
        purged: (u64, u64),
        /// The entries after it.
        entries: Vec<EntryMark>,
    },
}
