//! The messages between replicas. Version 1; positional, so a change is a new version in [`PROTOCOL`].
//!
//! Every connection starts with [`Hello`] and its [`HelloReply`]. On a `Calls` connection follow [`Request`]s with
//! an id and, in any order, their [`Reply`]s; the receiver handles appends in the order they came. On a
//! `Checkpoint` connection follows the one transfer (see [`super::transfer`]).

use openraft::raft::StreamAppendError;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest, VoteResponse};
use serde::{Deserialize, Serialize};

use crate::types::{LogId, TypeConfig, Vote};

/// First bytes of a connection, so that a stranger on the port is told apart from a peer.
pub(crate) const MAGIC: u32 = 0x4d53_5052;
/// Version of everything below.
pub(crate) const PROTOCOL: u32 = 1;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Requests and replies.
    Calls,
    /// A checkpoint sent by a leader.
    Checkpoint,
    /// A checkpoint asked for by a replica that has no state to start from.
    FetchCheckpoint,
    /// A replica that has no cluster yet asks what there is.
    Forming,
}

/// Opens a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`MAGIC`].
    pub(crate) magic: u32,
    /// [`PROTOCOL`].
    pub(crate) protocol: u32,
    /// What for.
    pub(crate) purpose: Purpose,
    /// The sender's cluster; 0 while it has none.
    pub(crate) cluster_id: u64,
    /// Its name.
    pub(crate) cluster_name: String,
    /// The sender.
    pub(crate) from: u64,
    /// Whom the sender means to reach; 0 while it does not know.
    pub(crate) to: u64,
}

/// Answers a hello. After anything but `Welcome` the connection ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelloReply {
    /// Go on.
    Welcome,
    /// Not here; the reason for a person.
    Refused(String),
}

/// A request on a `Calls` connection. Its tail is named where it has one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Entries, or a heartbeat. Tail: the payloads of `entries`, one behind the other.
    Append(Append),
    /// A candidate asks for a vote.
    Vote(VoteRequest<TypeConfig>),
    /// A follower asks whether it would get a vote.
    PreVote(VoteRequest<TypeConfig>),
    /// A leader asks this member to take over.
    TransferLeader(TransferLeaderRequest<TypeConfig>),
    /// A batch for the leader to stamp and propose. Tail: the batch.
    Forward,
    /// A follower asks the leader how far a read that arrived by now must see.
    ReadIndex,
    /// A member asks the leader to note its new addresses.
    Announce {
        /// The member.
        id: u64,
        /// Its name and addresses.
        member: crate::types::Member,
    },
}

/// Answers a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// How far the follower's log agrees now, or what it holds against it.
    Append(Result<Option<LogId>, StreamAppendError<TypeConfig>>),
    /// Of a vote or a pre-vote.
    Vote(VoteResponse<TypeConfig>),
    /// Of a transfer: why not, if not.
    TransferLeader(Option<String>),
    /// Of a forwarded batch.
    Forward(Forwarded),
    /// The index a read must see, or who leads instead.
    ReadIndex(Result<u64, NotLeader>),
    /// Of an announcement: why not, if not.
    Announce(Option<String>),
    /// The receiver has stopped.
    Stopped,
}

/// What became of a batch at the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Forwarded {
    /// Applied there.
    Applied,
    /// Not appended: it may be proposed elsewhere without a doubt.
    NotAppended(NotLeader),
    /// Appended and then discarded: another leader may still commit it.
    Discarded,
}

/// The receiver does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotLeader {
    /// Who does, as far as it knows.
    pub(crate) leader: Option<u64>,
}

/// An append without its payloads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Append {
    vote: Vote,
    prev: Option<LogId>,
    commit: Option<LogId>,
    entries: Vec<EntryHead>,
}

/// An entry without its payload.
#[derive(Debug, Serialize, Deserialize)]
struct EntryHead {
    term: u64,
    index: u64,
    bytes: u32,
}

impl Append {
    /// Takes a request apart into its head and the payloads behind it.
    pub(crate) fn split(rpc: AppendEntriesRequest<TypeConfig>) -> std::io::Result<(Self, Vec<bytes::Bytes>)> {
        let mut payloads = Vec::with_capacity(rpc.entries.len());
        let mut entries = Vec::with_capacity(rpc.entries.len());
        for entry in &rpc.entries {
            let bytes = crate::payload::encode_entry(&entry.payload).map_err(invalid)?;
            entries.push(EntryHead {
                term: crate::types::term_of(&entry.log_id),
                index: entry.log_id.index,
                bytes: bytes.len() as u32,
            });
            payloads.push(bytes);
        }
        Ok((Self { vote: rpc.vote, prev: rpc.prev_log_id, commit: rpc.leader_commit, entries }, payloads))
    }

    /// Puts it together again; payloads share `tail`.
    pub(crate) fn join(self, mut tail: bytes::Bytes) -> std::io::Result<AppendEntriesRequest<TypeConfig>> {
        let mut entries = Vec::with_capacity(self.entries.len());
        for head in self.entries {
            if (head.bytes as usize) > tail.len() {
                return Err(invalid("an append with fewer bytes than its entries say"));
            }
            let payload = tail.split_to(head.bytes as usize);
            entries.push(crate::payload::decode_entry(head.term, head.index, payload).map_err(invalid)?);
        }
        Ok(AppendEntriesRequest {
            vote: self.vote,
            prev_log_id: self.prev,
            entries,
            leader_commit: self.commit,
        })
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, why)
}
