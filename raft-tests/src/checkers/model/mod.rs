//! A second, naive state machine: a map of all versions ever written, leases, applied command numbers. It shares no
//! code with `meta_core`, is slow where that is clever, and forgets nothing, so that a bug there cannot hide itself.

mod keyspace;
mod leases;
mod origins;
mod writing;

use meta_types::{Batch, Command, LeaseId, Outcome, Refusal, Response, Revision, RevisionEvents, Sequenced};

pub use self::keyspace::Keyspace;
pub(crate) use self::keyspace::holds;
pub use self::leases::{Leases, Standing};
use self::origins::Origins;
use self::writing::{check_command, run_txn};

/// The whole state.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Every version of every key.
    pub keys: Keyspace,
    /// Leases and lease time.
    pub leases: Leases,
    origins: Origins,
    cluster: Option<(u64, bytes::Bytes)>,
}

/// What one command of a batch did. A duplicate does nothing and is not told of.
#[derive(Debug, Clone)]
pub struct Done {
    /// The command's number.
    pub seq: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// The revisions it wrote.
    pub events: Vec<RevisionEvents>,
}

type Effect = Result<(Response, Vec<RevisionEvents>), Refusal>;

impl Model {
    /// Applies the entry of a term.
    pub fn apply(&mut self, term: u64, batch: &Batch) -> Vec<Done> {
        if let Some(stamp) = batch.stamp
            && stamp.term == term
        {
            self.leases.pass(stamp.lease_time_ms);
        }
        self.origins.settle(batch.origin, batch.low_water);
        batch.commands.iter().filter_map(|sequenced| self.apply_one(term, batch, sequenced)).collect()
    }

    fn apply_one(&mut self, term: u64, batch: &Batch, sequenced: &Sequenced) -> Option<Done> {
        let Sequenced { seq, command } = sequenced;
        let registered = match command {
            Command::RegisterOrigin => self.origins.register(batch.origin, batch.low_water),
            _ => Ok(()),
        };
        let admitted = registered.and_then(|()| self.origins.admit(batch.origin, *seq));
        let effect = match admitted {
            Ok(false) => return None,
            Ok(true) => self.execute(term, command),
            Err(refusal) => Err(refusal),
        };
        let (result, events) = match effect {
            Ok((response, events)) => (Ok(response), events),
            Err(refusal) => (Err(refusal), Vec::new()),
        };
        Some(Done { seq: *seq, outcome: Outcome { revision: self.keys.revision(), result }, events })
    }

    fn execute(&mut self, term: u64, command: &Command) -> Effect {
        check_command(command)?;
        match command {
            Command::RegisterOrigin | Command::LeaseTick => Ok((Response::Done, Vec::new())),
            Command::Put(request) => {
                self.keys.check_put(request, &self.leases)?;
                let mut write = self.keys.begin();
                let reply = write.put(request);
                Ok((Response::Put(reply), write.finish()))
            }
            Command::DeleteRange(request) => {
                let mut write = self.keys.begin();
                let reply = write.delete_range(request);
                Ok((Response::DeleteRange(reply), write.finish()))
            }
            Command::Txn(txn) => run_txn(&mut self.keys, &self.leases, txn),
            Command::Compact(revision) => self.compact(*revision),
            Command::LeaseGrant { id, ttl } => {
                let ttl = self.leases.grant(*id, *ttl)?;
                Ok((Response::LeaseGrant { id: *id, ttl }, Vec::new()))
            }
            Command::LeaseRevoke { id } => {
                self.leases.standing(*id).ok_or(Refusal::LeaseNotFound)?;
                Ok((Response::Done, self.drop_lease(*id)))
            }
            Command::LeaseKeepAlive { ids } => {
                let ttls = ids.iter().map(|id| self.leases.renew(*id)).collect();
                Ok((Response::LeaseKeepAlive { ttls }, Vec::new()))
            }
            Command::LeaseExpire { term: found_in, ids } => {
                let is_due = |model: &Self, id| *found_in == term && model.leases.is_due(id);
                let mut events = Vec::new();
                for id in ids {
                    if is_due(self, *id) {
                        events.extend(self.drop_lease(*id));
                    }
                }
                Ok((Response::Done, events))
            }
            Command::SetCluster { cluster_id, name, .. } => {
                let is = self.cluster.get_or_insert_with(|| (*cluster_id, name.clone()));
                match (is.0, &is.1) == (*cluster_id, name) {
                    true => Ok((Response::Done, Vec::new())),
                    false => Err(Refusal::OtherCluster),
                }
            }
        }
    }

    fn compact(&mut self, revision: Revision) -> Effect {
        self.keys.compact(revision)?;
        Ok((Response::Done, Vec::new()))
    }

    fn drop_lease(&mut self, id: LeaseId) -> Vec<RevisionEvents> {
        self.leases.remove(id);
        let keys = self.keys.on_lease(id);
        let mut write = self.keys.begin();
        keys.iter().for_each(|key| write.delete(key));
        write.finish()
    }
}
