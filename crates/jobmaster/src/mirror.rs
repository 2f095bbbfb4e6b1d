//! A copy of the records a node looks at, kept up to date by one watch. It is behind the store by a moment: what is
//! decided on it is guarded by transactions, what must not be missed is read from the store.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use meta_client::{Kv, KvError, Snapshot, WatchRequest};
use meta_types::KeyRange;
use process_kit::{Readiness, Shutdown};
use records::keys::{CopyKey, PinKey, UnitKey};
use records::{Scope, View};
use tokio::sync::watch;

use crate::limits::{COALESCE, STORE_RETRY};

/// What is watched: one range, so that one watch sees everything in one order. Others' keys that lie in between are
/// passed over.
fn watched() -> KeyRange {
    KeyRange::between("/icp/", "/node0")
}

/// What is kept: never the manifests, which are large and read when they are needed.
fn kept() -> Scope {
    Scope::jobs().and_all::<UnitKey>().and_all::<CopyKey>().and_all::<PinKey>()
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
    let mut mirror = Snapshot::load(kv, kept().ranges().to_vec()).await?;
    let start_revision = mirror.revision() + 1;
    let mut watcher = kv.watch(WatchRequest { range: watched(), start_revision, prev_kv: false }).await?;
    readiness.ready("store");
    views.send_replace(View::from(mirror.clone()));
    while let Some(batch) = watcher.batches.next().await {
        let batch = batch?;
        mirror.advance(batch.revision, &batch.events);
        // A burst makes one view: every part of the node is woken by each.
        tokio::time::sleep(COALESCE).await;
        while let Some(Some(batch)) = watcher.batches.next().now_or_never() {
            let batch = batch?;
            mirror.advance(batch.revision, &batch.events);
        }
        views.send_replace(View::from(mirror.clone()));
    }
    Ok(())
}
