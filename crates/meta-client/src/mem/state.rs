//! What the store holds: current keys, all events ever, leases, watchers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use meta_types::limits::{MAX_LEASE_TTL_S, MIN_LEASE_TTL_S};
use meta_types::{Event, KeyValue, LeaseId, Refusal, Revision};
use tokio::sync::mpsc;

use crate::kv::{LeaseGranted, WatchBatch, WatchRequest};

pub(super) struct Lease {
    pub ttl: Duration,
    pub ends: Duration,
}

struct MemWatcher {
    request: WatchRequest,
    sender: mpsc::UnboundedSender<WatchBatch>,
}

pub(super) struct State {
    pub revision: Revision,
    pub compact_revision: Revision,
    pub keys: BTreeMap<Bytes, Arc<KeyValue>>,
    pub history: Vec<(Revision, Vec<Event>)>,
    pub leases: BTreeMap<LeaseId, Lease>,
    pub now: Duration,
    last_lease: LeaseId,
    watchers: Vec<MemWatcher>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            revision: 1,
            compact_revision: 0,
            keys: BTreeMap::new(),
            history: Vec::new(),
            leases: BTreeMap::new(),
            now: Duration::ZERO,
            last_lease: 0,
            watchers: Vec::new(),
        }
    }
}

impl State {
    /// Ends a write: its events become the next revision, if there are any.
    pub fn commit(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        self.revision += 1;
        for watcher in &self.watchers {
            tell(watcher, self.revision, &events);
        }
        self.watchers.retain(|watcher| !watcher.sender.is_closed());
        self.history.push((self.revision, events));
    }

    /// Starts a watch; what it missed is delivered at once.
    pub fn watch(&mut self, request: WatchRequest) -> Result<mpsc::UnboundedReceiver<WatchBatch>, Refusal> {
        let from = if request.start_revision > 0 { request.start_revision } else { self.revision + 1 };
        if from < self.compact_revision {
            return Err(Refusal::Compacted { compact_revision: self.compact_revision });
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let watcher = MemWatcher { request: WatchRequest { start_revision: from, ..request }, sender };
        for (revision, events) in &self.history {
            tell(&watcher, *revision, events);
        }
        self.watchers.push(watcher);
        Ok(receiver)
    }

    pub fn compact(&mut self, revision: Revision) -> Result<(), Refusal> {
        if revision <= self.compact_revision {
            return Err(Refusal::Compacted { compact_revision: self.compact_revision });
        }
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        self.compact_revision = revision;
        Ok(())
    }

    pub fn grant(&mut self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, Refusal> {
        if ttl.as_secs() > MAX_LEASE_TTL_S as u64 {
            return Err(Refusal::LeaseTtlTooLarge);
        }
        let id = if id == 0 { self.free_lease_id() } else { id };
        if self.leases.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let ttl = Duration::from_secs(ttl.as_secs().max(MIN_LEASE_TTL_S as u64));
        self.leases.insert(id, Lease { ttl, ends: self.now + ttl });
        Ok(LeaseGranted { id, ttl })
    }

    /// Never the id of a lease that was: what still names it must not come to life again.
    fn free_lease_id(&mut self) -> LeaseId {
        self.last_lease += 1;
        while self.leases.contains_key(&self.last_lease) {
            self.last_lease += 1;
        }
        self.last_lease
    }

    pub fn keep_alive(&mut self, id: LeaseId) -> Option<Duration> {
        let now = self.now;
        self.leases.get_mut(&id).map(|lease| {
            lease.ends = now + lease.ttl;
            lease.ttl
        })
    }

    pub fn revoke(&mut self, id: LeaseId) -> Result<(), Refusal> {
        self.leases.remove(&id).ok_or(Refusal::LeaseNotFound)?;
        let keys: Vec<Bytes> =
            self.keys.values().filter(|kv| kv.lease == id).map(|kv| kv.key.clone()).collect();
        let at = self.revision + 1;
        let events = keys.into_iter().filter_map(|key| self.remove(&key, at)).collect();
        self.commit(events);
        Ok(())
    }

    pub fn time_to_live(&self, id: LeaseId) -> Option<Duration> {
        self.leases.get(&id).map(|lease| lease.ends.saturating_sub(self.now))
    }

    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        let due: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.ends <= self.now).map(|(id, _)| *id).collect();
        for id in due {
            let gone = self.revoke(id);
            debug_assert!(gone.is_ok(), "it was there a line ago");
        }
    }
}

fn tell(watcher: &MemWatcher, revision: Revision, events: &[Event]) {
    if revision < watcher.request.start_revision {
        return;
    }
    let wanted = events.iter().filter(|event| watcher.request.range.contains(&event.kv.key));
    let events: Vec<Event> = wanted
        .map(|event| Event { prev: event.prev.clone().filter(|_| watcher.request.prev_kv), ..event.clone() })
        .collect();
    if !events.is_empty() {
        // A watcher that nobody listens to any more is swept at the next commit.
        let _ = watcher.sender.send(WatchBatch { revision, events });
    }
}
