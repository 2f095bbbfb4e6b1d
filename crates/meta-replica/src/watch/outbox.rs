//! The one queue of a watch stream: bounded by entries and bytes, turned into messages as the client takes
//! them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::Stream;
use meta_api::convert::event_to_wire;
use meta_api::pb::etcdserverpb::WatchResponse;
use meta_types::limits::MAX_GRPC_MESSAGE_BYTES;
use meta_types::{Event, EventKind, KeyRange, Revision};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{Notify, mpsc};
use tonic::Status;

use super::stream::Headers;

/// Entries of a stream's queue. A client that lets more gather is served from history.
pub(crate) const QUEUE_ENTRIES: usize = 1024;
/// Bytes of keys and values in a stream's queue, as a bound on what a client that does not read keeps alive.
pub(crate) const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// A response of several revisions is cut at a revision once it is larger than this: clients take 4 MiB by
/// default.
const RESPONSE_BYTES: usize = 3 * 1024 * 1024;

/// What a client asked to watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchSpec {
    pub(crate) id: i64,
    pub(crate) range: KeyRange,
    pub(crate) prev_kv: bool,
    pub(crate) fragment: bool,
    pub(crate) progress_notify: bool,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
}

impl WatchSpec {
    /// True if an event of the watched range is to be delivered.
    pub(crate) fn wants(&self, event: &Event) -> bool {
        match event.kind {
            EventKind::Put => !self.no_put,
            EventKind::Delete => !self.no_delete,
        }
    }
}

/// One entry of the queue.
#[derive(Debug)]
pub(crate) enum Out {
    /// The watch exists.
    Created { id: i64, revision: Revision },
    /// The watch was refused.
    Refused { revision: Revision, reason: &'static str },
    /// The watch ended; with a compact revision its history is gone.
    Canceled { id: i64, revision: Revision, compact_revision: Revision },
    /// Everything up to `revision` was delivered, to watch `id` or (-1) to all of the stream.
    Progress { id: i64, revision: Revision },
    /// Events of whole revisions.
    Events(Delivery),
}

/// Events for one watch, shared with other watches of the same range.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) spec: Arc<WatchSpec>,
    /// Events below it are not this watch's.
    pub(crate) from: Revision,
    /// Everything up to it is delivered with this entry.
    pub(crate) revision: Revision,
    pub(crate) events: Arc<Matched>,
}

/// Events of one range, in order.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    pub(crate) events: Vec<Event>,
    pub(crate) bytes: usize,
}

impl Matched {
    /// Revision of the first event; 0 if there is none.
    pub(crate) fn first(&self) -> Revision {
        self.events.first().map_or(0, |event| event.kv.mod_revision)
    }

    pub(crate) fn push(&mut self, event: &Event) {
        let prev = event.prev.as_ref().map_or(0, |kv| kv.value.len());
        self.bytes += event.kv.key.len() + event.kv.value.len() + prev;
        self.events.push(event.clone());
    }
}

/// The producers' side; clones feed the same queue.
#[derive(Debug, Clone)]
pub struct Outbox {
    entries: mpsc::Sender<Out>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicUsize,
    drained: Notify,
    ending: Mutex<Option<Status>>,
}

/// A place in the queue.
pub(crate) struct Place<'a> {
    permit: mpsc::Permit<'a, Out>,
    shared: &'a Shared,
}

impl Place<'_> {
    pub(crate) fn put(self, out: Out) {
        self.shared.bytes.fetch_add(weight(&out), Ordering::Relaxed);
        self.permit.send(out);
    }
}

fn weight(out: &Out) -> usize {
    match out {
        Out::Events(delivery) => delivery.events.bytes,
        Out::Created { .. } | Out::Refused { .. } | Out::Canceled { .. } | Out::Progress { .. } => 0,
    }
}

impl Outbox {
    /// A queue and its reading end.
    pub fn new(headers: Headers) -> (Self, Responses) {
        let (entries, rest) = mpsc::channel(QUEUE_ENTRIES);
        let shared = Arc::new(Shared::default());
        let responses =
            Responses { rest, shared: shared.clone(), headers, ready: VecDeque::new(), done: false };
        (Self { entries, shared }, responses)
    }

