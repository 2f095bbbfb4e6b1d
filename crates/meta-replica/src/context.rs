//! What every service shares: consensus, the state, the headers of answers, the hub, quota and figures.

use std::sync::Arc;
use std::time::Duration;

use meta_api::pb::etcdserverpb::ResponseHeader;
use meta_api::status::{NO_LEADER, NOT_FOR_LEARNER, NOT_SERVING, refusal_to_status};
use meta_core::Core;
use meta_raft::{RaftStatus, Workers};
use meta_types::limits::MAX_REQUEST_BYTES;
use meta_types::seams::{Clock, Rng};
use meta_types::{Command, Refusal, Response, Revision, RevisionEvents};
use parking_lot::RwLock;
use prost::Message;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use crate::call::{Deadline, requires_leader};
use crate::consensus::Consensus;
use crate::metrics::ReplicaMetrics;
use crate::quota::Quota;
use crate::watch::{Headers, History, Hub, StreamEnv};

/// See the module.
pub(crate) struct Context {
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) core: Arc<RwLock<Core>>,
    pub(crate) status: watch::Receiver<RaftStatus>,
    pub(crate) has_leader: watch::Receiver<bool>,
    pub(crate) headers: Headers,
    pub(crate) hub: Arc<Hub>,
    pub(crate) quota: Quota,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) workers: Arc<dyn Workers>,
    pub(crate) metrics: ReplicaMetrics,
    pub(crate) leader_patience: Duration,
    pub(crate) progress_interval: Duration,
    pub(crate) shutdown: CancellationToken,
}

impl Context {
    pub(crate) fn header(&self, revision: Revision) -> Option<ResponseHeader> {
        Some(self.headers.header(revision))
    }

    /// The store's revision here and now.
    pub(crate) fn revision(&self) -> Revision {
        self.core.read().revision()
    }

    /// Admits a call that needs the cluster: refused at once on a learner, or without a leader if the client
    /// insists on one.
    pub(crate) fn admit<T>(&self, request: &Request<T>) -> Result<Deadline, Status> {
        let deadline = self.admit_local(request)?;
        if self.is_learner() {
            return Err(Status::failed_precondition(NOT_FOR_LEARNER));
        }
        Ok(deadline)
    }

    /// Admits a call that this replica answers from what it has.
    pub(crate) fn admit_local<T>(&self, request: &Request<T>) -> Result<Deadline, Status> {
        if requires_leader(request.metadata()) && !*self.has_leader.borrow() {
            return Err(Status::unavailable(NO_LEADER));
        }
        Ok(Deadline::of(request.metadata()))
    }

    pub(crate) fn is_learner(&self) -> bool {
        self.status.borrow().is_learner()
    }

    /// Waits until the state here shows everything committed before this call.
    pub(crate) async fn read_index(&self, deadline: &Deadline) -> Result<(), Status> {
        self.consensus.read_index(deadline.timeout).await.map_err(|error| deadline.read_error(error))
    }

    /// Waits until this replica may show its state: after a start it may be behind what it showed before.
    pub(crate) async fn serving(&self, deadline: &Deadline) -> Result<(), Status> {
        if self.status.borrow().serving {
            return Ok(());
        }
        let mut status = self.status.clone();
        match tokio::time::timeout(deadline.timeout, status.wait_for(|status| status.serving)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Status::unavailable(NOT_SERVING)),
        }
    }

    /// Proposes a command; answers with the store's revision after it.
    pub(crate) async fn propose(
        &self,
        command: Command,
        deadline: &Deadline,
    ) -> Result<(Revision, Response), Status> {
        Core::validate(&command).map_err(|refusal| refusal_to_status(&refusal))?;
        if self.quota.is_exceeded() && grows(&command) {
            return Err(refusal_to_status(&Refusal::NoSpace));
        }
        let outcome = self.consensus.propose(command, deadline.timeout).await;
        let outcome = outcome.map_err(|error| deadline.propose_error(&error))?;
        match outcome.result {
            Ok(response) => Ok((outcome.revision, response)),
            // The command's number was given up: whether it took effect before is not known.
            Err(Refusal::OriginRetired | Refusal::BelowLowWater) => Err(deadline.expired()),
            Err(refusal) => Err(refusal_to_status(&refusal)),
        }
    }

    /// What watch streams need.
    pub(crate) fn stream_env(&self) -> StreamEnv {
        StreamEnv {
            hub: self.hub.clone(),
            history: Arc::new(CoreHistory(self.core.clone())),
            headers: self.headers.clone(),
            has_leader: self.has_leader.clone(),
            leader_patience: self.leader_patience,
            progress_interval: self.progress_interval,
            shutdown: self.shutdown.clone(),
        }
    }
}

/// Refuses a request above the limit, by its size on the wire as etcd does.
pub(crate) fn check_size(request: &impl Message) -> Result<(), Status> {
    if request.encoded_len() > MAX_REQUEST_BYTES {
        return Err(refusal_to_status(&Refusal::RequestTooLarge));
    }
    Ok(())
}

/// True if the command may make the store larger.
fn grows(command: &Command) -> bool {
    use meta_types::Op;
    match command {
        Command::Put(_) | Command::LeaseGrant { .. } => true,
        Command::Txn(txn) => txn.success.iter().chain(&txn.failure).any(|op| matches!(op, Op::Put(_))),
        Command::RegisterOrigin
        | Command::DeleteRange(_)
        | Command::Compact(_)
        | Command::LeaseRevoke { .. }
        | Command::LeaseKeepAlive { .. }
        | Command::LeaseExpire { .. }
        | Command::LeaseTick
        | Command::SetCluster { .. } => false,
    }
}

/// The state as the place where watches read what they missed.
pub(crate) struct CoreHistory(pub(crate) Arc<RwLock<Core>>);

impl History for CoreHistory {
    fn revision(&self) -> Revision {
        self.0.read().revision()
    }

    fn history(&self, from: Revision, max: usize) -> Result<Vec<RevisionEvents>, Refusal> {
        self.0.read().history(from, max)
    }
}
