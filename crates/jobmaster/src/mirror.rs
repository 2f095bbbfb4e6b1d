//! A copy of the records a node looks at, kept up to date by one watch. What must not be missed is read from the
//! store.

use std::ops::ControlFlow;
use std::sync::Arc;

use meta_client::{Kv, Mirrored, Snapshot, follow};
use meta_types::KeyRange;
use process_kit::{Readiness, Shutdown};
use records::keys::{CopyKey, PinKey, UnitKey};
use records::{Scope, View};
use tokio::sync::watch;

use crate::limits::{COALESCE, STORE_RETRY};

/// What is kept: never the manifests, which are large and read when they are needed.
fn of_a_node() -> Mirrored {
    let kept = Scope::jobs().and_all::<UnitKey>().and_all::<CopyKey>().and_all::<PinKey>();
    Mirrored {
        kept: kept.ranges().to_vec(),
        watched: KeyRange::between("/icp/", "/node0"),
        coalesce: COALESCE,
    }
}

/// Keeps `views` up to date until the end. The first view is at revision 0 and covers nothing.
pub async fn run(kv: Arc<dyn Kv>, views: watch::Sender<View>, readiness: Readiness, shutdown: Shutdown) {
    let end = shutdown.token();
    let mirrored = of_a_node();
    let show = |snapshot: &Snapshot| {
        readiness.ready("store");
        views.send_replace(View::from(snapshot.clone()));
        ControlFlow::Continue(())
    };
    while !end.is_cancelled() {
        let outcome = tokio::select! {
            () = end.cancelled() => return,
            outcome = follow(&*kv, &mirrored, show) => outcome,
        };
        if let Err(error) = outcome {
            readiness.waiting("store", error.to_string());
            tracing::warn!(%error, "the store cannot be followed; trying again");
        }
        tokio::time::sleep(STORE_RETRY).await;
    }
}
