//! openraft's log storage over the write-ahead log.
//!
//! ```text
//!  RaftCore: append, vote, truncate, purge     flusher, a thread of its own
//!  into the log's memory, in order   ------>   sync (one fdatasync for all that is queued), then the callbacks
//!            |                                 of what it covered, in order
//!            `--> readable at once: replication and apply never wait for the disk
//! ```
//!
//! The order of calls is the order on disk, votes and entries alike; openraft's safety rests on it. A vote returns
//! when it is durable. The committed position is queued without a sync of its own: it becomes durable with the next
//! one, and an older one only means that the tail is applied again once a leader confirms it. The queue is bounded:
//! beyond [`QUEUE_BYTES`] the caller waits for the disk. A failed sync is final: openraft is told and stops.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::Stream;
use meta_store::{DirectoryLock, LogEntry, Position, Wal, WalError};
use meta_types::controls::{Control, active};
use meta_types::seams::Clock;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::payload::{decode_entry, encode_entry};
use crate::types::{Entry, LogId, TypeConfig, Vote, log_id, term_of};
use crate::workers::{Priority, Workers};

/// Bytes that may wait for the disk: what an acknowledgement queued behind them waits at most.
pub(crate) const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of entries read for one append to a peer, or for one step of applying.
const READ_BYTES: usize = 1024 * 1024;
/// Entries of one step of applying.
const APPLY_ENTRIES: u64 = 256;

/// Whom to tell once everything queued before is durable.
enum Waiter {
    Append(IOFlushed<TypeConfig>),
    Vote(oneshot::Sender<Result<(), WalError>>),
    /// The last one.
    Stop,
}

/// What the flusher measured.
#[derive(Debug, Default)]
pub(crate) struct FlushTimes {
    /// Syncs so far.
    pub(crate) count: AtomicU64,
    /// Microseconds of all of them.
    pub(crate) total_us: AtomicU64,
    /// Microseconds of the longest.
    pub(crate) max_us: AtomicU64,
    /// When the running sync began, in microseconds of the clock; 0 if none runs.
    pub(crate) since_us: AtomicU64,
}

/// The log, shared by openraft's tasks.
#[derive(Clone)]
pub(crate) struct LogStore {
    wal: Arc<Wal>,
    waiters: mpsc::UnboundedSender<Waiter>,
    flushed: Arc<Notify>,
    grown: Arc<Notify>,
}

/// Stops the flusher. It keeps the directory locked until its last sync, even if nobody waits for that.
pub(crate) struct Flusher {
    waiters: mpsc::UnboundedSender<Waiter>,
    ended: oneshot::Receiver<()>,
}

/// What the log and its flusher stand on.
pub(crate) struct LogParts {
    pub(crate) wal: Arc<Wal>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) workers: Arc<dyn Workers>,
    pub(crate) times: Arc<FlushTimes>,
    /// The directory's lock, if there is a directory.
    pub(crate) _lock: Option<Arc<DirectoryLock>>,
}

impl LogStore {
    /// Takes over an open log.
    pub(crate) fn new(parts: LogParts) -> io::Result<(Self, Flusher)> {
        let (waiters, queue) = mpsc::unbounded_channel();
        let flushed = Arc::new(Notify::new());
        let store = Self {
            wal: parts.wal.clone(),
            waiters: waiters.clone(),
            flushed: flushed.clone(),
            grown: Arc::default(),
        };
        let workers = parts.workers.clone();
        let (end, ended) = oneshot::channel();
        let flush = FlushLoop { parts, queue, flushed, _end: end };
        workers.dedicated("log-flusher", Priority::Normal, Box::pin(flush.run()))?;
        Ok((store, Flusher { waiters, ended }))
    }

    /// Wakes whoever watches the log's size.
    pub(crate) fn grown(&self) -> Arc<Notify> {
        self.grown.clone()
    }

    async fn room(&self) {
        loop {
            let flushed = self.flushed.notified();
            if self.wal.queued_bytes() < QUEUE_BYTES {
                return;
            }
            // A flusher that stopped never makes room, but then the next append fails.
            let _ = tokio::time::timeout(Duration::from_millis(100), flushed).await;
        }
    }

    fn wait_for_sync(&self, waiter: Waiter) -> io::Result<()> {
        self.waiters.send(waiter).map_err(|_| io::Error::other("the log's flusher has stopped"))
    }

    /// The entries of `range` that are there. A leader that steps down truncates and a checkpoint purges while
    /// others read: what is gone meanwhile is left out. For openraft an error would be the end of the disk.
    fn read(&self, range: &impl RangeBounds<u64>, max_bytes: usize) -> io::Result<Vec<Entry>> {
        loop {
            let held = self.held(range);
            if held.is_empty() {
                return Ok(Vec::new());
            }
            let entries = match self.wal.read_limited(held, max_bytes) {
                Err(WalError::NoSuchEntry { .. }) => continue,
                read => read.map_err(io::Error::other)?,
            };
            let decoded = entries.into_iter().map(|LogEntry { position, payload }| {
                decode_entry(position.term, position.index, payload).map_err(io::Error::other)
            });
            return decoded.collect();
        }
    }

