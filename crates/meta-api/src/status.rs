//! gRPC codes and texts: which one each refusal has (etcd's, word for word: clients compare them), and what a
//! client may conclude from one it receives.

use std::error::Error;

use meta_types::{Refusal, Revision};
use tonic::metadata::MetadataValue;
use tonic::{Code, ConnectError, Status};

use crate::convert::WireError;

/// Nobody leads the cluster: nothing was done.
pub const NO_LEADER: &str = "etcdserver: no leader";
/// The replica has too much to apply: nothing was done.
pub const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
/// No answer in time: a write may have been carried out.
pub const REQUEST_TIMED_OUT: &str = "etcdserver: request timed out";
/// The replica is going down.
pub const SERVER_STOPPED: &str = "etcdserver: server stopped";
/// The client's own deadline passed.
pub const DEADLINE_EXCEEDED: &str = "context deadline exceeded";
/// A learner serves nothing but stale reads.
pub const NOT_FOR_LEARNER: &str = "etcdserver: rpc not supported for learner";
/// The watch's stream was given up.
pub const WATCH_CANCELED: &str = "etcdserver: watch canceled";
/// A replica that has not caught up since its start has done nothing with the request.
pub const NOT_SERVING: &str = "metastore: the replica is still catching up";

/// Trailer that names the compact revision beside "has been compacted".
pub const COMPACT_REVISION_HEADER: &str = "metastore-compact-revision";

/// The status a refusal is answered with.
pub fn refusal_to_status(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::EmptyKey
        | Refusal::KeyNotFound
        | Refusal::ValueProvided
        | Refusal::LeaseProvided
        | Refusal::TooManyOps
        | Refusal::DuplicateKey
        | Refusal::InvalidSortOption
        | Refusal::RequestTooLarge => Code::InvalidArgument,
        Refusal::Compacted { .. } | Refusal::FutureRevision | Refusal::LeaseTtlTooLarge => Code::OutOfRange,
        Refusal::NoSpace => Code::ResourceExhausted,
        Refusal::LeaseNotFound => Code::NotFound,
        Refusal::LeaseExists | Refusal::NotReadOnly | Refusal::OtherCluster => Code::FailedPrecondition,
        Refusal::OriginRetired | Refusal::BelowLowWater => Code::Unavailable,
    };
    let mut status = Status::new(code, refusal.to_string());
    if let Refusal::Compacted { compact_revision } = refusal {
        status.metadata_mut().insert(COMPACT_REVISION_HEADER, MetadataValue::from(*compact_revision));
    }
    status
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Refused(refusal) => refusal_to_status(&refusal),
            WireError::UnknownEnum { .. } => Self::invalid_argument(error.to_string()),
            WireError::NotSupported(_) => Self::unimplemented(error.to_string()),
        }
    }
}

/// What a failed call means to the one who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorClass {
    /// The store said no; nothing was changed.
    Rejected {
        /// gRPC code.
        code: i32,
        /// The store's words.
        message: String,
    },
    /// History that was asked for is compacted away.
    Compacted {
        /// The compact revision; 0 if the server did not name it.
        compact_revision: Revision,
    },
    /// Nothing was done: it is safe to send the request again, here or elsewhere.
    NotSent(String),
    /// Nobody knows: a write may have been carried out.
    Unknown(String),
}

/// Sorts a status that a client received. What is not known to be harmless is [`ErrorClass::Unknown`].
pub fn classify(status: &Status) -> ErrorClass {
    let message = status.message().to_owned();
    if never_left(status) {
        return ErrorClass::NotSent(message);
    }
    let compacted = "required revision has been compacted";
    match status.code() {
        Code::OutOfRange if message.contains(compacted) => {
            ErrorClass::Compacted { compact_revision: compact_revision(status) }
        }
        // This client's own limit on answers: the request was carried out.
        Code::OutOfRange if message.contains("decoded message length") => ErrorClass::Unknown(message),
        Code::Unavailable if [NO_LEADER, NOT_SERVING].contains(&message.as_str()) => {
            ErrorClass::NotSent(message)
        }
        Code::ResourceExhausted if message == TOO_MANY_REQUESTS => ErrorClass::NotSent(message),
        Code::FailedPrecondition if message == NOT_FOR_LEARNER => ErrorClass::NotSent(message),
        code @ (Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented) => ErrorClass::Rejected { code: code as i32, message },
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => ErrorClass::Unknown(message),
    }
}

/// True if no connection could be made for the request.
fn never_left(status: &Status) -> bool {
    let mut next = status.source();
    while let Some(error) = next {
        if error.is::<ConnectError>() {
            return true;
        }
        next = error.source();
    }
    false
}

fn compact_revision(status: &Status) -> Revision {
    let value = status.metadata().get(COMPACT_REVISION_HEADER);
    value.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_etcds_codes() {
        let cases = [
            (Refusal::EmptyKey, 3, "etcdserver: key is not provided"),
            (Refusal::TooManyOps, 3, "etcdserver: too many operations in txn request"),
            (Refusal::NoSpace, 8, "etcdserver: mvcc: database space exceeded"),
            (Refusal::LeaseNotFound, 5, "etcdserver: requested lease not found"),
            (Refusal::LeaseExists, 9, "etcdserver: lease already exists"),
            (Refusal::LeaseTtlTooLarge, 11, "etcdserver: too large lease TTL"),
            (Refusal::FutureRevision, 11, "etcdserver: mvcc: required revision is a future revision"),
        ];
        for (refusal, code, text) in cases {
            let status = refusal_to_status(&refusal);
            assert_eq!((status.code() as i32, status.message()), (code, text));
            let class = ErrorClass::Rejected { code, message: text.to_owned() };
            assert_eq!(classify(&status), class);
        }
    }

    #[test]
    fn the_compact_revision_travels_beside_the_text() {
        let status = refusal_to_status(&Refusal::Compacted { compact_revision: 42 });
        assert_eq!(status.code(), Code::OutOfRange);
        assert_eq!(classify(&status), ErrorClass::Compacted { compact_revision: 42 });
    }

    #[test]
    fn what_is_not_proven_harmless_is_unknown() {
        let unknown = [
            Status::unavailable(REQUEST_TIMED_OUT),
            Status::unavailable("connection reset"),
            Status::deadline_exceeded(DEADLINE_EXCEEDED),
            Status::internal("x"),
            Status::cancelled("x"),
        ];
        for status in unknown {
            assert!(matches!(classify(&status), ErrorClass::Unknown(_)), "{status:?}");
        }
        for status in [Status::unavailable(NO_LEADER), Status::resource_exhausted(TOO_MANY_REQUESTS)] {
            assert!(matches!(classify(&status), ErrorClass::NotSent(_)), "{status:?}");
        }
    }
}
