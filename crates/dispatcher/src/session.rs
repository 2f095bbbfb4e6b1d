//! The dispatcher's registration under a lease. What it drives hangs on that lease, so when it dies or is cut off,
//! other dispatchers adopt its runs. A lost lease means a new registration, with a new incarnation.

use std::sync::Arc;
use std::time::Duration;

pub use jobmaster::Session;
use jobmaster::session::until_drained;
use meta_client::{Kv, KvError};
use meta_types::LeaseId;
use process_kit::Shutdown;
use records::nodes::{Register, register};
use records::record::Node;
use records::{Failure, Scope, carry_out};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What keeps a registration.
pub struct Registrar {
    /// The store.
    pub kv: Arc<dyn Kv>,
    /// Name of the node.
    pub name: String,
    /// What it says about itself.
    pub node: Node,
    /// Time to live of the lease.
    pub ttl: Duration,
    /// Cancelled when the last request that came before the end is answered.
    pub drained: CancellationToken,
}

/// Pause before a registration or a renewal is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long the revocation at the end may take.
const REVOKE_WITHIN: Duration = Duration::from_secs(2);

impl Registrar {
    /// Registers, renews and registers again until the end. Then it answers what came before under this registration,
    /// for a bounded time, and gives the lease back, so that others take over at once.
    pub async fn run(self, session: watch::Sender<Option<Session>>, shutdown: Shutdown) {
        let token = shutdown.token();
        while !token.is_cancelled() {
            let held = tokio::select! {
                () = token.cancelled() => return,
                held = self.register() => held,
            };
            session.send_replace(Some(held.clone()));
            tracing::info!(node = held.me.node, incarnation = held.me.incarnation, "registered");
            let over = async {
                token.cancelled().await;
                until_drained(&self.drained, &held.me).await;
            };
            tokio::select! {
                () = over => {
                    self.give_back(&held).await;
                    return;
                }
                () = self.keep(&held) => {}
            }
            session.send_replace(None);
            tracing::warn!(node = held.me.node, "the lease is gone; registering anew");
        }
    }

    async fn register(&self) -> Session {
        let mut lease = None;
        loop {
            match self.try_register(&mut lease).await {
                Ok(session) => return session,
                Err(error) => tracing::warn!(node = self.name, %error, "not registered yet"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// A lease that was granted is used again by the next try, as long as it lives.
    async fn try_register(&self, lease: &mut Option<LeaseId>) -> Result<Session, Failure> {
        let id = match *lease {
            Some(id) if self.kv.lease_keep_alive(id).await?.is_some() => id,
            _ => self.kv.lease_grant(0, self.ttl).await?.id,
        };
        *lease = Some(id);
        let request = Register { name: self.name.clone(), node: self.node.clone(), lease: id };
        let done = carry_out(&*self.kv, &Scope::nodes(), |view| register(view, &request)).await?;
        Ok(Session { me: done.answer, lease: id })
    }

    /// Renews until the lease is gone.
    async fn keep(&self, held: &Session) {
        let every = self.ttl / 4;
        let mut next = Instant::now() + every;
        loop {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + every;
            match self.kv.lease_keep_alive(held.lease).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(KvError::Rejected { code: NOT_FOUND, .. }) => return,
                Err(error) => {
                    tracing::warn!(%error, "the lease was not renewed; trying again");
                    next = Instant::now() + RETRY;
                }
            }
        }
    }

    async fn give_back(&self, held: &Session) {
        match tokio::time::timeout(REVOKE_WITHIN, self.kv.lease_revoke(held.lease)).await {
            Ok(Ok(())) => tracing::info!(node = held.me.node, "registration given back"),
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not given back and runs out by itself"),
            Err(_) => tracing::warn!("the lease was not given back in time and runs out by itself"),
        }
    }
}

/// gRPC's code for "no such lease".
pub const NOT_FOUND: i32 = 5;
