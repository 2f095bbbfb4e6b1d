//! What a group's keys hold, and what each action makes of it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use meta_types::{
    Compare, DeleteRangeReply, DeleteRangeRequest, KeyRange, KeyValue, Op, OpReply, PutReply, PutRequest,
    RangeReply, RangeRequest, Revision, Txn, TxnReply,
};

use super::actions::{Action, Does};
use crate::checkers::model::holds;

/// The live keys, and a sum of their hashes that moves along.
#[derive(Debug, Clone, Default)]
pub struct State {
    keys: BTreeMap<Bytes, Arc<KeyValue>>,
    sum: u64,
}

/// Equal seeds are searched alike: the hasher has no random keys.
fn hash(kv: &KeyValue) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&kv.key, &kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease).hash(&mut hasher);
    hasher.finish()
}

impl State {
    /// Equal for equal states, and different for others but by the rarest chance.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    fn insert(&mut self, kv: KeyValue) {
        self.remove(&kv.key.clone());
        self.sum = self.sum.wrapping_add(hash(&kv));
        self.keys.insert(kv.key.clone(), Arc::new(kv));
    }

    fn remove(&mut self, key: &Bytes) {
        if let Some(old) = self.keys.remove(key) {
            self.sum = self.sum.wrapping_sub(hash(&old));
        }
    }

    /// True if an action only looks, and this is what it saw.
    pub fn shows(&self, action: &Action) -> bool {
        match &action.does {
            Does::Saw(key, seen) => self.keys.get(key) == seen.as_ref(),
            Does::Delete { key, was_there: Some(false) } => !self.keys.contains_key(key),
            Does::Delete { .. } | Does::Put { .. } | Does::DropLease { .. } | Does::Txn { .. } => false,
        }
    }

    /// The state after an action; `None` if the action cannot have happened here.
    pub fn after(&self, action: &Action) -> Option<Self> {
        match &action.does {
            Does::Saw(..) => self.shows(action).then(|| self.clone()),
            Does::Put { request, revision, saw } => {
                let before = self.keys.get(&request.key);
                if saw.as_ref().is_some_and(|saw| saw.as_ref() != before) {
                    return None;
                }
                let mut after = self.clone();
                after.put(request, *revision)?;
                Some(after)
            }
            Does::Delete { key, was_there } => {
                let is_there = self.keys.contains_key(key);
                if was_there.is_some_and(|was_there| was_there != is_there) {
                    return None;
                }
                let mut after = self.clone();
                after.remove(key);
                Some(after)
            }
            Does::DropLease { key, lease } => {
                let mut after = self.clone();
                if after.keys.get(key).is_some_and(|kv| kv.lease == *lease) {
                    after.remove(key);
                }
                Some(after)
            }
            Does::Txn { txn, revision, saw } => {
                let mut after = self.clone();
                let reply = after.run(txn, *revision)?;
                saw.as_ref().is_none_or(|saw| is_same(saw, &reply, txn)).then_some(after)
            }
        }
    }

    fn put(&mut self, request: &PutRequest, revision: Revision) -> Option<PutReply> {
        let before = self.keys.get(&request.key).cloned();
        if before.is_none() && (request.ignore_value || request.ignore_lease) {
            return None;
        }
        let old = before.as_deref();
        let kv = KeyValue {
            key: request.key.clone(),
            value: old.filter(|_| request.ignore_value).map_or(&request.value, |old| &old.value).clone(),
            create_revision: old.map_or(revision, |old| old.create_revision),
            mod_revision: revision,
            version: old.map_or(0, |old| old.version) + 1,
            lease: old.filter(|_| request.ignore_lease).map_or(request.lease, |old| old.lease),
        };
        self.insert(kv);
        Some(PutReply { prev_kv: before.filter(|_| request.prev_kv) })
    }

    fn within<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<KeyValue>> + 'a {
        self.keys.values().filter(|kv| range.contains(&kv.key))
    }

    fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeReply {
        let gone: Vec<Arc<KeyValue>> = self.within(&request.range).cloned().collect();
        gone.iter().for_each(|kv| self.remove(&kv.key));
        DeleteRangeReply {
            deleted: gone.len() as i64,
            prev_kvs: if request.prev_kv { gone } else { Vec::new() },
        }
    }

    /// Every key that a transaction looks at is in the group, so its answer can be told.
    fn run(&mut self, txn: &Txn, revision: Revision) -> Option<TxnReply> {
        let passes = |compare: &Compare| {
            let mut kvs = self.within(&compare.range).peekable();
            if kvs.peek().is_none() { holds(None, compare) } else { kvs.all(|kv| holds(Some(kv), compare)) }
        };
        let succeeded = txn.compare.iter().all(passes);
        let branch = if succeeded { &txn.success } else { &txn.failure };
        let mut replies = Vec::new();
        for op in branch {
            replies.push(match op {
                Op::Range(request) => OpReply::Range(self.range(request)),
                Op::Put(request) => OpReply::Put(self.put(request, revision)?),
                Op::DeleteRange(request) => OpReply::DeleteRange(self.delete(request)),
            });
        }
        Some(TxnReply { succeeded, replies })
    }

    /// All of a range, as a plain request asks for it.
    fn range(&self, request: &RangeRequest) -> RangeReply {
        let kvs: Vec<Arc<KeyValue>> = self.within(&request.range).cloned().collect();
        RangeReply { count: kvs.len() as i64, more: false, kvs }
    }
}

/// True if the answers are equal, those of ranges with options aside.
fn is_same(saw: &TxnReply, reply: &TxnReply, txn: &Txn) -> bool {
    let branch = if reply.succeeded { &txn.success } else { &txn.failure };
    let is_plain = |op: &Op| match op {
        Op::Range(request) => {
            *request == RangeRequest { range: request.range.clone(), ..RangeRequest::default() }
        }
        Op::Put(_) | Op::DeleteRange(_) => true,
    };
    let mut pairs = saw.replies.iter().zip(&reply.replies).zip(branch);
    saw.succeeded == reply.succeeded
        && saw.replies.len() == reply.replies.len()
        && pairs.all(|((saw, reply), op)| !is_plain(op) || saw == reply)
}
