//! The node's registration under a lease, and what hangs on it: the right to run code.
//!
//! The lease is renewed from an OS thread of its own, so that a busy process does not lose it. Each acknowledged
//! renewal moves the deadline of every guard: **send time + TTL - margin**, on CLOCK_BOOTTIME. The store counts from
//! receipt, which is later than the send time, so a guard kills before the store can give the job to a successor,
//! as long as the rates of the clocks differ by less than the margin allows.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meta_client::{Kv, KvError};
use meta_types::LeaseId;
use parking_lot::Mutex;
use records::nodes::{Register, register};
use records::record::{Node, NodeRef};
use records::{Failure, Scope, carry_out};
use tokio_util::sync::CancellationToken;

use crate::guard::control::{Boottime, Order};
use crate::limits::{DRAIN_WITHIN, STORE_RETRY};

/// gRPC's code for "no such lease".
const NOT_FOUND: i32 = 5;

/// Who this boot is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Name and incarnation.
    pub me: NodeRef,
    /// The lease that the registration, owner keys and uses hang on.
    pub lease: LeaseId,
}

/// A session while it lasts.
#[derive(Debug, Clone)]
pub struct Tenure {
    /// Who.
    pub session: Session,
    /// Cancelled when the registration is gone.
    pub lost: CancellationToken,
}

/// Returns when a stopping process has answered what came before under the registration of `me`, or took too long.
pub async fn until_drained(drained: &CancellationToken, me: &NodeRef) {
    if tokio::time::timeout(DRAIN_WITHIN, drained.cancelled()).await.is_err() {
        tracing::warn!(
            node = me.node,
            "requests are not answered yet; the registration is given back anyway"
        );
    }
}

/// The pipes to all guards, and the deadline they were last told. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct GuardPipes {
    shared: Arc<PipesShared>,
}

#[derive(Debug, Default)]
struct PipesShared {
    deadline_ns: AtomicU64,
    pipes: Mutex<Vec<Arc<OwnedFd>>>,
}

/// Until when an attempt may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RightToRun {
    /// As long as the lease is renewed.
    Leased,
    /// Until it is told to end: of a job that is kept when the store is lost.
    Kept,
}

/// The pipe to one guard. When the last clone is dropped the guard kills.
#[derive(Debug)]
pub struct GuardPipe {
    fd: Arc<OwnedFd>,
    pipes: GuardPipes,
}

impl GuardPipes {
    /// The deadline as of the last acknowledged renewal.
    pub fn deadline(&self) -> Boottime {
        Boottime::from_ns(self.shared.deadline_ns.load(Ordering::SeqCst))
    }

    /// A new deadline, told to every guard.
    fn push(&self, deadline: Boottime) {
        self.shared.deadline_ns.store(deadline.as_ns(), Ordering::SeqCst);
        for pipe in self.shared.pipes.lock().iter() {
            tell(pipe, Order::Deadline(deadline));
        }
    }

    /// Adds the (non-blocking) writing end of a guard's pipe. The guard must be started with a deadline read before, or
    /// with none if its attempt is kept.
    pub fn add(&self, fd: OwnedFd, right: RightToRun) -> GuardPipe {
        let fd = Arc::new(fd);
        if right == RightToRun::Leased {
            self.shared.pipes.lock().push(fd.clone());
            // A renewal between reading the deadline and this line is not lost.
            tell(&fd, Order::Deadline(self.deadline()));
        }
        GuardPipe { fd, pipes: self.clone() }
    }
}

/// A full pipe belongs to a guard that does not run: it will find its deadline by the clock.
fn tell(pipe: &OwnedFd, order: Order) {
    let _ = rustix::io::write(pipe, order.line().as_bytes());
}

impl GuardPipe {
    /// Gives an order.
    pub fn tell(&self, order: Order) {
        tell(&self.fd, order);
    }
}

impl Drop for GuardPipe {
    fn drop(&mut self) {
        self.pipes.shared.pipes.lock().retain(|other| !Arc::ptr_eq(other, &self.fd));
    }
}

/// How a lease is kept.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// TTL to ask for.
    pub ttl: Duration,
    /// Time between renewals.
    pub keep_alive: Duration,
    /// How long before the end of the lease guards kill.
    pub margin: Duration,
}

