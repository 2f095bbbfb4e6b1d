//! What every handler works with: the store, the options, who this dispatcher is, the nodes.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flink_rest::RestError;
use meta_client::{Kv, KvError, Revisioned, Snapshot, Stored};
use meta_types::{KeyRange, Op, OpReply, RangeReply, RangeRequest, Txn};
use process_kit::Rounds;
use records::nodes::{is_draining, live_servers};
use records::record::Node;
use records::{Carried, Failure, Plan, Refusal, Scope, View, carry_out};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::api_error::{self, ApiError};
use crate::limits::{SESSION_WAIT, STORE_DEADLINE, WRITE_DEADLINE};
use crate::metrics::FrontMetrics;
use crate::node_client::NodeClient;
use crate::options::DispatcherOptions;
use crate::receive::Spool;
use crate::retention::Retentions;
use crate::session::Session;

/// The dispatcher's shared parts; clones share them.
#[derive(Clone)]
pub struct Front {
    /// The store.
    pub kv: Arc<dyn Kv>,
    /// The configuration.
    pub options: Arc<DispatcherOptions>,
    /// HOST:PORT of the REST front.
    pub address: Arc<str>,
    /// Who this dispatcher is in the store, while it is registered.
    pub session: watch::Receiver<Option<Session>>,
    /// The nodes.
    pub nodes: NodeClient,
    /// Where uploads wait.
    pub spool: Spool,
    /// Leases of what is over.
    pub retentions: Arc<Retentions>,
    /// Figures.
    pub metrics: FrontMetrics,
    /// What the reconcilers of this process did last.
    pub rounds: Rounds,
    /// Room for runs that are being taken.
    pub submits: Arc<Semaphore>,
    /// Cancelled when this dispatcher stops: whoever waits answers what is known.
    pub ending: CancellationToken,
}

/// Whether a read may be stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// As of a moment after the request came.
    Linearizable,
    /// What the next replica has.
    Stale,
}

impl Freshness {
    /// What a request's query asks for.
    pub fn of(query: &flink_rest::query::Query) -> Self {
        if query.flag("stale") { Self::Stale } else { Self::Linearizable }
    }
}

impl Front {
    /// Reads a scope as of one revision.
    pub async fn view(&self, scope: Scope, freshness: Freshness) -> Result<View, KvError> {
        Ok(self.read(scope, freshness, None).await?.0)
    }

    /// Reads a scope and counts the keys of a range, linearizably and at one revision.
    pub async fn view_and_count(&self, scope: Scope, counted: KeyRange) -> Result<(View, i64), KvError> {
        self.read(scope, Freshness::Linearizable, Some(counted)).await
    }

    /// Reads a piece of a long range.
    pub async fn piece(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        in_time(self.kv.range(request)).await
    }

    async fn read(
        &self,
        scope: Scope,
        freshness: Freshness,
        counted: Option<KeyRange>,
    ) -> Result<(View, i64), KvError> {
        let serializable = freshness == Freshness::Stale;
        let read = |range: &KeyRange| {
            Op::Range(RangeRequest { range: range.clone(), serializable, ..RangeRequest::default() })
        };
        let count = |range| Op::Range(RangeRequest { range, count_only: true, ..RangeRequest::default() });
        let counts = counted.is_some();
        let success = scope.ranges().iter().map(read).chain(counted.map(count)).collect();
        let reply = in_time(self.kv.txn(Txn { success, ..Txn::default() })).await?;
        let count = match reply.value.replies.last() {
            Some(OpReply::Range(range)) if counts => range.count,
            _ => 0,
        };
        let kvs = reply.value.replies.into_iter().flat_map(|reply| match reply {
            OpReply::Range(range) => range.kvs,
            OpReply::Put(_) | OpReply::DeleteRange(_) => Vec::new(),
        });
        Ok((Snapshot::new(reply.revision, scope.ranges().to_vec(), kvs).into(), count))
    }

    /// Reads a scope, linearizably.
    pub async fn fresh(&self, scope: Scope) -> Result<View, KvError> {
        self.view(scope, Freshness::Linearizable).await
    }

