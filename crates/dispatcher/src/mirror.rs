//! A copy of all records, kept up to date by one watch, for reconcilers. Requests never look at it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use meta_client::{Kv, Mirrored, follow};
use meta_types::KeyRange;
use process_kit::Shutdown;
use records::View;
use tokio::sync::watch;

/// Pause after the store could not be followed.
const RETRY: Duration = Duration::from_millis(500);
/// Changes within so long make one view.
const COALESCE: Duration = Duration::from_millis(10);

/// From `/icp/` to the end of `/run/`: every kind of record.
fn records() -> Mirrored {
    let all = KeyRange::between("/icp/", "/run0");
    Mirrored { kept: vec![all.clone()], watched: all, coalesce: COALESCE }
}

/// Starts the mirror. The first view is at revision 0 and covers nothing.
pub fn start(kv: Arc<dyn Kv>, shutdown: &Shutdown) -> watch::Receiver<View> {
    let (views, seen) = watch::channel(View::default());
    let end = shutdown.token();
    shutdown.spawn("mirror", async move {
        let mirrored = records();
        let show = |snapshot: &meta_client::Snapshot| {
            views.send_replace(View::from(snapshot.clone()));
            ControlFlow::Continue(())
        };
        while !end.is_cancelled() {
            let outcome = tokio::select! {
                () = end.cancelled() => return,
                outcome = follow(&*kv, &mirrored, show) => outcome,
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "the store cannot be followed; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    });
    seen
}
