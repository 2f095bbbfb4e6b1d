//! Errors of the public surface. Each knows its outcome: not sent, or unknown.

use thiserror::Error;

/// Why a proposal has no outcome to show.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// It may have been carried out, or may still be.
    #[error("the outcome is unknown: the command may have been carried out")]
    Unknown,
    /// It certainly was not and will not be carried out.
    #[error("not carried out: {0}")]
    NotSent(NotSent),
    /// This replica stopped.
    #[error("this replica has stopped; the outcome is unknown")]
    Stopped,
}

/// Why a command never entered a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotSent {
    /// No leader took it before the deadline.
    #[error("no leader was found in time")]
    NoLeader,
    /// Too many commands are in flight at this replica.
    #[error("too many commands are in flight")]
    Overloaded,
    /// The command alone is larger than a batch may be.
    #[error("the command is too large")]
    TooLarge,
}

/// Why a linearizable read cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReadError {
    /// No leader confirmed the log's end before the deadline.
    #[error("no leader confirmed the read in time")]
    Timeout,
    /// This replica stopped.
    #[error("this replica has stopped")]
    Stopped,
}

/// Why a replica does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Configuration that cannot work.
    #[error("{0}")]
    Config(String),
    /// The data directory belongs to another cluster, or to another replica.
    #[error("{0}")]
    Identity(String),
    /// A running cluster refused this replica.
    #[error("{0}")]
    Refused(String),
    /// The data directory cannot be used.
    #[error("data directory {dir}: {why}")]
    Disk {
        /// The directory.
        dir: String,
        /// What is wrong.
        why: String,
    },
    /// No state to start from, and no peer that has one.
    #[error("{0}")]
    Recovery(String),
    /// A port cannot be opened.
    #[error("cannot listen for peers on {addr}: {why}")]
    Listen {
        /// The address.
        addr: String,
        /// What is wrong.
        why: String,
    },
    /// The consensus engine refused to start.
    #[error("consensus: {0}")]
    Raft(String),
}
