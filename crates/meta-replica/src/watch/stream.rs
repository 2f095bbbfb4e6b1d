//! One watch stream: the control task that creates, cancels and brings back its watches.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::watch_create_request::FilterType;
use meta_api::pb::etcdserverpb::watch_request::RequestUnion;
use meta_api::status::{NO_LEADER, SERVER_STOPPED};
use meta_types::{KeyRange, Refusal, Revision};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::dispatch::HISTORY_STEP;
use super::hub::{History, Hub, StreamKey, WatchKey};
use super::outbox::{Delivery, Matched, Out, Outbox, Place, Responses, WatchSpec};

const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";
const EMPTY_RANGE: &str = "mvcc: watcher range is empty";
const NEGATIVE_START: &str = "etcdserver: mvcc: required revision has been compacted";

/// What every answer's header says besides the revision.
#[derive(Debug, Clone)]
pub struct Headers {
    /// The cluster's id.
    pub cluster_id: u64,
    /// This replica's id.
    pub member_id: u64,
    /// The Raft term, kept up to date by the replica.
    pub term: Arc<AtomicU64>,
}

impl Headers {
    /// The header of an answer at `revision`.
    pub fn header(&self, revision: Revision) -> pb::ResponseHeader {
        pb::ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision,
            raft_term: self.term.load(Ordering::Relaxed),
        }
    }
}

/// What a stream needs of its replica.
#[derive(Clone)]
pub struct StreamEnv {
    /// The hub.
    pub hub: Arc<Hub>,
    /// Where missed events are read.
    pub history: Arc<dyn History>,
    /// Answer headers.
    pub headers: Headers,
    /// True while a leader is known.
    pub has_leader: watch::Receiver<bool>,
    /// How long a stream that requires a leader outlives its loss.
    pub leader_patience: Duration,
    /// How often quiet watches hear of progress.
    pub progress_interval: Duration,
    /// The end of the replica.
    pub shutdown: CancellationToken,
}

/// Serves one stream; the answers are what is returned, the rest runs in a task of its own until the client
/// leaves.
pub fn serve(
    env: StreamEnv,
    requests: impl Stream<Item = Result<pb::WatchRequest, Status>> + Send + Unpin + 'static,
    require_leader: bool,
) -> Responses {
    let (outbox, responses) = Outbox::new(env.headers.clone());
    let wake = Arc::new(Notify::new());
    let stream = env.hub.open(outbox.clone(), wake.clone());
    let control = Control {
        env,
        outbox,
        wake,
        stream,
        ids: HashMap::new(),
        last_id: -1,
        behind: VecDeque::new(),
        require_leader,
    };
    tokio::spawn(control.run(requests));
    responses
}

struct Control {
    env: StreamEnv,
    outbox: Outbox,
    wake: Arc<Notify>,
    stream: StreamKey,
    /// Watches by the id the client knows.
    ids: HashMap<i64, WatchKey>,
    /// The last id chosen here.
    last_id: i64,
    /// Watches to be brought back, each with the next revision to read.
    behind: VecDeque<(WatchKey, Revision, Arc<WatchSpec>)>,
    require_leader: bool,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.env.hub.close(self.stream);
    }
}

/// The client is gone or the replica ends.
struct Gone;

impl Control {
    async fn run(mut self, mut requests: impl Stream<Item = Result<pb::WatchRequest, Status>> + Unpin) {
        let shutdown = self.env.shutdown.clone();
        let lost = leader_lost(self.env.has_leader.clone(), self.env.leader_patience, self.require_leader);
        tokio::select! {
            () = shutdown.cancelled() => self.outbox.end_with(Status::unavailable(SERVER_STOPPED)),
            () = lost => self.outbox.end_with(Status::unavailable(NO_LEADER)),
            _ = self.serve(&mut requests) => {}
        }
    }

    async fn serve(
        &mut self,
        requests: &mut (impl Stream<Item = Result<pb::WatchRequest, Status>> + Unpin),
    ) -> Result<(), Gone> {
        let outbox = self.outbox.clone();
        let wake = self.wake.clone();
        let mut progress = tokio::time::interval(self.env.progress_interval);
        progress.tick().await;
        // A client that has nothing more to ask for still gets its events.
        let mut asking = true;
        loop {
            tokio::select! {
                biased;
                () = outbox.closed() => return Err(Gone),
                request = requests.next(), if asking => match request {
                    Some(Ok(request)) => self.answer(request).await?,
                    Some(Err(_)) => return Err(Gone),
                    None => asking = false,
                },
                () = wake.notified() => {
                    let fallen = self.env.hub.take_fallen(self.stream);
                    self.behind.extend(fallen);
                }
                _ = progress.tick() => self.env.hub.notify_progress(self.stream),
                place = outbox.place(), if !self.behind.is_empty() => self.catch_up(place.ok_or(Gone)?),
            }
        }
    }

