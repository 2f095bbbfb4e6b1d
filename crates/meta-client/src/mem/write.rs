//! Writes: one transaction is one revision, checked whole before anything changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use meta_types::limits::MAX_TXN_OPS;
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, Event, EventKind, KeyValue, Op, OpReply, PutReply, PutRequest,
    Refusal, Revision, Txn, TxnReply,
};

use super::state::State;

impl State {
    pub fn txn(&mut self, txn: &Txn) -> Result<TxnReply, Refusal> {
        check_txn(txn)?;
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let branch = if succeeded { &txn.success } else { &txn.failure };
        branch.iter().try_for_each(|op| self.check(op))?;
        let at = self.revision + 1;
        let mut events = Vec::new();
        let mut replies = Vec::new();
        for op in branch {
            replies.push(match op {
                Op::Range(request) => OpReply::Range(self.answer(request)),
                Op::Put(request) => OpReply::Put(self.put(request, at, &mut events)),
                Op::DeleteRange(request) => OpReply::DeleteRange(self.delete(request, at, &mut events)),
            });
        }
        self.commit(events);
        Ok(TxnReply { succeeded, replies })
    }

    fn check(&self, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Range(request) => self.check_readable(request.revision),
            Op::Put(put) => {
                if put.lease != 0 && !self.leases.contains_key(&put.lease) {
                    return Err(Refusal::LeaseNotFound);
                }
                let must_exist = put.ignore_value || put.ignore_lease;
                if must_exist && !self.keys.contains_key(&put.key) {
                    return Err(Refusal::KeyNotFound);
                }
                Ok(())
            }
            Op::DeleteRange(_) => Ok(()),
        }
    }

    fn put(&mut self, request: &PutRequest, at: Revision, events: &mut Vec<Event>) -> PutReply {
        let prev = self.keys.get(&request.key).cloned();
        let old = prev.as_deref();
        let kv = Arc::new(KeyValue {
            key: request.key.clone(),
            value: match old {
                Some(old) if request.ignore_value => old.value.clone(),
                _ => request.value.clone(),
            },
            create_revision: old.map_or(at, |old| old.create_revision),
            mod_revision: at,
            version: old.map_or(1, |old| old.version + 1),
            lease: match old {
                Some(old) if request.ignore_lease => old.lease,
                _ => request.lease,
            },
        });
        self.keys.insert(request.key.clone(), Arc::clone(&kv));
        events.push(Event { kind: EventKind::Put, kv, prev: prev.clone() });
        PutReply { prev_kv: prev.filter(|_| request.prev_kv) }
    }

    fn delete(
        &mut self,
        request: &DeleteRangeRequest,
        at: Revision,
        events: &mut Vec<Event>,
    ) -> DeleteRangeReply {
        let keys: Vec<Bytes> = self.keys.keys().filter(|key| request.range.contains(key)).cloned().collect();
        let gone: Vec<Event> = keys.iter().filter_map(|key| self.remove(key, at)).collect();
        let prev_kvs =
            gone.iter().filter_map(|event| event.prev.clone()).filter(|_| request.prev_kv).collect();
        let deleted = gone.len() as i64;
        events.extend(gone);
        DeleteRangeReply { deleted, prev_kvs }
    }

    /// Removes a key and answers the event of it.
    pub fn remove(&mut self, key: &Bytes, at: Revision) -> Option<Event> {
        let prev = self.keys.remove(key)?;
        let kv = Arc::new(KeyValue { key: key.clone(), mod_revision: at, ..KeyValue::default() });
        Some(Event { kind: EventKind::Delete, kv, prev: Some(prev) })
    }
}

fn check_txn(txn: &Txn) -> Result<(), Refusal> {
    let most = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    if most > MAX_TXN_OPS {
        return Err(Refusal::TooManyOps);
    }
    if txn.compare.iter().any(|compare| compare.range.key.is_empty()) {
        return Err(Refusal::EmptyKey);
    }
    [&txn.success, &txn.failure].into_iter().try_for_each(|branch| check_branch(branch))
}

fn check_branch(branch: &[Op]) -> Result<(), Refusal> {
    let mut put = BTreeSet::new();
    for op in branch {
        match op {
            Op::Range(request) if request.range.key.is_empty() => return Err(Refusal::EmptyKey),
            Op::DeleteRange(request) if request.range.key.is_empty() => return Err(Refusal::EmptyKey),
            Op::Put(request) if request.key.is_empty() => return Err(Refusal::EmptyKey),
            Op::Put(request) if request.ignore_value && !request.value.is_empty() => {
                return Err(Refusal::ValueProvided);
            }
            Op::Put(request) if request.ignore_lease && request.lease != 0 => {
                return Err(Refusal::LeaseProvided);
            }
            Op::Put(request) if !put.insert(request.key.clone()) => return Err(Refusal::DuplicateKey),
            Op::Range(_) | Op::Put(_) | Op::DeleteRange(_) => {}
        }
    }
    let clash = branch.iter().any(|op| match op {
        Op::DeleteRange(delete) => put.iter().any(|key| delete.range.contains(key)),
        Op::Range(_) | Op::Put(_) => false,
    });
    if clash { Err(Refusal::DuplicateKey) } else { Ok(()) }
}
