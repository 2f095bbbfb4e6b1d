//! Exit codes, and how the errors of the store and of dispatchers become them.

use std::{fmt, io};

use meta_api::status::{ErrorClass, classify};
use meta_client::KvError;

/// Done.
pub const OK: u8 = 0;
/// The server said no, or something broke.
pub const FAILED: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// Nobody answered in time; the text says whether it may have been carried out.
pub const UNAVAILABLE: u8 = 3;
/// It exists already, or the state does not allow it.
pub const CONFLICT: u8 = 4;
/// There is no such thing.
pub const NOT_FOUND: u8 = 5;
/// `run submit --wait`: the job failed.
pub const JOB_FAILED: u8 = 10;
/// `run submit --wait`: the job was cancelled.
pub const JOB_CANCELLED: u8 = 11;

/// What a command ends with.
pub type Done = Result<u8, Failure>;

/// Why a command failed: one line, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// A failure with any code.
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// A plain failure.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::new(FAILED, text)
    }

    /// The command line makes no sense.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }

    /// There is no such thing.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(NOT_FOUND, text)
    }

    /// Nobody answered.
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self::new(UNAVAILABLE, text)
    }

    /// A call to a replica failed. `ask` is the command that tells whether a write took place; empty for a read.
    pub fn of_status(endpoint: &str, status: &tonic::Status, ask: &str) -> Self {
        match classify(status) {
            ErrorClass::Rejected { code, message } => Self::new(of_grpc(code), message),
            ErrorClass::Compacted { compact_revision } => Self::failed(format!(
                "the revision asked for is compacted away; the oldest left is {}",
                compact_revision + 1
            )),
            ErrorClass::NotSent(why) => Self::unavailable(format!("{endpoint}: {why}; nothing was changed")),
            ErrorClass::Unknown(why) if ask.is_empty() => Self::unavailable(format!(
                "{endpoint}: {why}; metactl endpoint health tells whether a majority of the replicas runs"
            )),
            ErrorClass::Unknown(why) => Self::unavailable(format!(
                "{endpoint}: {why}; it may have been carried out: ask with metactl {ask}"
            )),
        }
    }

    /// A write by a planner failed. `ask` is the command that tells whether it took place.
    pub fn of_plan(failure: records::Failure, ask: &str) -> Self {
        match failure {
            records::Failure::Refused(refusal) => refusal.into(),
            records::Failure::Store(KvError::Rejected { code, message }) => Self::new(of_grpc(code), message),
            records::Failure::Store(error @ KvError::Compacted { .. }) => Self::failed(error.to_string()),
            records::Failure::Store(KvError::NotSent(why)) => {
                Self::unavailable(format!("the store is unavailable: {why}; nothing was changed"))
            }
            records::Failure::Store(KvError::Unknown(why)) => Self::unavailable(format!(
                "no answer from the store: {why}; it may have been carried out: ask with metactl {ask}"
            )),
            records::Failure::Contended => Self::new(CONFLICT, failure.to_string()),
        }
    }

    /// A dispatcher answered with an error.
    pub fn of_http(status: u16, text: impl Into<String>) -> Self {
        let code = match status {
            400 | 413 => USAGE,
            404 => NOT_FOUND,
            409 => CONFLICT,
            502..=504 => UNAVAILABLE,
            _ => FAILED,
        };
        Self::new(code, text)
    }
}

/// gRPC's code as an exit code.
fn of_grpc(code: i32) -> u8 {
    match code {
        4 | 14 => UNAVAILABLE,
        5 => NOT_FOUND,
        6 | 9 | 10 => CONFLICT,
        _ => FAILED,
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<records::Refusal> for Failure {
    fn from(refusal: records::Refusal) -> Self {
        Self::of_http(refusal.class.http_status(), refusal.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_outcome_says_how_to_ask_and_a_refusal_does_not() {
        let lost = tonic::Status::unavailable("connection reset");
        let failure = Failure::of_status("127.0.0.1:1", &lost, "get k");
        assert_eq!(failure.code, UNAVAILABLE);
        assert!(failure.to_string().ends_with("it may have been carried out: ask with metactl get k"));
        let refused = tonic::Status::not_found("etcdserver: requested lease not found");
        let failure = Failure::of_status("127.0.0.1:1", &refused, "get k");
        assert_eq!(
            (failure.code, failure.to_string().as_str()),
            (NOT_FOUND, "etcdserver: requested lease not found")
        );
    }

    #[test]
    fn http_statuses_have_exit_codes() {
        let codes = [(400, USAGE), (404, NOT_FOUND), (409, CONFLICT), (503, UNAVAILABLE), (500, FAILED)];
        for (status, code) in codes {
            assert_eq!(Failure::of_http(status, "x").code, code);
        }
    }
}