    async fn answer(&mut self, request: pb::WatchRequest) -> Result<(), Gone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => {
                if let Some(key) = self.ids.remove(&cancel.watch_id) {
                    self.behind.retain(|(other, ..)| *other != key);
                    let outbox = self.outbox.clone();
                    self.env.hub.cancel(key, None, outbox.place().await.ok_or(Gone)?);
                }
                Ok(())
            }
            Some(RequestUnion::ProgressRequest(_)) => {
                // What was acknowledged here before the request counts as progress.
                self.env.hub.reached(self.env.history.revision()).await;
                let fallen = self.env.hub.take_fallen(self.stream);
                self.behind.extend(fallen);
                let outbox = self.outbox.clone();
                self.env.hub.progress(self.stream, outbox.place().await.ok_or(Gone)?);
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: pb::WatchCreateRequest) -> Result<(), Gone> {
        // A watch "from now on" must not deliver what was acknowledged before it was asked for.
        self.env.hub.reached(self.env.history.revision()).await;
        let outbox = self.outbox.clone();
        let place = outbox.place().await.ok_or(Gone)?;
        let start = request.start_revision;
        let chosen = request.watch_id;
        let spec = spec(request);
        let reversed =
            !spec.range.is_single() && !spec.range.is_from_key() && spec.range.key >= spec.range.end;
        if reversed {
            self.refuse(place, EMPTY_RANGE);
        } else if start < 0 {
            self.refuse(place, NEGATIVE_START);
        } else if chosen != 0 && self.ids.contains_key(&chosen) {
            self.refuse(place, DUPLICATE_ID);
        } else {
            let id = if chosen == 0 { self.free_id() } else { chosen };
            let key = self.env.hub.create(self.stream, WatchSpec { id, ..spec }, start, place);
            self.ids.insert(id, key);
        }
        Ok(())
    }

    fn refuse(&self, place: Place<'_>, reason: &'static str) {
        place.put(Out::Refused { revision: self.env.hub.head(), reason });
    }

    fn free_id(&mut self) -> i64 {
        loop {
            self.last_id += 1;
            if !self.ids.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Delivers one step of history to the watch that waits longest.
    fn catch_up(&mut self, place: Place<'_>) {
        let Some((key, next, spec)) = self.behind.pop_front() else { return };
        // Read before the history, which is then complete up to it: revision 1 of an empty store has no events.
        let reached = self.env.history.revision();
        let revisions = match self.env.history.history(next, HISTORY_STEP) {
            Ok(revisions) => revisions,
            Err(refusal) => {
                let compact_revision = match refusal {
                    Refusal::Compacted { compact_revision } => compact_revision,
                    // Nothing else is refused; an end without a reason is still an end.
                    _ => 0,
                };
                self.ids.remove(&spec.id);
                self.env.hub.cancel(key, Some(compact_revision), place);
                return;
            }
        };
        let end = revisions.last().map_or(next.max(reached + 1), |last| last.revision + 1);
        let mut events = Matched::default();
        for event in revisions.iter().flat_map(|r| r.events.iter()) {
            if spec.range.contains(&event.kv.key) && spec.wants(event) {
                events.push(event);
            }
        }
        if !events.events.is_empty() {
            self.env.hub.count_delivered(events.events.len());
            let events = Arc::new(events);
            place.put(Out::Events(Delivery { spec: spec.clone(), from: next, revision: end - 1, events }));
        }
        if !self.env.hub.rejoin(key, end) {
            self.behind.push_back((key, end, spec));
        }
    }
}

fn spec(request: pb::WatchCreateRequest) -> WatchSpec {
    let key = if request.key.is_empty() { "\0".into() } else { request.key };
    let filters = |filter: FilterType| request.filters.contains(&filter.into());
    WatchSpec {
        id: 0,
        no_put: filters(FilterType::Noput),
        no_delete: filters(FilterType::Nodelete),
        range: KeyRange { key, end: request.range_end },
        prev_kv: request.prev_kv,
        fragment: request.fragment,
        progress_notify: request.progress_notify,
    }
}

/// Returns once there was no leader for `patience`; never if none is required.
async fn leader_lost(mut has_leader: watch::Receiver<bool>, patience: Duration, required: bool) {
    if !required {
        std::future::pending::<()>().await;
    }
    loop {
        if has_leader.wait_for(|known| !known).await.is_err() {
            // The replica ends; the shutdown says so.
            std::future::pending::<()>().await;
        }
        tokio::select! {
            () = tokio::time::sleep(patience) => return,
            _ = has_leader.wait_for(|known| *known) => {}
        }
    }
}
