//! The naive model's writes: a command works on a copy of the model, and a refused one throws the copy away.

use std::sync::Arc;

use bytes::Bytes;
use meta_core::{Applied, ClusterInfo, EntryPosition};
use meta_types::limits::{MAX_LEASE_TTL_S, MIN_LEASE_TTL_S};
use meta_types::{
    Batch, Command, DeleteRangeReply, DeleteRangeRequest, KeyValue, LeaseId, Op, OpReply, Outcome, PutReply,
    PutRequest, Refusal, Response, Revision, Txn, TxnReply,
};

use crate::model::{Model, OriginModel, in_range};

impl Model {
    pub fn apply(&mut self, at: EntryPosition, batch: &Batch) -> Applied {
        if let Some(stamp) = batch.stamp
            && stamp.term == at.term
        {
            self.time_ms = self.time_ms.max(stamp.lease_time_ms);
        }
        let origin = batch.origin;
        if let Some(known) = self.origins.get_mut(&origin.member).filter(|known| known.boot == origin.boot) {
            known.low_water = known.low_water.max(batch.low_water);
        }
        let mut applied = Applied::default();
        for sequenced in &batch.commands {
            let before = self.revision;
            let Some(result) = self.settle(at, batch, sequenced.seq, &sequenced.command) else { continue };
            let written = before + 1..=self.revision;
            applied.events.extend(written.filter_map(|revision| self.events_of(revision)));
            applied.outcomes.push((sequenced.seq, Outcome { revision: self.revision, result }));
        }
        applied
    }

    /// `None` for a duplicate.
    fn settle(
        &mut self,
        at: EntryPosition,
        batch: &Batch,
        seq: u64,
        command: &Command,
    ) -> Option<Result<Response, Refusal>> {
        if *command == Command::RegisterOrigin && !self.register(batch) {
            return Some(Err(Refusal::OriginRetired));
        }
        let Some(origin) = self.origins.get_mut(&batch.origin.member) else {
            return Some(Err(Refusal::OriginRetired));
        };
        if origin.boot != batch.origin.boot {
            return Some(Err(Refusal::OriginRetired));
        }
        if seq < origin.low_water {
            return Some(Err(Refusal::BelowLowWater));
        }
        if !origin.applied.insert(seq) {
            return None;
        }
        let mut copy = self.clone();
        let result = copy.execute(at, command);
        if result.is_ok() {
            *self = copy;
        }
        Some(result)
    }

    fn register(&mut self, batch: &Batch) -> bool {
        let known = self.origins.entry(batch.origin.member).or_default();
        if known.retired.contains(&batch.origin.boot) {
            return false;
        }
        if known.boot != batch.origin.boot {
            let mut retired = std::mem::take(&mut known.retired);
            retired.extend((known.boot != 0).then_some(known.boot));
            let (boot, low_water) = (batch.origin.boot, batch.low_water);
            *known = OriginModel { boot, low_water, retired, ..OriginModel::default() };
        }
        true
    }

    fn execute(&mut self, at: EntryPosition, command: &Command) -> Result<Response, Refusal> {
        let next = self.revision + 1;
        let response = match command {
            Command::RegisterOrigin | Command::LeaseTick => Response::Done,
            Command::Put(put) => {
                self.check_shape(put)?;
                self.check_lease(put)?;
                self.check_ignored(put)?;
                Response::Put(self.put(put, next))
            }
            Command::DeleteRange(delete) => {
                if delete.range.key.is_empty() {
                    return Err(Refusal::EmptyKey);
                }
                Response::DeleteRange(self.delete(delete, next))
            }
            Command::Txn(txn) => Response::Txn(self.txn(txn, next)?),
            Command::Compact(revision) => {
                if *revision <= self.compact {
                    return Err(Refusal::Compacted { compact_revision: self.compact.max(0) });
                }
                if *revision > self.revision {
                    return Err(Refusal::FutureRevision);
                }
                self.compact = *revision;
                Response::Done
            }
            Command::LeaseGrant { id, ttl } => self.grant(*id, *ttl)?,
            Command::LeaseRevoke { id } => {
                if !self.leases.contains_key(id) {
                    return Err(Refusal::LeaseNotFound);
                }
                self.revoke(*id);
                Response::Done
            }
            Command::LeaseKeepAlive { ids } => {
                Response::LeaseKeepAlive { ttls: ids.iter().map(|id| self.renew(*id)).collect() }
            }
            Command::LeaseExpire { term, ids } => {
                for id in ids {
                    let due = self.leases.get(id).is_some_and(|(_, expiry)| *expiry <= self.time_ms);
                    if due && *term == at.term {
                        self.revoke(*id);
                    }
                }
                Response::Done
            }
            Command::SetCluster { cluster_id, name, feature_level } => {
                let (cluster_id, name, feature_level) = (*cluster_id, name.clone(), *feature_level);
                match &mut self.cluster {
                    Some(is) if is.cluster_id != cluster_id || is.name != name => {
                        return Err(Refusal::OtherCluster);
                    }
                    Some(is) => is.feature_level = is.feature_level.max(feature_level),
                    None => self.cluster = Some(ClusterInfo { cluster_id, name, feature_level }),
                }
                Response::Done
            }
        };
        // Only a single write got `next`; leases count for themselves.
        self.revision = self.versions.last().map_or(1, |kv| kv.mod_revision);
        Ok(response)
    }

