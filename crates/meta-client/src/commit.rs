//! Carrying out a guarded transaction to a definite end, though answers get lost.
//!
//! A *guarded* transaction breaks its own guards: among its compares is one on a key that it writes (unchanged since
//! it was read, or absent). So it takes place at most once however often it is sent: a late first copy finds the
//! guard broken by the second, and the other way round. (A guard "absent" holds again once the key is deleted; a copy
//! would have to stay on its way for all of that, past its own deadline at the server. Where that matters a planner
//! guards a revision too: an epoch, an incarnation, a tombstone.) Sending the same one again is therefore safe, and
//! after an unknown outcome that is what [`commit`] does:
//!
//! * it succeeds now: it took place now, and no earlier copy did or will;
//! * its guards fail, and every key it puts holds exactly our bytes, all from one revision above the one that was
//!   planned on: the earlier copy took place at that revision (records name their writer where it matters, so equal
//!   bytes are an equal effect);
//! * its guards fail otherwise: either somebody else was first, or our effect has been written over since. This is
//!   a [`Commit::Conflict`]: the caller plans again on a fresh view. Planners recognise their own effect, so a plan
//!   that did take place leads to the same answer.

use std::time::Duration;

use bytes::Bytes;
use meta_types::{Op, OpReply, RangeRequest, Revision, Txn};

use crate::kv::{Kv, KvError};

/// How often one guarded transaction is sent before its outcome is given up as it is.
pub const MAX_SENDS: u32 = 8;
/// First pause between two sends; doubles each time up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause between two sends.
const MAX_PAUSE: Duration = Duration::from_millis(640);

/// What became of a guarded transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// It took place, at this revision.
    Done(Revision),
    /// A guard failed: read again and plan again.
    Conflict,
}

/// Sends a guarded transaction, planned on what was read at `read_at`, until its outcome is known, as the module
/// says. Fails with the last error if the store stays away: [`KvError::NotSent`] only if no copy was ever sent.
pub async fn commit(kv: &dyn Kv, txn: &Txn, read_at: Revision) -> Result<Commit, KvError> {
    let keys: Vec<_> = put_keys(txn).collect();
    let mut sent = txn.clone();
    sent.failure = keys.iter().map(|(key, _)| Op::Range(RangeRequest::get((*key).clone()))).collect();
    let mut unknown = None;
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=MAX_SENDS {
        match kv.txn(sent.clone()).await {
            Ok(reply) if reply.value.succeeded => return Ok(Commit::Done(reply.revision)),
            Ok(reply) if unknown.is_some() => return Ok(read_back(&keys, &reply.value.replies, read_at)),
            Ok(_) => return Ok(Commit::Conflict),
            Err(error @ KvError::Unknown(_)) => unknown = Some(error),
            Err(error @ KvError::NotSent(_)) if attempt == MAX_SENDS => return Err(unknown.unwrap_or(error)),
            Err(KvError::NotSent(_)) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
    Err(unknown.unwrap_or_else(|| KvError::NotSent("every attempt was turned away".into())))
}

/// Decides from what lies under the keys now whether an earlier copy took place.
fn read_back(keys: &[(&Bytes, &Bytes)], replies: &[OpReply], read_at: Revision) -> Commit {
    let mut at = None;
    for ((_, ours), reply) in keys.iter().zip(replies) {
        let OpReply::Range(range) = reply else { return Commit::Conflict };
        let Some(found) = range.kvs.first() else { return Commit::Conflict };
        let same_revision = at.is_none_or(|revision| revision == found.mod_revision);
        if found.value != **ours || !same_revision || found.mod_revision <= read_at {
            return Commit::Conflict;
        }
        at = Some(found.mod_revision);
    }
    at.map_or(Commit::Conflict, Commit::Done)
}

fn put_keys(txn: &Txn) -> impl Iterator<Item = (&Bytes, &Bytes)> {
    txn.success.iter().filter_map(|op| match op {
        Op::Put(put) => Some((&put.key, &put.value)),
        Op::Range(_) | Op::DeleteRange(_) => None,
    })
}
