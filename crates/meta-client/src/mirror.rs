//! A copy of some ranges, kept up to date by one watch: what reconcilers are woken by and decide on. It is behind the
//! store by a moment, so what is decided on it is guarded by transactions; [`Mirror::at_least`] waits until it has
//! reached a revision.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use meta_types::{KeyRange, Revision};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::kv::{Kv, KvError, WatchRequest};
use crate::snapshot::Snapshot;

/// Pause after the store could not be followed.
const RETRY: Duration = Duration::from_millis(200);
/// A watch that was silent for so long is not trusted: everything is read again.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// A mirrored part of the store. Clones share it; it stops when the last one is dropped.
#[derive(Clone)]
pub struct Mirror {
    seen: watch::Receiver<Snapshot>,
    shared: Arc<Shared>,
}

struct Shared {
    reload: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mirror {
    /// Starts to mirror the ranges; the first snapshot, at revision 0, covers nothing.
    pub fn start(kv: Arc<dyn Kv>, ranges: Vec<KeyRange>) -> Self {
        let (snapshots, seen) = watch::channel(Snapshot::default());
        let reload = Arc::new(Notify::new());
        let follower = Follower { kv, ranges, snapshots, reload: Arc::clone(&reload) };
        let task = tokio::spawn(follower.run());
        Self { seen, shared: Arc::new(Shared { reload, task }) }
    }

    /// What it shows now.
    pub fn snapshot(&self) -> Snapshot {
        self.seen.borrow().clone()
    }

    /// A receiver that is woken by each change.
    pub fn changes(&self) -> watch::Receiver<Snapshot> {
        self.seen.clone()
    }

    /// Waits until it shows `revision` or later; `None` after `limit`. A store whose last changes lie outside of the
    /// ranges sends no events for them: then everything is read again.
    pub async fn at_least(&self, revision: Revision, limit: Duration) -> Option<Snapshot> {
        let mut seen = self.seen.clone();
        let reached = |snapshot: &Snapshot| snapshot.revision() >= revision;
        let soon = (limit / 8).min(Duration::from_millis(50));
        if let Ok(Ok(snapshot)) = timeout(soon, seen.wait_for(reached)).await {
            return Some(snapshot.clone());
        }
        self.shared.reload.notify_one();
        let snapshot = timeout(limit - soon, seen.wait_for(reached)).await.ok()?.ok()?;
        Some(snapshot.clone())
    }
}

struct Follower {
    kv: Arc<dyn Kv>,
    ranges: Vec<KeyRange>,
    snapshots: watch::Sender<Snapshot>,
    reload: Arc<Notify>,
}

impl Follower {
    async fn run(self) {
        loop {
            if let Err(error) = self.follow().await {
                tracing::debug!(%error, "the store cannot be followed, trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Reads everything, then follows; comes back when everything should be read again.
    async fn follow(&self) -> Result<(), KvError> {
        let first = Snapshot::load(&*self.kv, self.ranges.clone()).await?;
        let start_revision = first.revision() + 1;
        let request = WatchRequest { range: hull(&self.ranges), start_revision, prev_kv: false };
        let mut watcher = self.kv.watch(request).await?;
        self.snapshots.send_replace(first);
        loop {
            let batch = tokio::select! {
                () = self.reload.notified() => return Ok(()),
                batch = timeout(MAX_SILENCE, watcher.batches.next()) => batch,
            };
            let Ok(Some(batch)) = batch else { return Ok(()) };
            let batch = batch?;
            self.snapshots.send_modify(|snapshot| snapshot.advance(batch.revision, &batch.events));
        }
    }
}

/// One range around all of them: one watch sees their changes in one order.
fn hull(ranges: &[KeyRange]) -> KeyRange {
    let first = ranges.iter().map(|range| range.key.clone()).min().unwrap_or_default();
    let open = ranges.iter().any(KeyRange::is_from_key);
    let last = ranges.iter().map(|range| match range.is_single() {
        true => [&range.key[..], b"\0"].concat().into(),
        false => range.end.clone(),
    });
    let end = if open { bytes::Bytes::from_static(b"\0") } else { last.max().unwrap_or_default() };
    KeyRange::between(first, end)
}
