//! A watch that outlives its replica. It remembers the next revision it owes; when the stream breaks it goes on from
//! there at another replica, so there is no gap, and drops what it delivered before, so there is no repeat. It ends
//! only when history it owes is compacted away, or when nobody listens.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use meta_api::convert::event_from_wire;
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::watch_client::WatchClient;
use meta_api::pb::etcdserverpb::watch_request::RequestUnion;
use meta_types::Revision;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};

use super::connection::{Connections, MAX_PAUSE, Repeat, error_of};
use crate::kv::{KvError, WatchBatch, WatchRequest, Watcher};

/// Batches that wait for a slow listener; beyond that the stream itself stands still.
const BACKLOG: usize = 64;
/// First pause before a broken watch is opened again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// One stream to one replica.
struct Open {
    at: usize,
    answers: Streaming<pb::WatchResponse>,
    created_at: Revision,
    /// The server ends the watch when we stop sending.
    _requests: mpsc::Sender<pb::WatchRequest>,
}

pub(super) async fn start(connections: Arc<Connections>, request: WatchRequest) -> Result<Watcher, KvError> {
    let first = open_somewhere(&connections, &request).await?;
    let created_at = first.created_at;
    let next = if request.start_revision > 0 { request.start_revision } else { created_at + 1 };
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let follower = Follower { connections, request, next, sender };
    tokio::spawn(follower.run(first));
    Ok(Watcher { created_at, batches: ReceiverStream::new(receiver).boxed() })
}

/// Opens a watch at the first replica that takes it, within one call's time.
async fn open_somewhere(connections: &Connections, request: &WatchRequest) -> Result<Open, KvError> {
    let call = |_, _| open(connections, request);
    match connections.call(Repeat::Always, call).await? {
        Ok(open) => Ok(open),
        Err(compacted) => Err(compacted),
    }
}

/// Opens a watch at the current replica; an inner error is final.
async fn open(connections: &Connections, request: &WatchRequest) -> Result<Result<Open, KvError>, Status> {
    let (at, channel) = connections.current();
    let (requests, outgoing) = mpsc::channel(1);
    let create = pb::WatchCreateRequest {
        key: request.range.key.clone(),
        range_end: request.range.end.clone(),
        start_revision: request.start_revision,
        prev_kv: request.prev_kv,
        ..pb::WatchCreateRequest::default()
    };
    let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    requests.send(create).await.map_err(|_| Status::internal("the watch's own queue is closed"))?;
    let mut outgoing = Request::new(ReceiverStream::new(outgoing));
    // A replica without a leader would stay silent for ever; this asks it to end the watch instead.
    outgoing.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
    let mut answers = client.watch(outgoing).await?.into_inner();
    let answer = answers.message().await?.ok_or_else(|| Status::unavailable("the watch stream ended"))?;
    if answer.canceled {
        return canceled(&answer).map_or_else(
            || Err(Status::unavailable(format!("the watch was canceled: {}", answer.cancel_reason))),
            |error| Ok(Err(error)),
        );
    }
    let created_at = answer.header.as_ref().map_or(0, |header| header.revision);
    Ok(Ok(Open { at, answers, created_at, _requests: requests }))
}

/// The final error in a cancellation, if it is one.
fn canceled(answer: &pb::WatchResponse) -> Option<KvError> {
    (answer.compact_revision > 0).then_some(KvError::Compacted { compact_revision: answer.compact_revision })
}

struct Follower {
    connections: Arc<Connections>,
    request: WatchRequest,
    next: Revision,
    sender: mpsc::Sender<Result<WatchBatch, KvError>>,
}

/// Why one stream is no longer followed.
enum Stopped {
    /// Nobody listens.
    Unheard,
    /// It cannot go on anywhere.
    Final(KvError),
    /// It broke; another replica may go on.
    Broken(String),
}

impl Follower {
    async fn run(mut self, first: Open) {
        let mut open = Some(first);
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(stream) = open.take() {
                let (at, before) = (stream.at, self.next);
                match self.follow(stream).await {
                    Stopped::Unheard => return,
                    Stopped::Final(error) => return drop(self.sender.send(Err(error)).await),
                    Stopped::Broken(why) => {
                        tracing::debug!(next = self.next, why, "watch broke, going on elsewhere");
                        self.connections.leave(at);
                        if self.next > before {
                            pause = FIRST_PAUSE;
                        }
                    }
                }
            }
            tokio::select! {
                () = self.sender.closed() => return,
                () = tokio::time::sleep(self.connections.jitter(pause)) => {}
            }
            pause = (pause * 2).min(MAX_PAUSE);
            let request = WatchRequest { start_revision: self.next, ..self.request.clone() };
            match open_somewhere(&self.connections, &request).await {
                Ok(stream) => open = Some(stream),
                Err(error @ (KvError::Compacted { .. } | KvError::Rejected { .. })) => {
                    return drop(self.sender.send(Err(error)).await);
                }
                Err(KvError::NotSent(_) | KvError::Unknown(_)) => {}
            }
        }
    }

    async fn follow(&mut self, mut open: Open) -> Stopped {
        loop {
            let answer = tokio::select! {
                () = self.sender.closed() => return Stopped::Unheard,
                answer = open.answers.message() => answer,
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return Stopped::Broken("the stream ended".into()),
                Err(status) => match error_of(&status) {
                    error @ KvError::Compacted { .. } => return Stopped::Final(error),
                    error => return Stopped::Broken(error.to_string()),
                },
            };
            if answer.canceled {
                return canceled(&answer).map_or(Stopped::Broken(answer.cancel_reason), Stopped::Final);
            }
            match self.batch(answer) {
                Ok(Some(batch)) => {
                    if self.sender.send(Ok(batch)).await.is_err() {
                        return Stopped::Unheard;
                    }
                }
                Ok(None) => {}
                Err(why) => return Stopped::Broken(why),
            }
        }
    }

    /// What is new in an answer, and with it the next revision owed.
    fn batch(&mut self, answer: pb::WatchResponse) -> Result<Option<WatchBatch>, String> {
        if answer.events.is_empty() {
            if answer.created {
                return Ok(None);
            }
            // Progress: all up to the header's revision was delivered.
            let revision = answer.header.map_or(0, |header| header.revision);
            if revision < self.next {
                return Ok(None);
            }
            self.next = revision + 1;
            return Ok(Some(WatchBatch { revision, events: Vec::new() }));
        }
        let mut events = Vec::with_capacity(answer.events.len());
        for event in answer.events {
            let event = event_from_wire(event).map_err(|e| e.to_string())?;
            if event.kv.mod_revision >= self.next {
                events.push(event);
            }
        }
        let Some(last) = events.last() else { return Ok(None) };
        let revision = last.kv.mod_revision;
        self.next = revision + 1;
        Ok(Some(WatchBatch { revision, events }))
    }
}
