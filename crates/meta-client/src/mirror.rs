//! A copy of some ranges, kept up to date by one watch: what reconcilers and nodes are woken by and decide on. It is
//! behind the store by a moment, so what is decided on it is guarded by transactions.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use meta_types::KeyRange;
use tokio::time::{Instant, sleep_until, timeout};

use crate::kv::{Kv, KvError, WatchRequest};
use crate::snapshot::Snapshot;

/// A watch that was silent for so long is not trusted: everything is read again.
pub const MAX_SILENCE: Duration = Duration::from_secs(30);

/// What is mirrored.
#[derive(Debug, Clone)]
pub struct Mirrored {
    /// What is kept.
    pub kept: Vec<KeyRange>,
    /// One range around all of it, so that one watch sees the changes in one order; other keys in it are passed over.
    pub watched: KeyRange,
    /// After a state was shown, changes within so long are shown as one. The first after a quiet time is shown at once.
    pub coalesce: Duration,
}

/// Reads what is mirrored, shows it, and follows it: `show` gets each state, in order of revisions, until it breaks.
/// Also returns when the watch ended or was silent for [`MAX_SILENCE`]; the caller then calls again.
///
/// # Errors
/// What the store says when it can neither be read nor watched.
pub async fn follow(
    kv: &dyn Kv,
    mirrored: &Mirrored,
    mut show: impl FnMut(&Snapshot) -> ControlFlow<()> + Send,
) -> Result<(), KvError> {
    let mut mirror = Snapshot::load(kv, mirrored.kept.clone()).await?;
    let start_revision = mirror.revision() + 1;
    let request = WatchRequest { range: mirrored.watched.clone(), start_revision, prev_kv: false };
    let mut watcher = kv.watch(request).await?;
    if show(&mirror).is_break() {
        return Ok(());
    }
    let mut shown_at = Instant::now();
    while let Ok(Some(batch)) = timeout(MAX_SILENCE, watcher.batches.next()).await {
        let batch = batch?;
        mirror.advance(batch.revision, &batch.events);
        // A burst is shown seldom: whoever looks at it is woken each time.
        sleep_until(shown_at + mirrored.coalesce).await;
        while let Some(Some(batch)) = watcher.batches.next().now_or_never() {
            let batch = batch?;
            mirror.advance(batch.revision, &batch.events);
        }
        if show(&mirror).is_break() {
            return Ok(());
        }
        shown_at = Instant::now();
    }
    Ok(())
}
