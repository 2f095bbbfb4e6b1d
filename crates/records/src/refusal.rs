//! Why a planner says no: a class that front ends turn into a code, and a sentence for the user.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What kind of "no" it is. The code is stable; front ends map it to HTTP and exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Class {
    /// The request itself is wrong.
    BadRequest,
    /// There is no such thing.
    NotFound,
    /// A package of this name and version exists with other content.
    Exists,
    /// A package of this name and version is being created.
    InProgress,
    /// A package of this name and version is being removed.
    Removing,
    /// A package whose name differs only in case exists.
    NameCase,
    /// Code may not start on this package now.
    UnitNotReady,
    /// The package became another, or was removed, while its copies were checked.
    ChangedDuringCheck,
    /// The same id was used for a different request.
    Different,
    /// The run was deleted and its id may not be used again yet.
    Deleted,
    /// The job id is in use.
    JobIdInUse,
    /// The state does not allow it (a finished job cannot be cancelled).
    WrongState,
    /// The writer lost its right to write: another owner, epoch, operation or incarnation stands.
    Fenced,
    /// Not yet: something is still in the way (holders, other rows, grace, slots). Try again when the view changes.
    NotYet,
    /// No live server node.
    NoServerNode,
    /// A record cannot be read by this binary.
    Unreadable,
    /// The planner was given too small a view: a bug.
    Internal,
}

impl Class {
    /// The HTTP status that fits.
    pub fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::NotFound => 404,
            Self::Exists
            | Self::InProgress
            | Self::Removing
            | Self::NameCase
            | Self::UnitNotReady
            | Self::ChangedDuringCheck
            | Self::Different
            | Self::Deleted
            | Self::JobIdInUse
            | Self::WrongState
            | Self::Fenced => 409,
            Self::NotYet | Self::NoServerNode => 503,
            Self::Unreadable | Self::Internal => 500,
        }
    }

    /// The stable code, as in answers: `UNIT_NOT_READY`.
    pub fn code(self) -> &'static str {
        match self {
            Self::BadRequest => "BAD_REQUEST",
            Self::NotFound => "NOT_FOUND",
            Self::Exists => "EXISTS",
            Self::InProgress => "IN_PROGRESS",
            Self::Removing => "REMOVING",
            Self::NameCase => "NAME_CASE",
            Self::UnitNotReady => "UNIT_NOT_READY",
            Self::ChangedDuringCheck => "CHANGED_DURING_CHECK",
            Self::Different => "DIFFERENT",
            Self::Deleted => "DELETED",
            Self::JobIdInUse => "JOB_ID_IN_USE",
            Self::WrongState => "WRONG_STATE",
            Self::Fenced => "FENCED",
            Self::NotYet => "NOT_YET",
            Self::NoServerNode => "NO_SERVER_NODE",
            Self::Unreadable => "UNREADABLE",
            Self::Internal => "INTERNAL",
        }
    }
}

/// A definite "no": nothing was or will be written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct Refusal {
    /// The kind.
    pub class: Class,
    /// The sentence.
    pub text: String,
    /// True if the state will change by itself soon: a caller with time left waits for the view to change.
    pub transient: bool,
}

impl Refusal {
    /// Makes one.
    pub fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: text.into(), transient: class == Class::NotYet }
    }
    /// The same, and the state will change by itself soon.
    pub fn for_now(mut self) -> Self {
        self.transient = true;
        self
    }
    /// The request is wrong.
    pub fn bad_request(text: impl Into<String>) -> Self {
        Self::new(Class::BadRequest, text)
    }
    /// There is no such thing.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(Class::NotFound, text)
    }
    /// The writer lost its right to write.
    pub fn fenced(text: impl Into<String>) -> Self {
        Self::new(Class::Fenced, text)
    }
    /// Something is still in the way.
    pub fn not_yet(text: impl Into<String>) -> Self {
        Self::new(Class::NotYet, text)
    }
    /// The state does not allow it.
    pub fn wrong_state(text: impl Into<String>) -> Self {
        Self::new(Class::WrongState, text)
    }
}
