//! Keeping a lease alive, and knowing how long one may trust it.
//!
//! The store counts a lease from the moment it receives a renewal, so whoever counts from the moment it *sent* the
//! last renewal that was answered is always the earlier one to stop: until `acknowledged + TTL` nobody else can have
//! got what hangs on the lease, as long as both clocks run at about the same rate. That moment, on the caller's
//! monotonic clock, is what a keeper reports.

use std::sync::Arc;
use std::time::Duration;

use meta_types::LeaseId;
use meta_types::seams::Clock;
use tokio::sync::watch;

use crate::kv::{Kv, KvError, LeaseGranted};

/// A lease is renewed so many times within its TTL.
pub const RENEWALS_PER_TTL: u32 = 5;

/// What is known of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// It stands at least until this moment of the keeper's clock.
    Held {
        /// Send time of the last renewal that was answered, plus the TTL.
        until: Duration,
    },
    /// The store says it is gone.
    Lost,
}

/// A granted lease and what is known of it.
#[derive(Clone)]
pub struct LeaseKeeper {
    kv: Arc<dyn Kv>,
    clock: Arc<dyn Clock>,
    lease: LeaseGranted,
    state: watch::Sender<LeaseState>,
}

impl LeaseKeeper {
    /// Grants a lease. Nothing renews it until [`LeaseKeeper::run`] runs.
    pub async fn grant(kv: Arc<dyn Kv>, ttl: Duration, clock: Arc<dyn Clock>) -> Result<Self, KvError> {
        let sent = clock.now();
        let lease = kv.lease_grant(0, ttl).await?;
        let (state, _) = watch::channel(LeaseState::Held { until: sent + lease.ttl });
        Ok(Self { kv, clock, lease, state })
    }

    /// The lease's id.
    pub fn id(&self) -> LeaseId {
        self.lease.id
    }

    /// Its time to live.
    pub fn ttl(&self) -> Duration {
        self.lease.ttl
    }

    /// What is known of it; woken by each renewal and by the loss.
    pub fn state(&self) -> watch::Receiver<LeaseState> {
        self.state.subscribe()
    }

    /// Renews until the store says the lease is gone. Where other work must not delay it, run it on a thread of its
    /// own with a runtime and a client of its own.
    pub async fn run(&self) {
        let every = self.lease.ttl / RENEWALS_PER_TTL;
        loop {
            tokio::time::sleep(every).await;
            if !self.renew(every).await {
                return;
            }
        }
    }

    /// One renewal, tried for at most `limit`; false if the lease is gone.
    pub async fn renew(&self, limit: Duration) -> bool {
        let sent = self.clock.now();
        match tokio::time::timeout(limit, self.kv.lease_keep_alive(self.lease.id)).await {
            Ok(Ok(Some(ttl))) => {
                self.state.send_replace(LeaseState::Held { until: sent + ttl });
                true
            }
            Ok(Ok(None)) => {
                self.state.send_replace(LeaseState::Lost);
                false
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, lease = self.lease.id, "the lease was not renewed, trying again");
                true
            }
            Err(_) => true,
        }
    }

    /// Gives the lease back: what hangs on it goes at once.
    pub async fn revoke(&self) -> Result<(), KvError> {
        self.state.send_replace(LeaseState::Lost);
        match self.kv.lease_revoke(self.lease.id).await {
            Err(KvError::Rejected { code: NOT_FOUND, .. }) => Ok(()),
            other => other,
        }
    }
}

/// gRPC's code for "no such lease".
const NOT_FOUND: i32 = 5;
