//! Commands: one file each. A command gets the state, and what it did comes back as a value.

mod compact;
mod delete_range;
mod lease_expire;
mod lease_grant;
mod lease_keep_alive;
mod lease_revoke;
mod put;
mod register_origin;
mod set_cluster;
mod txn;

use meta_types::{Batch, Command, Refusal, Response, RevisionEvents, Sequenced};

pub(crate) use self::txn::read_txn;
use crate::core::{Core, EntryPosition};
use crate::dedup::Admission;
use crate::validate;

/// What a command did.
pub(crate) struct Effect {
    /// Its answer.
    pub(crate) response: Response,
    /// The revisions it wrote: none, one, or one per expired lease.
    pub(crate) events: Vec<RevisionEvents>,
}

impl Effect {
    fn new(response: Response, events: impl IntoIterator<Item = RevisionEvents>) -> Self {
        Self { response, events: events.into_iter().collect() }
    }

    fn silent(response: Response) -> Self {
        Self::new(response, None)
    }
}

/// Decides whether a command is to be executed. A registration comes first: it makes its own number known.
pub(crate) fn admit(core: &mut Core, batch: &Batch, sequenced: &Sequenced) -> Admission {
    if sequenced.command == Command::RegisterOrigin
        && let Err(refusal) = register_origin::apply(core, batch)
    {
        return Admission::Refused(refusal);
    }
    core.dedup.admit(batch.origin, sequenced.seq)
}

/// Executes a command of the entry `at`. A refused one has changed nothing.
pub(crate) fn execute(core: &mut Core, at: EntryPosition, command: &Command) -> Result<Effect, Refusal> {
    validate::check(command)?;
    match command {
        Command::RegisterOrigin | Command::LeaseTick => Ok(Effect::silent(Response::Done)),
        Command::Put(request) => put::apply(core, request),
        Command::DeleteRange(request) => Ok(delete_range::apply(core, request)),
        Command::Txn(txn) => txn::apply(core, txn),
        Command::Compact(revision) => compact::apply(core, *revision),
        Command::LeaseGrant { id, ttl } => lease_grant::apply(core, *id, *ttl),
        Command::LeaseRevoke { id } => lease_revoke::apply(core, *id),
        Command::LeaseKeepAlive { ids } => Ok(lease_keep_alive::apply(core, ids)),
        Command::LeaseExpire { term, ids } => Ok(lease_expire::apply(core, at, *term, ids)),
        Command::SetCluster { cluster_id, name, feature_level } => {
            set_cluster::apply(core, *cluster_id, name, *feature_level)
        }
    }
}