/// Registers and keeps the lease.
pub struct Registrar {
    /// The store.
    pub kv: Arc<dyn Kv>,
    /// Name of the node.
    pub name: String,
    /// What it says about itself.
    pub node: Node,
    /// How the lease is kept.
    pub pace: Pace,
    /// The guards that hang on it.
    pub pipes: GuardPipes,
    /// Boots before this one on the same work directory, which are certainly dead.
    pub predecessors: Vec<String>,
}

impl Registrar {
    /// Registers, trying until it works, and starts to renew.
    pub async fn register(&self, waiting: impl Fn(&str)) -> Tenure {
        loop {
            match self.try_register().await {
                Ok(tenure) => return tenure,
                Err(error) => {
                    waiting(&error.to_string());
                    tracing::warn!(node = self.name, %error, "not registered yet; trying again");
                }
            }
            tokio::time::sleep(STORE_RETRY).await;
        }
    }

    async fn try_register(&self) -> Result<Tenure, Failure> {
        self.retire_predecessors().await?;
        let asked_at = Boottime::now();
        let granted = self.kv.lease_grant(0, self.pace.ttl).await?;
        let keeper = Keeper {
            kv: self.kv.clone(),
            lease: granted.id,
            ttl: granted.ttl,
            pace: self.pace,
            pipes: self.pipes.clone(),
            lost: CancellationToken::new(),
        };
        let request = Register { name: self.name.clone(), node: self.node.clone(), lease: granted.id };
        let done = carry_out(&*self.kv, &Scope::nodes(), |view| register(view, &request)).await;
        match done {
            Ok(done) => {
                let session = Session { me: done.answer, lease: granted.id };
                let lost = keeper.lost.clone();
                keeper.start(asked_at);
                Ok(Tenure { session, lost })
            }
            Err(failure) => {
                // Not needed any more; if this fails too it runs out by itself.
                let _ = self.kv.lease_revoke(granted.id).await;
                Err(failure)
            }
        }
    }

    /// A predecessor on the same work directory is dead and everything it ran as well (this process took all its
    /// locks): its registration need not wait for the lease to run out.
    async fn retire_predecessors(&self) -> Result<(), Failure> {
        if self.predecessors.is_empty() {
            return Ok(());
        }
        let view = records::View::load(&*self.kv, Scope::nodes()).await?;
        let held = view.get(&records::keys::NodeKey { node: self.name.clone() }).map_err(Failure::Refused)?;
        let ours = held.filter(|held| self.predecessors.contains(&held.boot) && held.lease != 0);
        let Some(held) = ours else { return Ok(()) };
        match self.kv.lease_revoke(held.lease).await {
            Ok(()) | Err(KvError::Rejected { code: NOT_FOUND, .. }) => {
                tracing::info!(node = self.name, "took over from the boot before this one");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Renews one lease.
struct Keeper {
    kv: Arc<dyn Kv>,
    lease: LeaseId,
    ttl: Duration,
    pace: Pace,
    pipes: GuardPipes,
    lost: CancellationToken,
}

impl Keeper {
    fn start(self, granted_at: Boottime) {
        self.acknowledged(granted_at);
        let lost = self.lost.clone();
        let started = std::thread::Builder::new().name("lease".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(self.keep()),
                Err(error) => tracing::error!(%error, "no runtime for the lease"),
            }
            self.lost.cancel();
        });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for the lease");
            lost.cancel();
        }
    }

    fn acknowledged(&self, sent_at: Boottime) {
        self.pipes.push(sent_at.plus(self.ttl.saturating_sub(self.pace.margin)));
    }

    /// Returns when the lease is gone, or given up by cancelling `lost`.
    async fn keep(&self) {
        // Its connections are this thread's: they work while the process's own runtime is blocked.
        let kv = self.kv.apart().unwrap_or_else(|| self.kv.clone());
        let mut pause = self.pace.keep_alive;
        loop {
            tokio::select! {
                () = self.lost.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let sent_at = Boottime::now();
            let renewed = tokio::time::timeout(self.ttl, kv.lease_keep_alive(self.lease)).await;
            match renewed {
                Ok(Ok(Some(_))) => {
                    self.acknowledged(sent_at);
                    pause = self.pace.keep_alive;
                }
                Ok(Ok(None) | Err(KvError::Rejected { code: NOT_FOUND, .. })) => {
                    tracing::warn!(lease = self.lease, "the lease is gone");
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the lease was not renewed; trying again");
                    pause = STORE_RETRY;
                }
                Err(_) => {
                    tracing::warn!("no answer to a renewal of the lease; trying again");
                    pause = STORE_RETRY;
                }
            }
        }
    }
}
