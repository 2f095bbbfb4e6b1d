//! The hub: who watches what, and where each watch stands. Everything here happens under one short lock.

use std::collections::HashMap;
use std::sync::Arc;

use meta_types::{Event, Refusal, Revision, RevisionEvents};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::index::{GroupId, Index};
use super::outbox::{Delivery, Matched, Out, Outbox, Place, WatchSpec};

/// Names a watch across all streams.
pub(crate) type WatchKey = u64;
/// Names a stream.
pub(crate) type StreamKey = u64;

/// Where missed events are read again: the store's history.
pub trait History: Send + Sync + 'static {
    /// The store's revision.
    fn revision(&self) -> Revision;
    /// At most `max` whole revisions from `from` on; refused if `from` is below the compact revision.
    fn history(&self, from: Revision, max: usize) -> Result<Vec<RevisionEvents>, Refusal>;
}

/// How many streams and watches there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Open streams.
    pub streams: usize,
    /// Watches on them.
    pub watches: usize,
    /// Watches that are being brought back from history.
    pub lagging: usize,
}

#[derive(Debug)]
struct Watch {
    stream: StreamKey,
    spec: Arc<WatchSpec>,
    /// Next revision it has not been offered: earlier ones are delivered or were not asked for.
    next: Revision,
    synced: bool,
    /// Nothing was delivered since the last progress notice.
    quiet: bool,
}

#[derive(Debug)]
struct StreamEntry {
    outbox: Outbox,
    wake: Arc<Notify>,
    watches: Vec<WatchKey>,
    /// Fell behind and not yet taken over by the stream's control task.
    fallen: Vec<WatchKey>,
}

#[derive(Debug, Default)]
struct State {
    /// Every event up to it was offered to every synced watch.
    head: Revision,
    index: Index,
    watches: HashMap<WatchKey, Watch>,
    streams: HashMap<StreamKey, StreamEntry>,
    last_key: u64,
    delivered: u64,
    ended_compacted: u64,
}

/// Shared by the dispatcher and every stream.
#[derive(Debug)]
pub struct Hub {
    state: Mutex<State>,
    head: watch::Sender<Revision>,
}

impl Hub {
    /// A hub that has offered everything up to `head`.
    pub fn new(head: Revision) -> Self {
        Self { state: Mutex::new(State { head, ..State::default() }), head: watch::Sender::new(head) }
    }

    /// Everything up to this revision was offered to the watches.
    pub fn head(&self) -> Revision {
        self.state.lock().head
    }

    /// Numbers for the metrics.
    pub fn counts(&self) -> Counts {
        let state = self.state.lock();
        let lagging = state.watches.values().filter(|watch| !watch.synced).count();
        Counts { streams: state.streams.len(), watches: state.watches.len(), lagging }
    }

