//! The nouns of the store: keys, revisions, transactions, commands, events; the codec; limits; seams.
//!
//! Everything that both the server side and the client side of the store speak of is defined here, so that the
//! two sides meet in this crate (and in `meta-api`, the wire) and nowhere else. Nothing here does I/O.

pub mod codec;
pub mod command;
pub mod controls;
pub mod event;
pub mod kv;
pub mod limits;
pub mod refusal;
pub mod seams;
pub mod txn;

pub use command::{Batch, Command, LeaseStamp, Origin, Outcome, Response, Sequenced};
pub use event::{Event, EventKind, RevisionEvents};
pub use kv::{
    DeleteRangeReply, DeleteRangeRequest, KeyRange, KeyValue, LeaseId, PutReply, PutRequest, RangeReply,
    RangeRequest, Revision, SortOrder, SortTarget,
};
pub use refusal::Refusal;
pub use txn::{Compare, CompareResult, CompareTarget, Op, OpReply, Txn, TxnReply};