    /// Carries a plan out within [`WRITE_DEADLINE`]; past it the outcome is unknown, as the store's would be.
    pub async fn carry<T: Send>(
        &self,
        scope: &Scope,
        planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
    ) -> Result<Carried<T>, Failure> {
        match tokio::time::timeout(WRITE_DEADLINE, carry_out(&*self.kv, scope, planner)).await {
            Ok(done) => done,
            Err(_) => Err(KvError::Unknown(format!("no answer within {WRITE_DEADLINE:?}")).into()),
        }
    }

    /// Live server nodes in random order, those that are drained last.
    pub async fn live_servers(&self) -> Result<Vec<(String, Stored<Node>)>, ApiError> {
        let view = self.fresh(Scope::nodes()).await?;
        let mut servers: Vec<_> =
            live_servers(&view)?.into_iter().map(|(of, node)| (of.node, node)).collect();
        for i in (1..servers.len()).rev() {
            servers.swap(i, rand::random_range(0..=i));
        }
        servers.sort_by_key(|(name, _)| is_draining(&view, name).unwrap_or(false));
        Ok(servers)
    }

    /// Who this dispatcher is; 503 while it is not registered.
    pub fn session(&self) -> Result<Session, RestError> {
        self.session.borrow().clone().ok_or_else(|| {
            api_error::of_store(&KvError::NotSent("this dispatcher is not registered yet".to_owned()))
        })
    }

    /// The same, waiting a little for a registration that is being made.
    pub async fn session_soon(&self) -> Result<Session, RestError> {
        let mut session = self.session.clone();
        let _ = tokio::time::timeout(SESSION_WAIT, session.wait_for(Option::is_some)).await;
        self.session()
    }

    /// Waits a little for another registration than this one.
    pub async fn session_changed(&self, lost: &Session) {
        let mut session = self.session.clone();
        let is_other = |now: &Option<Session>| now.as_ref().is_some_and(|now| now != lost);
        let _ = tokio::time::timeout(SESSION_WAIT, session.wait_for(is_other)).await;
    }

    /// Room to take a run; 503 when this dispatcher takes as many as it may. To be held until the run is stored.
    pub fn room_for_a_run(&self) -> Result<OwnedSemaphorePermit, RestError> {
        self.submits.clone().try_acquire_owned().map_err(|_| {
            self.metrics.run("limited");
            api_error::retry_later(RestError::new(
                http::StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "this dispatcher takes {} runs at once (run.submit.concurrent); try again, or another dispatcher",
                    self.options.run_submit_concurrent
                ),
            ))
        })
    }

    /// 429 when as many runs are in progress as there may be. Dispatchers that take runs at once may each let one
    /// more in.
    pub fn check_queue(&self, in_progress: i64) -> Result<(), RestError> {
        let most = self.options.run_queue_max;
        if most == 0 || u64::try_from(in_progress).is_ok_and(|runs| runs < most) {
            return Ok(());
        }
        self.metrics.run("limited");
        Err(api_error::retry_later(RestError::new(
            http::StatusCode::TOO_MANY_REQUESTS,
            format!(
                "{in_progress} runs are in progress, as many as run.queue.max allows; try again when some ended"
            ),
        )))
    }

    /// Refuses when uploads and runs are turned off.
    pub fn check_submit_enabled(&self) -> Result<(), RestError> {
        if self.options.web_submit {
            return Ok(());
        }
        Err(RestError::new(
            http::StatusCode::FORBIDDEN,
            "uploads and runs are turned off here; set web.submit.enable = true to turn them on",
        ))
    }
}

/// A read within [`STORE_DEADLINE`].
async fn in_time<T>(read: impl Future<Output = Result<T, KvError>>) -> Result<T, KvError> {
    match tokio::time::timeout(STORE_DEADLINE, read).await {
        Ok(reply) => reply,
        Err(_) => Err(KvError::NotSent(format!("no answer within {STORE_DEADLINE:?}"))),
    }
}

/// The wall clock, for records and answers only.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
