//! Between wire messages and `meta_types`. `to_wire` never fails; reading what a client sent may:
//! [`WireError`].

mod event;
mod kv;
mod txn;

pub use event::{event_from_wire, event_to_wire};
pub use kv::{
    delete_reply_from_wire, delete_reply_to_wire, delete_request_from_wire, delete_request_to_wire,
    key_value_from_wire, key_value_to_wire, put_reply_from_wire, put_reply_to_wire, put_request_from_wire,
    put_request_to_wire, range_reply_from_wire, range_reply_to_wire, range_request_from_wire,
    range_request_to_wire,
};
pub use txn::{txn_from_wire, txn_reply_from_wire, txn_reply_to_wire, txn_to_wire};

use meta_types::{Refusal, Revision};
use thiserror::Error;

use crate::pb::etcdserverpb::ResponseHeader;

/// Why a request of a client cannot be turned into one of ours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// The store would refuse it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An enum value that does not exist, with its name.
    #[error("metastore: {field} {value} does not exist")]
    UnknownEnum {
        /// The field.
        field: &'static str,
        /// The number received.
        value: i32,
    },
    /// A part of the protocol that is not built yet.
    #[error("metastore: {0} not supported yet")]
    NotSupported(&'static str),
}

/// Why an answer of a server cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the server's answer lacks {0}")]
pub struct BadAnswer(pub &'static str);

/// A header that carries nothing but a revision, as inside a transaction's answer.
pub(crate) fn bare_header(revision: Revision) -> Option<ResponseHeader> {
    Some(ResponseHeader { cluster_id: 0, member_id: 0, revision, raft_term: 0 })
}
