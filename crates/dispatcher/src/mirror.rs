//! A copy of all records, kept up to date by one watch, for reconcilers. It is behind the store by a moment: what is
//! decided on it is guarded by transactions. Requests never look at it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use meta_client::{Kv, KvError, Snapshot, WatchRequest};
use meta_types::KeyRange;
use process_kit::Shutdown;
use records::View;
use tokio::sync::watch;

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
    let mut mirror = Snapshot::load(kv, vec![mirrored()]).await?;
    let start_revision = mirror.revision() + 1;
    let mut watcher = kv.watch(WatchRequest { range: mirrored(), start_revision, prev_kv: false }).await?;
    views.send_replace(View::from(mirror.clone()));
    while let Ok(batch) = tokio::time::timeout(MAX_SILENCE, watcher.batches.next()).await {
        let Some(batch) = batch else { return Ok(()) };
        let batch = batch?;
        mirror.advance(batch.revision, &batch.events);
        tokio::time::sleep(COALESCE).await;
        while let Some(Some(batch)) = watcher.batches.next().now_or_never() {
            let batch = batch?;
            mirror.advance(batch.revision, &batch.events);
        }
        views.send_replace(View::from(mirror.clone()));
    }
    Ok(())
}