    /// Events handed to streams, and watches ended because their history is gone, since the start.
    pub fn totals(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.delivered, state.ended_compacted)
    }

    /// Waits until everything up to `revision` was offered.
    pub(crate) async fn reached(&self, revision: Revision) {
        // The sender lives as long as `self`.
        let _ = self.head.subscribe().wait_for(|head| *head >= revision).await;
    }

    pub(crate) fn open(&self, outbox: Outbox, wake: Arc<Notify>) -> StreamKey {
        let mut state = self.state.lock();
        let key = state.new_key();
        state.streams.insert(key, StreamEntry { outbox, wake, watches: Vec::new(), fallen: Vec::new() });
        key
    }

    pub(crate) fn close(&self, stream: StreamKey) {
        let mut state = self.state.lock();
        let Some(entry) = state.streams.remove(&stream) else { return };
        for key in entry.watches {
            state.forget(key);
        }
    }

    /// Adds a watch and says so in the place given. `start` 0 is from now on.
    pub(crate) fn create(
        &self,
        stream: StreamKey,
        spec: WatchSpec,
        start: Revision,
        place: Place<'_>,
    ) -> WatchKey {
        let mut state = self.state.lock();
        place.put(Out::Created { id: spec.id, revision: state.head });
        let key = state.new_key();
        let next = if start == 0 { state.head + 1 } else { start };
        let synced = next > state.head;
        let spec = Arc::new(spec);
        if synced {
            state.index.insert(&spec.range, key);
        }
        state.watches.insert(key, Watch { stream, spec, next, synced, quiet: true });
        if let Some(entry) = state.streams.get_mut(&stream) {
            entry.watches.push(key);
            if !synced {
                entry.fallen.push(key);
                entry.wake.notify_one();
            }
        }
        key
    }

    /// Ends a watch; nothing of it follows what is put in the place.
    pub(crate) fn cancel(&self, key: WatchKey, compact_revision: Option<Revision>, place: Place<'_>) {
        let mut state = self.state.lock();
        let head = state.head;
        let Some(watch) = state.remove(key) else { return };
        // As etcd does: the answer to a compacted watch carries no revision.
        let revision = if compact_revision.is_some() { 0 } else { head };
        place.put(Out::Canceled {
            id: watch.spec.id,
            revision,
            compact_revision: compact_revision.unwrap_or_default(),
        });
        state.ended_compacted += u64::from(compact_revision.is_some());
    }

    /// Says how far all watches of the stream are. Not answered if one lags or there is none, as etcd 3.7.
    pub(crate) fn progress(&self, stream: StreamKey, place: Place<'_>) {
        let state = self.state.lock();
        let Some(entry) = state.streams.get(&stream) else { return };
        let synced = |key| state.watches.get(key).is_some_and(|watch: &Watch| watch.synced);
        if !entry.watches.is_empty() && entry.watches.iter().all(synced) {
            place.put(Out::Progress { id: -1, revision: state.head });
        }
    }

    /// Tells each quiet watch of the stream that asked for it how far it is.
    pub(crate) fn notify_progress(&self, stream: StreamKey) {
        let state = &mut *self.state.lock();
        let Some(entry) = state.streams.get(&stream) else { return };
        for key in &entry.watches {
            let Some(watch) = state.watches.get_mut(key) else { continue };
            if watch.quiet && watch.synced && watch.spec.progress_notify {
                entry.outbox.try_put(Out::Progress { id: watch.spec.id, revision: state.head });
            }
            watch.quiet = true;
        }
    }

    /// The watches of the stream that fell behind since last asked, with the revision each goes on from.
    pub(crate) fn take_fallen(&self, stream: StreamKey) -> Vec<(WatchKey, Revision, Arc<WatchSpec>)> {
        let state = &mut *self.state.lock();
        let Some(entry) = state.streams.get_mut(&stream) else { return Vec::new() };
        let fallen = std::mem::take(&mut entry.fallen);
        let found = |key| state.watches.get(&key).map(|watch| (key, watch.next, watch.spec.clone()));
        fallen.into_iter().filter_map(found).collect()
    }

    /// The watch was brought up to `next`. True if that is all there is (or the watch is gone): the
    /// dispatcher has it again.
    pub(crate) fn rejoin(&self, key: WatchKey, next: Revision) -> bool {
        let state = &mut *self.state.lock();
        let Some(watch) = state.watches.get_mut(&key) else { return true };
        watch.next = next;
        if next <= state.head {
            return false;
        }
        watch.synced = true;
        state.index.insert(&watch.spec.range, key);
        true
    }

    /// Counts events that a control task delivered from history.
    pub(crate) fn count_delivered(&self, events: usize) {
        self.state.lock().delivered += events as u64;
    }

    /// Offers revisions to the synced watches. They follow the head without a gap.
    pub(crate) fn offer(&self, revisions: &[RevisionEvents]) {
        let Some(last) = revisions.last().map(|r| r.revision) else { return };
        let mut state = self.state.lock();
        let matched = state.matches(revisions);
        for (group, events) in matched {
            let events = Arc::new(events);
            for key in state.index.group(group).to_vec() {
                state.offer_one(key, &events, last);
            }
        }
        state.head = last;
        drop(state);
        self.head.send_replace(last);
    }

    /// Positive control: goes on from `revision`, and nobody hears of what was before.
    pub(crate) fn skip_to(&self, revision: Revision) {
        self.state.lock().head = revision;
        self.head.send_replace(revision);
    }

    /// Revisions after the head and below `compact_revision` are lost: watches that wanted them end.
    pub(crate) fn lost(&self, compact_revision: Revision) {
        let mut state = self.state.lock();
        let after_head = state.head + 1;
        let wanted = |(key, watch): (&WatchKey, &mut Watch)| {
            if watch.synced {
                watch.next = watch.next.max(after_head);
            }
            (watch.synced && watch.next < compact_revision).then_some(*key)
        };
        let ending: Vec<_> = state.watches.iter_mut().filter_map(wanted).collect();
        for key in ending {
            // Its control task ends it when it finds the history gone: there may be no room in the queue now.
            state.fall_behind(key);
        }
        state.head = state.head.max(compact_revision - 1);
        let head = state.head;
        drop(state);
        self.head.send_replace(head);
    }
}

impl State {
    fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    /// Forgets a watch whose stream is gone.
    fn forget(&mut self, key: WatchKey) -> Option<Watch> {
        let watch = self.watches.remove(&key)?;
        if watch.synced {
            self.index.remove(&watch.spec.range, key);
        }
        Some(watch)
    }

    fn remove(&mut self, key: WatchKey) -> Option<Watch> {
        let watch = self.forget(key)?;
        if let Some(entry) = self.streams.get_mut(&watch.stream) {
            entry.watches.retain(|other| *other != key);
        }
        Some(watch)
    }

    fn matches(&self, revisions: &[RevisionEvents]) -> HashMap<GroupId, Matched> {
        let mut matched: HashMap<GroupId, Matched> = HashMap::new();
        for event in revisions.iter().flat_map(|r| r.events.iter()) {
            self.index.matching(&event.kv.key, |group| matched.entry(group).or_default().push(event));
        }
        matched
    }

    fn offer_one(&mut self, key: WatchKey, events: &Arc<Matched>, revision: Revision) {
        let Some(watch) = self.watches.get_mut(&key) else { return };
        let from = watch.next;
        let wanted = |event: &&Event| event.kv.mod_revision >= from && watch.spec.wants(event);
        let all = from <= events.first() && !watch.spec.no_put && !watch.spec.no_delete;
        let count = if all { events.events.len() } else { events.events.iter().filter(wanted).count() };
        if count == 0 {
            return;
        }
        let delivery = Delivery { spec: watch.spec.clone(), from, revision, events: events.clone() };
        let Some(entry) = self.streams.get(&watch.stream) else { return };
        if entry.outbox.try_put(Out::Events(delivery)) {
            watch.next = revision + 1;
            watch.quiet = false;
            self.delivered += count as u64;
        } else {
            // Everything before this round was offered: it goes on from the first event of the round it
            // wants.
            let first = events.events.iter().find(wanted).map_or(from, |event| event.kv.mod_revision);
            watch.next = first;
            self.fall_behind(key);
        }
    }

    fn fall_behind(&mut self, key: WatchKey) {
        let Some(watch) = self.watches.get_mut(&key) else { return };
        watch.synced = false;
        self.index.remove(&watch.spec.range, key);
        if let Some(entry) = self.streams.get_mut(&watch.stream) {
            entry.fallen.push(key);
            entry.wake.notify_one();
        }
    }
}
