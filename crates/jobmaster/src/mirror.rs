//! A copy of the records a node looks at, kept up to date by one watch. It is behind the store by a moment: what is
//! decided on it is guarded by transactions, what must not be missed is read from the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use meta_client::{Kv, KvError, Snapshot, WatchBatch, WatchRequest};
use meta_types::{EventKind, KeyRange, KeyValue, Revision};
use process_kit::{Readiness, Shutdown};
use records::keys::{CopyKey, PinKey, UnitKey};
use records::{Scope, View};
use tokio::sync::watch;

use crate::limits::STORE_RETRY;

/// What is watched: one range, so that one watch sees everything in one order. Others' keys that lie in between are
/// passed over.
fn watched() -> KeyRange {
    KeyRange::between("/icp/", "/node0")
}

/// What is kept: never the manifests, which are large and read when they are needed.
fn kept() -> Scope {
    Scope::jobs().and_all::<UnitKey>().and_all::<CopyKey>().and_all::<PinKey>()
}

struct Mirror {
    covers: Vec<KeyRange>,
    kvs: BTreeMap<Bytes, Arc<KeyValue>>,
    revision: Revision,
}

/// Keeps `views` up to date until the end. The first view is at revision 0 and covers nothing.
pub async fn run(kv: Arc<dyn Kv>, views: watch::Sender<View>, readiness: Readiness, shutdown: Shutdown) {
    let end = shutdown.token();
    while !end.is_cancelled() {
        let outcome = tokio::select! {
            () = end.cancelled() => return,
            outcome = follow(&*kv, &views, &readiness) => outcome,
        };
        if let Err(error) = outcome {
            readiness.waiting("store", error.to_string());
            tracing::warn!(%error, "the store cannot be followed; trying again");
        }
        tokio::time::sleep(STORE_RETRY).await;
    }
}

async fn follow(kv: &dyn Kv, views: &watch::Sender<View>, readiness: &Readiness) -> Result<(), KvError> {
    let read = View::load(kv, kept()).await?;
    let snapshot = read.snapshot();
    let kvs = snapshot.iter().map(|kv| (kv.key.clone(), kv.clone())).collect();
    let mut mirror = Mirror { covers: snapshot.covers().to_vec(), kvs, revision: read.revision() };
    let start_revision = mirror.revision + 1;
    let mut watcher = kv.watch(WatchRequest { range: watched(), start_revision, prev_kv: false }).await?;
    readiness.ready("store");
    mirror.publish(views);
    while let Some(batch) = watcher.batches.next().await {
        mirror.apply(batch?);
        // What is there already belongs to the same look: a burst makes one view.
        while let Some(Some(batch)) = watcher.batches.next().now_or_never() {
            mirror.apply(batch?);
        }
        mirror.publish(views);
    }
    Ok(())
}

impl Mirror {
    fn apply(&mut self, batch: WatchBatch) {
        for event in batch.events {
            if !self.covers.iter().any(|range| range.contains(&event.kv.key)) {
                continue;
            }
            match event.kind {
                EventKind::Put => self.kvs.insert(event.kv.key.clone(), event.kv),
                EventKind::Delete => self.kvs.remove(&event.kv.key),
            };
        }
        self.revision = self.revision.max(batch.revision);
    }

    fn publish(&self, views: &watch::Sender<View>) {
        let snapshot = Snapshot::new(self.revision, self.covers.clone(), self.kvs.values().cloned());
        views.send_replace(View::from(snapshot));
    }
}
