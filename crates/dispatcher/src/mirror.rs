//! A copy of all records, kept up to date by one watch, for reconcilers. It is behind the store by a moment: what is
//! decided on it is guarded by transactions. Requests never look at it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use meta_client::{Kv, KvError, Snapshot, WatchBatch, WatchRequest};
use meta_types::{EventKind, KeyRange, KeyValue, RangeRequest, Revision};
use process_kit::Shutdown;
use records::View;
use tokio::sync::watch;
use tokio::time::Instant;

/// Pause after the store could not be followed.
const RETRY: Duration = Duration::from_millis(500);
/// A watch that was silent for so long is not trusted: everything is read again.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// Changes within so long make one view.
const COALESCE: Duration = Duration::from_millis(10);

/// From `/icp/` to the end of `/run/`: every kind of record, in one range, so that one watch sees all in one order.
fn mirrored() -> KeyRange {
    KeyRange::between("/icp/", "/run0")
}

struct Mirror {
    kvs: BTreeMap<Bytes, Arc<KeyValue>>,
    revision: Revision,
}

/// Starts the mirror. The first view is at revision 0 and covers nothing.
pub fn start(kv: Arc<dyn Kv>, shutdown: &Shutdown) -> watch::Receiver<View> {
    let (views, seen) = watch::channel(View::default());
    let end = shutdown.token();
    shutdown.spawn("mirror", async move {
        while !end.is_cancelled() {
            let outcome = tokio::select! {
                () = end.cancelled() => return,
                outcome = follow(&*kv, &views) => outcome,
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "the store cannot be followed; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    });
    seen
}

async fn follow(kv: &dyn Kv, views: &watch::Sender<View>) -> Result<(), KvError> {
    let read = kv.range(RangeRequest { range: mirrored(), ..RangeRequest::default() }).await?;
    let kvs = read.value.kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect();
    let mut mirror = Mirror { kvs, revision: read.revision };
    let start_revision = mirror.revision + 1;
    let mut watcher = kv.watch(WatchRequest { range: mirrored(), start_revision, prev_kv: false }).await?;
    mirror.publish(views);
    while let Ok(batch) = tokio::time::timeout(MAX_SILENCE, watcher.batches.next()).await {
        let Some(batch) = batch else { return Ok(()) };
        mirror.apply(batch?);
        tokio::time::sleep(COALESCE).await;
        while let Some(Some(batch)) = watcher.batches.next().now_or_never() {
            mirror.apply(batch?);
        }
        let started = Instant::now();
        mirror.publish(views);
        // A view of many records is dear: most of the time is left to requests.
        tokio::time::sleep(started.elapsed() * 2).await;
    }
    Ok(())
}

impl Mirror {
    fn apply(&mut self, batch: WatchBatch) {
        for event in batch.events {
            match event.kind {
                EventKind::Put => self.kvs.insert(event.kv.key.clone(), event.kv),
                EventKind::Delete => self.kvs.remove(&event.kv.key),
            };
        }
        self.revision = self.revision.max(batch.revision);
    }

    fn publish(&self, views: &watch::Sender<View>) {
        let snapshot = Snapshot::new(self.revision, vec![mirrored()], self.kvs.values().cloned());
        views.send_replace(View::from(snapshot));
    }
}
