//! From the apply path to the hub: a bounded feed, and the task that reads it in order and closes gaps from
//! history.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use meta_types::controls::{Control, active};
use meta_types::{Refusal, Revision, RevisionEvents};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::hub::{History, Hub};

/// Batches that may wait for the dispatcher; more are read again from history.
const FEED_BATCHES: usize = 1024;
/// Batches taken in one go, so that a busy store makes fewer and larger responses.
const ROUND_BATCHES: usize = 64;
/// Revisions read from history in one step.
pub(crate) const HISTORY_STEP: usize = 256;

/// What the apply path puts in.
#[derive(Debug)]
pub enum FeedItem {
    /// Changes of applied entries.
    Applied(Vec<RevisionEvents>),
    /// The state was replaced: revisions are missing from the feed.
    Jumped,
}

/// The apply path's end. Never waits.
#[derive(Debug)]
pub struct Feed {
    items: mpsc::Sender<FeedItem>,
    /// The newest revision that was ever reported, dropped batches included.
    newest: AtomicI64,
    dropped: AtomicU64,
}

impl Feed {
    /// A feed and its reading end.
    pub fn new() -> (Arc<Self>, mpsc::Receiver<FeedItem>) {
        let (items, rest) = mpsc::channel(FEED_BATCHES);
        (Arc::new(Self { items, newest: AtomicI64::new(0), dropped: AtomicU64::new(0) }), rest)
    }

    /// Reports changes, or a jump, after which the store stands at `revision`.
    pub fn report(&self, revision: Revision, item: FeedItem) {
        // Before the item: a dispatcher that has read the last item sees that there is more.
        self.newest.fetch_max(revision, Ordering::SeqCst);
        if self.items.try_send(item).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Batches that found the feed full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Reads the feed into the hub.
pub struct Dispatcher {
    hub: Arc<Hub>,
    history: Arc<dyn History>,
    feed: Arc<Feed>,
    items: mpsc::Receiver<FeedItem>,
}

impl Dispatcher {
    /// A dispatcher for `hub`, whose head must be the revision the state had before the first report.
    pub fn new(
        hub: Arc<Hub>,
        history: Arc<dyn History>,
        feed: Arc<Feed>,
        items: mpsc::Receiver<FeedItem>,
    ) -> Self {
        Self { hub, history, feed, items }
    }

    /// Runs until the shutdown.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut round = Vec::with_capacity(ROUND_BATCHES);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                taken = self.items.recv_many(&mut round, ROUND_BATCHES) => if taken == 0 { return },
            }
            self.dispatch(round.drain(..));
            // Batches that found the feed full left no trace but their revision.
            if self.items.is_empty() && self.feed.newest.load(Ordering::SeqCst) > self.hub.head() {
                self.fill(Revision::MAX);
            }
        }
    }

    fn dispatch(&self, items: impl Iterator<Item = FeedItem>) {
        let mut run: Vec<RevisionEvents> = Vec::new();
        for item in items {
            match item {
                FeedItem::Applied(revisions) => {
                    for revision in revisions {
                        self.add(&mut run, revision);
                    }
                }
                FeedItem::Jumped => {
                    self.hub.offer(&run);
                    run.clear();
                    // Positive control: the watches go on from the new state, what lies between is nobody's.
                    if active(Control::WatchSkipsAtJump) {
                        self.hub.skip_to(self.history.revision());
                    } else {
                        self.fill(Revision::MAX);
                    }
                }
            }
        }
        self.hub.offer(&run);
    }

    fn add(&self, run: &mut Vec<RevisionEvents>, revision: RevisionEvents) {
        let next = run.last().map_or_else(|| self.hub.head(), |last| last.revision) + 1;
        if revision.revision > next {
            self.hub.offer(run);
            run.clear();
            self.fill(revision.revision);
        }
        // What history already gave is not offered twice.
        let next = run.last().map_or_else(|| self.hub.head(), |last| last.revision) + 1;
        if revision.revision == next {
            run.push(revision);
        }
    }

    /// Offers from history what lies between the head and `before`.
    fn fill(&self, before: Revision) {
        loop {
            let from = self.hub.head() + 1;
            if from >= before {
                return;
            }
            match self.history.history(from, HISTORY_STEP) {
                Ok(revisions) if revisions.is_empty() => return,
                Ok(revisions) => self.hub.offer(&revisions),
                Err(Refusal::Compacted { compact_revision }) if compact_revision > from => {
                    tracing::warn!(
                        from,
                        compact_revision,
                        "watch history compacted away before it was delivered"
                    );
                    self.hub.lost(compact_revision);
                }
                Err(refusal) => {
                    tracing::error!(from, %refusal, "watch history cannot be read");
                    return;
                }
            }
        }
    }
}
