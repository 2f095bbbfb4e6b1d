//! Waiting for the store to say something: woken by a watch, looked at again by a timer, never beyond a deadline.

use std::time::Duration;

use futures_util::StreamExt;
use meta_client::WatchRequest;
use records::{Refusal, Scope, View};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::front::Front;

/// Without a word from the watch it is looked again after so long.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The same, while nothing can be watched.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What `look` finds in the scope, as soon as it finds something; `None` at the deadline, and when this dispatcher stops.
pub async fn wait_until<T>(
    front: &Front,
    scope: Scope,
    deadline: Instant,
    look: impl Fn(&View) -> Result<Option<T>, Refusal>,
) -> Result<Option<T>, ApiError> {
    loop {
        let view = front.fresh(scope.clone()).await?;
        if let Some(found) = look(&view)? {
            return Ok(Some(found));
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(None);
        }
        let pause = LOOK_EVERY.min(deadline - now);
        tokio::select! {
            () = front.ending.cancelled() => return Ok(None),
            _ = tokio::time::timeout(pause, change_after(front, &scope, view.revision())) => {}
        }
    }
}

/// Returns at the first change in the scope behind `revision`; a little later, if nothing can be watched.
async fn change_after(front: &Front, scope: &Scope, revision: i64) {
    let mut watches = Vec::new();
    for range in scope.ranges() {
        let request =
            WatchRequest { range: range.clone(), start_revision: revision + 1, ..WatchRequest::default() };
        let Ok(watcher) = front.kv.watch(request).await else { return tokio::time::sleep(LOOK_AGAIN).await };
        watches.push(watcher.batches.filter(|batch| {
            let is_change = batch.as_ref().is_ok_and(|batch| !batch.events.is_empty());
            std::future::ready(is_change)
        }));
    }
    let mut changes = futures_util::stream::select_all(watches);
    if changes.next().await.is_none() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