    fn check_shape(&self, put: &PutRequest) -> Result<(), Refusal> {
        match put {
            put if put.key.is_empty() => Err(Refusal::EmptyKey),
            put if put.ignore_value && !put.value.is_empty() => Err(Refusal::ValueProvided),
            put if put.ignore_lease && put.lease != 0 => Err(Refusal::LeaseProvided),
            _ => Ok(()),
        }
    }

    fn check_lease(&self, put: &PutRequest) -> Result<(), Refusal> {
        let known = put.lease == 0 || self.leases.contains_key(&put.lease);
        if known { Ok(()) } else { Err(Refusal::LeaseNotFound) }
    }

    fn check_ignored(&self, put: &PutRequest) -> Result<(), Refusal> {
        let needed = put.ignore_lease || put.ignore_value;
        if needed && !self.now().contains_key(&put.key) { Err(Refusal::KeyNotFound) } else { Ok(()) }
    }

    fn put(&mut self, put: &PutRequest, revision: Revision) -> PutReply {
        let prev = self.now().get(&put.key).map(|kv| (*kv).clone());
        let mut kv = KeyValue {
            key: put.key.clone(),
            value: put.value.clone(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: put.lease,
        };
        if let Some(prev) = &prev {
            kv.create_revision = prev.create_revision;
            kv.version = prev.version + 1;
            if put.ignore_value {
                kv.value = prev.value.clone();
            }
            if put.ignore_lease {
                kv.lease = prev.lease;
            }
        }
        self.versions.push(kv);
        PutReply { prev_kv: prev.filter(|_| put.prev_kv).map(Arc::new) }
    }

    fn delete(&mut self, delete: &DeleteRangeRequest, revision: Revision) -> DeleteRangeReply {
        let gone: Vec<KeyValue> =
            self.now().into_values().filter(|kv| in_range(&delete.range, &kv.key)).cloned().collect();
        for kv in &gone {
            self.bury(kv.key.clone(), revision);
        }
        let deleted = gone.len() as i64;
        let prev_kvs = if delete.prev_kv { gone.into_iter().map(Arc::new).collect() } else { Vec::new() };
        DeleteRangeReply { deleted, prev_kvs }
    }

    fn bury(&mut self, key: Bytes, revision: Revision) {
        self.versions.push(KeyValue { key, mod_revision: revision, ..KeyValue::default() });
    }

    fn txn(&mut self, txn: &Txn, revision: Revision) -> Result<TxnReply, Refusal> {
        if txn.compare.iter().any(|compare| compare.range.key.is_empty()) {
            return Err(Refusal::EmptyKey);
        }
        for op in txn.success.iter().chain(&txn.failure) {
            match op {
                Op::Put(put) => self.check_shape(put)?,
                Op::Range(range) if range.range.key.is_empty() => return Err(Refusal::EmptyKey),
                Op::DeleteRange(delete) if delete.range.key.is_empty() => return Err(Refusal::EmptyKey),
                Op::Range(_) | Op::DeleteRange(_) => {}
            }
        }
        if writes_twice(&txn.success) || writes_twice(&txn.failure) {
            return Err(Refusal::DuplicateKey);
        }
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let branch = if succeeded { &txn.success } else { &txn.failure };
        for op in branch {
            match op {
                Op::Put(put) => {
                    self.check_ignored(put)?;
                    self.check_lease(put)?;
                }
                Op::Range(range) => self.check_revision(range.revision)?,
                Op::DeleteRange(_) => {}
            }
        }
        let run = |op: &Op| match op {
            Op::Range(range) => OpReply::Range(self.range(range)),
            Op::Put(put) => OpReply::Put(self.put(put, revision)),
            Op::DeleteRange(delete) => OpReply::DeleteRange(self.delete(delete, revision)),
        };
        let replies = branch.iter().map(run).collect();
        Ok(TxnReply { succeeded, replies })
    }

    fn grant(&mut self, id: LeaseId, ttl: i64) -> Result<Response, Refusal> {
        if id == 0 {
            return Err(Refusal::LeaseNotFound);
        }
        if ttl > MAX_LEASE_TTL_S {
            return Err(Refusal::LeaseTtlTooLarge);
        }
        if self.leases.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let ttl = ttl.max(MIN_LEASE_TTL_S);
        self.leases.insert(id, (ttl, self.time_ms + ttl as u64 * 1000));
        Ok(Response::LeaseGrant { id, ttl })
    }

    fn renew(&mut self, id: LeaseId) -> i64 {
        let time_ms = self.time_ms;
        self.leases.get_mut(&id).map_or(0, |(ttl, expiry)| {
            *expiry = time_ms + *ttl as u64 * 1000;
            *ttl
        })
    }

    fn revoke(&mut self, id: LeaseId) {
        self.leases.remove(&id);
        let next = self.versions.last().map_or(1, |kv| kv.mod_revision) + 1;
        for key in self.lease_keys(id) {
            self.bury(key, next);
        }
    }
}

/// Two puts of a key, or a put of a key that is also deleted.
fn writes_twice(branch: &[Op]) -> bool {
    let puts: Vec<&PutRequest> =
        branch.iter().filter_map(|op| if let Op::Put(put) = op { Some(put) } else { None }).collect();
    let twice = |n: usize| puts[n + 1..].iter().any(|other| other.key == puts[n].key);
    let deleted = |put: &&PutRequest| {
        branch.iter().any(|op| matches!(op, Op::DeleteRange(delete) if in_range(&delete.range, &put.key)))
    };
    (0..puts.len()).any(twice) || puts.iter().any(deleted)
}
