//! The frame of every reconciler: woken by a watch and by a timer, each round starts from the store alone.

use std::time::Duration;

use futures_util::StreamExt;
use meta_client::{KvError, WatchRequest};
use meta_types::KeyRange;
use process_kit::Shutdown;

use crate::front::Front;
use crate::limits::RECONCILE_EVERY;
use crate::metrics::Reconciler as Label;

/// A reconciler: idempotent, without input, never hanging.
pub trait Reconciler: Send + 'static {
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// The keys that wake it.
    fn wakes(&self) -> Vec<KeyRange>;

    /// Looks at the store and does what is due; answers how many transactions took place.
    fn round(&mut self) -> impl Future<Output = Result<usize, crate::api_error::ApiError>> + Send;
}

/// Pause after a failed round or a broken watch.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs a reconciler until the end.
pub async fn run<R: Reconciler>(front: Front, mut reconciler: R, shutdown: Shutdown) {
    let token = shutdown.token();
    let label = Label { name: R::NAME };
    let mut wakes = Wakes::new(front.clone(), reconciler.wakes());
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = wakes.next() => {}
        }
        let started = tokio::time::Instant::now();
        match reconciler.round().await {
            Ok(done) => {
                front.metrics.reconciled.get_or_create(&label).inc_by(done as u64);
            }
            Err(error) => {
                front.metrics.reconcile_failures.get_or_create(&label).inc();
                tracing::warn!(reconciler = R::NAME, %error, "round failed; it is repeated");
                tokio::time::sleep(PAUSE).await;
            }
        }
        // Rounds over many records take long; they leave most of the time to requests.
        tokio::time::sleep((started.elapsed() * 2).min(RECONCILE_EVERY)).await;
    }
}

/// Tells when something changed in some ranges, or enough time went by.
struct Wakes {
    front: Front,
    ranges: Vec<KeyRange>,
    signal: Option<tokio::sync::mpsc::Receiver<()>>,
}

impl Wakes {
    fn new(front: Front, ranges: Vec<KeyRange>) -> Self {
        Self { front, ranges, signal: None }
    }

    async fn next(&mut self) {
        let Some(signal) = &mut self.signal else {
            // The watch is made before the round that follows, so that nothing in between is missed.
            self.signal = self.watch().await.ok();
            return;
        };
        match tokio::time::timeout(RECONCILE_EVERY, signal.recv()).await {
            Ok(Some(())) | Err(_) => {}
            Ok(None) => {
                self.signal = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn watch(&self) -> Result<tokio::sync::mpsc::Receiver<()>, KvError> {
        // One slot: a wake that nobody has taken yet stands for all later ones.
        let (wake, woken) = tokio::sync::mpsc::channel(1);
        for range in &self.ranges {
            let request = WatchRequest { range: range.clone(), ..WatchRequest::default() };
            let mut watcher = self.front.kv.watch(request).await?;
            let wake = wake.clone();
            tokio::spawn(async move {
                loop {
                    let batch = tokio::select! {
                        () = wake.closed() => return,
                        batch = watcher.batches.next() => batch,
                    };
                    match batch {
                        Some(Ok(batch)) if batch.events.is_empty() => {}
                        Some(Ok(_)) => {
                            let _ = wake.try_send(());
                        }
                        Some(Err(_)) | None => return,
                    }
                }
            });
        }
        Ok(woken)
    }
}
