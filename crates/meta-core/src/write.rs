//! One revision being written: every change of one command goes through here and gets the same revision.

use bytes::Bytes;
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, Event, PutReply, PutRequest, Refusal, Revision, RevisionEvents,
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
        let prev = self.keys.now.current(&request.key).cloned();
        let old_lease = prev.as_ref().map_or(0, |prev| prev.lease);
        let lease = if request.ignore_lease { old_lease } else { request.lease };
        let value = match &prev {
            Some(prev) if request.ignore_value => prev.value.clone(),
            _ => request.value.clone(),
        };
        self.leases.attach(&request.key, old_lease, lease);
        let event = self.keys.put(&request.key, value, lease, self.position());
        self.events.push(event);
        PutReply { prev_kv: prev.filter(|_| request.prev_kv) }
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
            let lease = event.prev.as_ref().map_or(0, |prev| prev.lease);
            self.leases.attach(key, lease, 0);
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