    /// The part of `range` that the log holds: openraft asks with open ends.
    fn held(&self, range: &impl RangeBounds<u64>) -> std::ops::Range<u64> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let Some(first) = self.wal.first_index() else { return 0..0 };
        let last = self.wal.last().map_or(0, |last| last.index);
        let start = start.max(first);
        start..end.min(last + 1).max(start)
    }
}

fn position(id: LogId) -> Position {
    Position { term: term_of(&id), index: id.index }
}

fn id(position: Position) -> LogId {
    log_id(position.term, position.index)
}

/// A vote as openraft has it.
fn vote_out(vote: meta_store::Vote) -> Vote {
    if vote.committed {
        Vote::new_committed(vote.term, vote.node_id)
    } else {
        Vote::new(vote.term, vote.node_id)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        self.read(&range, usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        let mut entries = self.read(&(start..end), READ_BYTES)?;
        if entries.first().is_some_and(|first| first.log_id.index != start) {
            // Purged below: openraft asked for what follows `start` without a gap.
            entries.clear();
        }
        Ok(entries)
    }

    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<Entry, io::Error>> + Send
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        // In steps: a replica that catches up must not load its whole log at once.
        let store = self.clone();
        let mut rest = self.held(&range);
        let mut ready = Vec::new().into_iter();
        futures_util::stream::poll_fn(move |_| {
            loop {
                if let Some(entry) = ready.next() {
                    return std::task::Poll::Ready(Some(Ok(entry)));
                }
                if rest.is_empty() {
                    return std::task::Poll::Ready(None);
                }
                let step = rest.start..rest.end.min(rest.start + APPLY_ENTRIES);
                match store.read(&step, READ_BYTES) {
                    Ok(entries) if entries.is_empty() => rest = 0..0,
                    Ok(entries) => {
                        rest.start += entries.len() as u64;
                        ready = entries.into_iter();
                    }
                    Err(error) => {
                        rest = 0..0;
                        return std::task::Poll::Ready(Some(Err(error)));
                    }
                }
            }
        })
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.wal.vote().map(vote_out))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        Ok(LogState { last_purged_log_id: self.wal.purged().map(id), last_log_id: self.wal.last().map(id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = meta_store::Vote {
            term: vote.leader_id.term,
            node_id: vote.leader_id.voted_for,
            committed: vote.committed,
        };
        self.wal.save_vote(vote).map_err(io::Error::other)?;
        // Positive control: it becomes durable with whatever comes next.
        if active(Control::VoteNotDurable) {
            return Ok(());
        }
        let (tx, durable) = oneshot::channel();
        self.wait_for_sync(Waiter::Vote(tx))?;
        durable.await.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.wal.save_committed(committed.map(position)).map_err(io::Error::other)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.wal.committed().map(id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut encoded = Vec::new();
        for entry in entries {
            let payload = encode_entry(&entry.payload).map_err(io::Error::other)?;
            encoded.push(LogEntry { position: position(entry.log_id), payload });
        }
        self.room().await;
        self.wal.append(encoded).map_err(io::Error::other)?;
        self.wait_for_sync(Waiter::Append(callback))?;
        self.grown.notify_one();
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.wal.truncate_after(last.map(|last| last.index)).map_err(io::Error::other)
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.wal.purge(position(upto)).map_err(io::Error::other)?;
        // Segments go with a sync; nobody waits for it.
        self.wait_for_sync(Waiter::Append(IOFlushed::noop()))
    }
}

struct FlushLoop {
    parts: LogParts,
    queue: mpsc::UnboundedReceiver<Waiter>,
    flushed: Arc<Notify>,
    /// Gone with the loop.
    _end: oneshot::Sender<()>,
}

impl FlushLoop {
    async fn run(mut self) {
        let mut stopping = false;
        while !stopping && let Some(first) = self.queue.recv().await {
            let mut waiters = vec![first];
            while let Ok(next) = self.queue.try_recv() {
                waiters.push(next);
            }
            let result = self.sync().await;
            for waiter in waiters {
                match waiter {
                    Waiter::Append(callback) => {
                        callback.io_completed(result.clone().map_err(io::Error::other))
                    }
                    Waiter::Vote(tx) => drop(tx.send(result.clone())),
                    Waiter::Stop => stopping = true,
                }
            }
            self.flushed.notify_waiters();
        }
        self.flushed.notify_waiters();
    }

    async fn sync(&self) -> Result<(), WalError> {
        let LogParts { wal, clock, workers, times, .. } = &self.parts;
        let start = clock.now();
        times.since_us.store((start.as_micros() as u64).max(1), Ordering::Relaxed);
        if let Some(disk_time) = workers.disk_time() {
            disk_time.await;
        }
        let result = wal.sync();
        let took = clock.now().saturating_sub(start).as_micros() as u64;
        times.since_us.store(0, Ordering::Relaxed);
        times.count.fetch_add(1, Ordering::Relaxed);
        times.total_us.fetch_add(took, Ordering::Relaxed);
        times.max_us.fetch_max(took, Ordering::Relaxed);
        if let Err(error) = &result {
            tracing::error!(%error, "the log cannot be written; this replica stops");
        }
        result.map(drop)
    }
}

impl Flusher {
    /// Makes durable what is queued, and ends it.
    pub(crate) async fn stop(mut self) {
        let _ = self.waiters.send(Waiter::Stop);
        let _ = (&mut self.ended).await;
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // Without a receiver it has ended already.
        let _ = self.waiters.send(Waiter::Stop);
    }
}
