//! The frame of every reconciler: woken by a change of the mirror and by a timer, each round starts from a view of
//! the records alone. What the last rounds did is told by `GET /reconcilers`.

use std::time::Duration;

use process_kit::{Did, Shutdown};
use records::View;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::front::Front;
use crate::limits::RECONCILE_EVERY;
use crate::metrics::Reconciler as Label;

/// A reconciler: idempotent, without input but the records, never hanging.
pub trait Reconciler: Send + 'static {
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// Does what is due and notes each transaction that took place, by kind. The view may be old: writes are guarded.
    fn round(&mut self, view: &View, did: &mut Did) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// When something is due though no record changes, counted from the end of a round.
    fn next_due(&self) -> Duration {
        RECONCILE_EVERY
    }
}

/// Pause after a failed round.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs a reconciler until the end.
pub async fn run<R: Reconciler>(
    front: Front,
    mut reconciler: R,
    mut views: watch::Receiver<View>,
    shutdown: Shutdown,
) {
    let token = shutdown.token();
    let label = Label { name: R::NAME };
    let rounds = front.rounds.of(R::NAME);
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            changed = tokio::time::timeout(reconciler.next_due().min(RECONCILE_EVERY), views.changed()) => {
                if matches!(changed, Ok(Err(_))) {
                    return;
                }
            }
        }
        let view = views.borrow_and_update().clone();
        if view.revision() == 0 {
            continue;
        }
        let started = Instant::now();
        let mut did = Did::default();
        let outcome = reconciler.round(&view, &mut did).await;
        front.metrics.reconciled.get_or_create(&label).inc_by(did.total());
        let error = outcome.err().map(|error| error.to_string());
        rounds.ended(started.elapsed(), &did, error.as_deref());
        if let Some(error) = error {
            front.metrics.reconcile_failures.get_or_create(&label).inc();
            tracing::warn!(reconciler = R::NAME, error, "round failed; it is repeated");
            tokio::time::sleep(PAUSE).await;
        }
        // Rounds over many records take long; they leave most of the time to requests.
        tokio::time::sleep((started.elapsed() * 3).min(RECONCILE_EVERY)).await;
    }
}
