//! What the services need of consensus, and no more: they know neither openraft nor the log.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use meta_core::Core;
use meta_raft::{ProposeError, RaftHandle, RaftStatus, ReadError};
use meta_types::{Command, Outcome};
use parking_lot::RwLock;
use tokio::sync::watch;

/// Puts commands into the log and reads behind it.
pub trait Consensus: Send + Sync + 'static {
    /// Proposes a command and answers from this replica's own apply of it.
    fn propose(&self, command: Command, timeout: Duration) -> BoxFuture<'_, Result<Outcome, ProposeError>>;
    /// Returns once the state here shows everything that was committed when this was called.
    fn read_index(&self, timeout: Duration) -> BoxFuture<'_, Result<(), ReadError>>;
    /// The state.
    fn core(&self) -> Arc<RwLock<Core>>;
    /// What is known of the cluster.
    fn status(&self) -> watch::Receiver<RaftStatus>;
}

impl Consensus for RaftHandle {
    fn propose(&self, command: Command, timeout: Duration) -> BoxFuture<'_, Result<Outcome, ProposeError>> {
        Box::pin(async move { Self::propose(self, command, timeout).await })
    }

    fn read_index(&self, timeout: Duration) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(Self::read_index(self, timeout))
    }

    fn core(&self) -> Arc<RwLock<Core>> {
        Self::core(self)
    }

    fn status(&self) -> watch::Receiver<RaftStatus> {
        Self::status(self)
    }
}
