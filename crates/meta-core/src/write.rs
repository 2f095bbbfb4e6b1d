//! One revision being written: every change of one command goes through here and gets the same revision.

use bytes::Bytes;
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, Event, KeyValue, LeaseId, PutReply, PutRequest, Refusal, Revision,
    RevisionEvents,
};

use crate::keyspace::Keyspace;
use crate::lease::Leases;

/// A revision in the making. All checks come before the first change: there is no way back.
pub(crate) struct Write<'a> {
    pub(crate) keys: &'a mut Keyspace,
    leases: &'a mut Leases,
    revision: Revision,
    events: Vec<Event>,
}

impl<'a> Write<'a> {
    pub(crate) fn begin(keys: &'a mut Keyspace, leases: &'a mut Leases) -> Self {
        let revision = keys.now.revision + 1;
        Self { keys, leases, revision, events: Vec::new() }
    }

    fn position(&self) -> (Revision, u32) {
        (self.revision, self.events.len() as u32)
    }

    /// Puts a key whose put was checked.
    pub(crate) fn put(&mut self, request: &PutRequest) -> PutReply {
        let position = self.position();
        let event = self.keys.put(&request.key, position, |prev| {
            let lease = if request.ignore_lease { lease_of(prev) } else { request.lease };
            let value = match prev {
                Some(prev) if request.ignore_value => prev.value.clone(),
                _ => request.value.clone(),
            };
            (value, lease)
        });
        self.leases.attach(&request.key, lease_of(event.prev.as_deref()), event.kv.lease);
        let prev_kv = event.prev.clone().filter(|_| request.prev_kv);
        self.events.push(event);
        PutReply { prev_kv }
    }

    /// Deletes the live keys of a range, in the order of keys.
    pub(crate) fn delete_range(&mut self, request: &DeleteRangeRequest) -> DeleteRangeReply {
        let keys: Vec<Bytes> = if request.range.is_single() {
            vec![request.range.key.clone()]
        } else {
            self.keys.now.live(&request.range).map(|kv| kv.key.clone()).collect()
        };
        let from = self.events.len();
        self.delete_keys(&keys);
        let deleted = &self.events[from..];
        let prev_kvs = if request.prev_kv {
            deleted.iter().filter_map(|event| event.prev.clone()).collect()
        } else {
            Vec::new()
        };
        DeleteRangeReply { deleted: deleted.len() as i64, prev_kvs }
    }

    /// Deletes those of the keys that are live.
    pub(crate) fn delete_keys(&mut self, keys: &[Bytes]) {
        for key in keys {
            let position = self.position();
            let Some(event) = self.keys.delete(key, position) else { continue };
            self.leases.attach(key, lease_of(event.prev.as_deref()), 0);
            self.events.push(event);
        }
    }

    /// Takes the revision if anything changed.
    pub(crate) fn finish(self) -> Option<RevisionEvents> {
        if self.events.is_empty() {
            return None;
        }
        let events = RevisionEvents { revision: self.revision, events: self.events.into() };
        self.keys.commit(events.clone());
        Some(events)
    }
}

fn lease_of(kv: Option<&KeyValue>) -> LeaseId {
    kv.map_or(0, |kv| kv.lease)
}

/// The checks of a put that need the state, without those of its lease.
pub(crate) fn check_ignored(keys: &Keyspace, request: &PutRequest) -> Result<(), Refusal> {
    let needs_key = request.ignore_value || request.ignore_lease;
    if needs_key && keys.now.current(&request.key).is_none() {
        return Err(Refusal::KeyNotFound);
    }
    Ok(())
}

/// The check of a put's lease.
pub(crate) fn check_lease(leases: &Leases, request: &PutRequest) -> Result<(), Refusal> {
    if request.lease != 0 && !leases.exists(request.lease) {
        return Err(Refusal::LeaseNotFound);
    }
    Ok(())
}
