//! Writing one revision of the naive model, and what is refused before anything is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use meta_types::limits::MAX_LEASE_TTL_S;
use meta_types::{
    Command, DeleteRangeReply, DeleteRangeRequest, Event, EventKind, KeyRange, KeyValue, Op, OpReply,
    PutReply, PutRequest, Refusal, Response, RevisionEvents, Txn, TxnReply,
};

use super::Effect;
use super::keyspace::{Keyspace, NEWEST};
use super::leases::Leases;

/// One revision in the making.
pub(super) struct Write<'a> {
    keys: &'a mut Keyspace,
    events: Vec<Event>,
}

impl<'a> Write<'a> {
    pub(super) fn new(keys: &'a mut Keyspace) -> Self {
        Self { keys, events: Vec::new() }
    }

    fn add(&mut self, kind: EventKind, kv: KeyValue, prev: Option<Arc<KeyValue>>) {
        let kv = Arc::new(kv);
        self.keys.versions.entry(kv.key.clone()).or_default().push(kv.clone());
        self.events.push(Event { kind, kv, prev });
    }

    pub(super) fn put(&mut self, request: &PutRequest) -> PutReply {
        let revision = self.keys.revision + 1;
        let prev = self.keys.at(&request.key, NEWEST).cloned();
        let mut kv = KeyValue {
            key: request.key.clone(),
            value: request.value.clone(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: request.lease,
        };
        if let Some(prev) = &prev {
            kv.create_revision = prev.create_revision;
            kv.version = prev.version + 1;
            if request.ignore_value {
                kv.value = prev.value.clone();
            }
            if request.ignore_lease {
                kv.lease = prev.lease;
            }
        }
        self.add(EventKind::Put, kv, prev.clone());
        PutReply { prev_kv: prev.filter(|_| request.prev_kv) }
    }

    /// Deletes a key if it is there.
    pub(super) fn delete(&mut self, key: &Bytes) {
        if let Some(prev) = self.keys.at(key, NEWEST).cloned() {
            let mod_revision = self.keys.revision + 1;
            let kv = KeyValue { key: key.clone(), mod_revision, ..KeyValue::default() };
            self.add(EventKind::Delete, kv, Some(prev));
        }
    }

    pub(super) fn delete_range(&mut self, request: &DeleteRangeRequest) -> DeleteRangeReply {
        let kvs = self.keys.live(&request.range, NEWEST);
        kvs.iter().for_each(|kv| self.delete(&kv.key));
        let deleted = kvs.len() as i64;
        DeleteRangeReply { deleted, prev_kvs: if request.prev_kv { kvs } else { Vec::new() } }
    }

    /// The revision is taken if anything was written.
    pub(super) fn finish(self) -> Vec<RevisionEvents> {
        if self.events.is_empty() {
            return Vec::new();
        }
        self.keys.revision += 1;
        vec![RevisionEvents { revision: self.keys.revision, events: self.events.into() }]
    }
}

/// All or nothing: what could be refused is looked at before anything is written.
pub(super) fn run_txn(keys: &mut Keyspace, leases: &Leases, txn: &Txn) -> Effect {
    let succeeded = txn.compare.iter().all(|compare| keys.holds(compare, NEWEST));
    let branch = if succeeded { &txn.success } else { &txn.failure };
    for op in branch {
        match op {
            Op::Range(request) => keys.check_range(request)?,
            Op::Put(request) => keys.check_put(request, leases)?,
            Op::DeleteRange(_) => {}
        }
    }
    let mut write = keys.begin();
    let mut replies = Vec::new();
    for op in branch {
        replies.push(match op {
            Op::Range(request) => OpReply::Range(write.keys.range(request, NEWEST)),
            Op::Put(request) => OpReply::Put(write.put(request)),
            Op::DeleteRange(request) => OpReply::DeleteRange(write.delete_range(request)),
        });
    }
    Ok((Response::Txn(TxnReply { succeeded, replies }), write.finish()))
}

/// What is wrong with a command whatever the state is.
pub(super) fn check_command(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::Put(put) => check_put(put),
        Command::DeleteRange(delete) => check_key(&delete.range),
        Command::Txn(txn) => {
            txn.compare.iter().try_for_each(|compare| check_key(&compare.range))?;
            check_branch(&txn.success)?;
            check_branch(&txn.failure)
        }
        Command::LeaseGrant { id, .. } if *id == 0 => Err(Refusal::LeaseNotFound),
        Command::LeaseGrant { ttl, .. } if *ttl > MAX_LEASE_TTL_S => Err(Refusal::LeaseTtlTooLarge),
        _ => Ok(()),
    }
}

fn check_key(range: &KeyRange) -> Result<(), Refusal> {
    if range.key.is_empty() {
        return Err(Refusal::EmptyKey);
    }
    Ok(())
}

fn check_put(put: &PutRequest) -> Result<(), Refusal> {
    match put {
        PutRequest { key, .. } if key.is_empty() => Err(Refusal::EmptyKey),
        PutRequest { ignore_value: true, value, .. } if !value.is_empty() => Err(Refusal::ValueProvided),
        PutRequest { ignore_lease: true, lease, .. } if *lease != 0 => Err(Refusal::LeaseProvided),
        _ => Ok(()),
    }
}

/// No key is put twice or put and deleted.
fn check_branch(branch: &[Op]) -> Result<(), Refusal> {
    let mut puts = BTreeSet::new();
    for op in branch {
        match op {
            Op::Range(request) => check_key(&request.range)?,
            Op::DeleteRange(request) => check_key(&request.range)?,
            Op::Put(request) => {
                check_put(request)?;
                if !puts.insert(&request.key) {
                    return Err(Refusal::DuplicateKey);
                }
            }
        }
    }
    let deletes = |op: &Op| match op {
        Op::DeleteRange(request) => puts.iter().any(|key| request.range.contains(key)),
        Op::Range(_) | Op::Put(_) => false,
    };
    if branch.iter().any(deletes) { Err(Refusal::DuplicateKey) } else { Ok(()) }
}