    /// Puts an entry in if there is room for it. Never waits.
    pub(crate) fn try_put(&self, out: Out) -> bool {
        let (held, more) = (self.shared.bytes.load(Ordering::Relaxed), weight(&out));
        if held > 0 && held + more > QUEUE_BYTES {
            return false;
        }
        // Counted first: the reader may take the entry before this returns.
        self.shared.bytes.fetch_add(more, Ordering::Relaxed);
        let sent = self.entries.try_send(out).is_ok();
        if !sent {
            self.shared.bytes.fetch_sub(more, Ordering::Relaxed);
        }
        sent
    }

    /// Waits for a place and for fewer bytes than the bound; `None` when the client is gone.
    pub(crate) async fn place(&self) -> Option<Place<'_>> {
        while self.shared.bytes.load(Ordering::Relaxed) >= QUEUE_BYTES {
            tokio::select! {
                () = self.shared.drained.notified() => {}
                () = self.entries.closed() => return None,
            }
        }
        let permit = self.entries.reserve().await.ok()?;
        Some(Place { permit, shared: &self.shared })
    }

    /// Returns when the client is gone.
    pub(crate) async fn closed(&self) {
        self.entries.closed().await;
    }

    /// What the stream ends with once every producer is gone and the queue is empty.
    pub(crate) fn end_with(&self, status: Status) {
        *self.shared.ending.lock() = Some(status);
    }
}

/// The reading end: what the client is sent.
#[derive(Debug)]
pub struct Responses {
    rest: mpsc::Receiver<Out>,
    shared: Arc<Shared>,
    headers: Headers,
    /// Parts of an entry that takes more than one message.
    ready: VecDeque<WatchResponse>,
    done: bool,
}

impl Stream for Responses {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(response) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(response)));
            }
            if this.done {
                return Poll::Ready(None);
            }
            match this.rest.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(out)) => this.take(out),
                Poll::Ready(None) => {
                    this.done = true;
                    return Poll::Ready(this.shared.ending.lock().take().map(Err));
                }
            }
        }
    }
}

impl Responses {
    fn take(&mut self, out: Out) {
        let freed = weight(&out);
        let before = self.shared.bytes.fetch_sub(freed, Ordering::Relaxed);
        if before >= QUEUE_BYTES && before - freed < QUEUE_BYTES {
            self.shared.drained.notify_one();
        }
        let revision = match &out {
            Out::Created { revision, .. }
            | Out::Refused { revision, .. }
            | Out::Canceled { revision, .. }
            | Out::Progress { revision, .. } => *revision,
            Out::Events(delivery) => delivery.revision,
        };
        let mut response =
            WatchResponse { header: Some(self.headers.header(revision)), ..WatchResponse::default() };
        match out {
            Out::Created { id, .. } => {
                response.watch_id = id;
                response.created = true;
            }
            Out::Refused { reason, .. } => {
                response.watch_id = -1;
                response.created = true;
                response.canceled = true;
                response.cancel_reason = reason.to_owned();
            }
            Out::Canceled { id, compact_revision, .. } => {
                response.watch_id = id;
                response.canceled = true;
                response.compact_revision = compact_revision;
            }
            Out::Progress { id, .. } => response.watch_id = id,
            Out::Events(delivery) => return self.take_events(&delivery, response),
        }
        self.ready.push_back(response);
    }

    /// One message, or several: cut at revisions when it grows large, and inside a revision only for a client
    /// that asked for fragments.
    fn take_events(&mut self, delivery: &Delivery, whole: WatchResponse) {
        let spec = &delivery.spec;
        let mut part = WatchResponse { watch_id: spec.id, ..whole };
        let mut bytes = 0;
        let mut last = 0;
        let wanted = delivery.events.events.iter();
        for event in wanted.filter(|e| e.kv.mod_revision >= delivery.from && spec.wants(e)) {
            let wire = event_to_wire(event, spec.prev_kv);
            let size = wire.encoded_len();
            let at = event.kv.mod_revision;
            let full = if spec.fragment {
                bytes + size > MAX_GRPC_MESSAGE_BYTES
            } else {
                at != last && bytes + size > RESPONSE_BYTES
            };
            if full && !part.events.is_empty() {
                let next = WatchResponse { header: part.header, watch_id: spec.id, ..Default::default() };
                part.fragment = spec.fragment;
                if !spec.fragment {
                    part.header = Some(self.headers.header(last));
                }
                self.ready.push_back(std::mem::replace(&mut part, next));
                bytes = 0;
            }
            bytes += size;
            last = at;
            part.events.push(wire);
        }
        if !part.events.is_empty() {
            self.ready.push_back(part);
        }
    }
}
