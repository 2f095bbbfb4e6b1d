//! A create or register that this node coordinates: writes within its deadline, looks at views until they say what is
//! waited for, READY, or the undoing everywhere.

use std::sync::Arc;
use std::time::Duration;

use meta_client::TypedKey;
use records::keys::{CopyKey, UnitKey, below};
use records::packages::{PackageStatus, Progress, abort, finish, package_status, progress, ready};
use records::record::PackageRef;
use records::{Class, Failure, Plan, Refusal, Scope, UnitId, View, carry_out};
use tokio::time::{Instant, sleep, timeout_at};

use crate::deploy_coordinator::CreateError;
use crate::gates::Hold;
use crate::host::Host;
use crate::limits::{STORE_RETRY, UNDO_WAIT};

/// The epoch of an operation that nobody took over.
const FIRST_EPOCH: u64 = 1;

/// One operation on a package, which this node carries as long as this value lives.
pub struct Operation {
    /// The node.
    pub host: Arc<Host>,
    /// The package.
    pub unit: UnitId,
    /// Its operation.
    pub op: String,
    /// Counts those who took it over; who has an older one may not write.
    pub epoch: u64,
    /// The client's request whose outcome is settled with it.
    pub request: Option<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// When that is over.
    pub deadline: Instant,
    _carried: Carried,
}

/// From before the record until the last word about it: the package agent undoes what nobody carries.
struct Carried {
    host: Arc<Host>,
    hold: Option<Hold>,
}

impl Carried {
    fn begin(host: &Arc<Host>, op: &str) -> Self {
        Self { hold: Some(host.creates.hold(op)), host: host.clone() }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.hold = None;
        // Whatever could not be ended, the package agent does from now on.
        self.host.disk_changed.notify_one();
    }
}

impl Operation {
    /// Begins to count the time.
    pub fn new(host: Arc<Host>, unit: UnitId, timeout: Duration) -> Self {
        let op = format!("{:032x}", rand::random::<u128>());
        Self::carried(host, PackageRef { unit, op }, FIRST_EPOCH, timeout)
    }

    /// Goes on with somebody else's, under an epoch of its own.
    pub fn taken_over(host: Arc<Host>, package: &PackageRef, epoch: u64, timeout: Duration) -> Self {
        Self::carried(host, package.clone(), epoch, timeout)
    }

    fn carried(host: Arc<Host>, package: PackageRef, epoch: u64, timeout: Duration) -> Self {
        let PackageRef { unit, op } = package;
        let (deadline, _carried) = (Instant::now() + timeout, Carried::begin(&host, &op));
        Self { host, unit, op, epoch, request: None, timeout, deadline, _carried }
    }

    /// With the request whose outcome it settles.
    pub fn with_request(self, request: Option<String>) -> Self {
        Self { request, ..self }
    }

    /// All that belongs to the package, and its request.
    pub fn scope(&self) -> Scope {
        let scope = Scope::package(&self.unit);
        self.request.iter().fold(scope, |scope, request| scope.and_request(request))
    }

    /// Carries a plan out within the deadline, waiting for what goes away by itself if `patient`.
    pub async fn write<T: Send>(
        &self,
        scope: &Scope,
        patient: bool,
        planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
    ) -> Result<T, CreateError> {
        loop {
            let in_time = Instant::now() < self.deadline;
            match carry_out(&*self.host.kv, scope, &planner).await {
                Ok(done) => return Ok(done.answer),
                Err(Failure::Refused(refusal)) if !(patient && refusal.transient && in_time) => {
                    return Err(refusal.into());
                }
                Err(failure) if !in_time => return Err(CreateError::Unknown(failure.to_string())),
                Err(_) => sleep(STORE_RETRY).await,
            }
        }
    }

    /// The first answer that some view gives; none when time is up. Views from before the operation say nothing.
    pub async fn next<T>(
        &self,
        mut look: impl FnMut(&View) -> Result<Option<T>, Refusal>,
    ) -> Result<Option<T>, CreateError> {
        let mut views = self.host.views.clone();
        let known = View::load(&*self.host.kv, self.scope()).await.map_or(0, |view| view.revision());
        loop {
            let view = views.borrow_and_update().clone();
            if view.revision() >= known
                && let Some(found) = look(&view)?
            {
                return Ok(Some(found));
            }
            match timeout_at(self.deadline, views.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(CreateError::Undone("this node is stopping".into())),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Waits until enough targets hold it, and makes it READY.
    pub async fn until_ready(&self) -> Result<(), CreateError> {
        let (unit, op) = (&self.unit, &self.op);
        loop {
            let step = self
                .next(|view| match progress(view, unit, op)? {
                    Progress::Waiting { .. } => Ok(None),
                    step => Ok(Some(step)),
                })
                .await?;
            match step {
                Some(Progress::Enough) => {
                    let scope = self.scope();
                    match self.write(&scope, false, |view| ready(view, unit, op, self.epoch)).await {
                        // A target died or failed in between: look again.
                        Err(CreateError::Refused(refusal)) if refusal.class == Class::NotYet => {
                            sleep(STORE_RETRY).await;
                        }
                        other => return other,
                    }
                }
                Some(Progress::Failed { reason, disk_full: true }) => return Err(CreateError::Full(reason)),
                Some(Progress::Failed { reason, .. }) => return Err(CreateError::Undone(reason)),
                Some(_) => return Err(CreateError::Undone("no target node is alive any more".into())),
                None => return Err(self.too_late()),
            }
        }
    }

    fn too_late(&self) -> CreateError {
        let view = self.host.views.borrow().clone();
        let waiting = match progress(&view, &self.unit, &self.op) {
            Ok(Progress::Waiting { on }) => format!(": waited for {}", on.join(", ")),
            _ => String::new(),
        };
        CreateError::TimedOut(format!("not on enough nodes within {:?}{waiting}", self.timeout))
    }

    /// T4, and a moment for the nodes to delete or give back what they have, so that the name is free when the client
    /// reads the answer. If it takes longer a dispatcher finishes it.
    pub async fn undo(&self, reason: &str) {
        let (unit, op, epoch) = (&self.unit, &self.op, self.epoch);
        tracing::warn!(package = %unit, op, reason, "failed; undoing it on every node");
        let until = Instant::now() + UNDO_WAIT;
        let giving_up = self.insist(|view| abort(view, unit, op, epoch, reason));
        match timeout_at(until, giving_up).await {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => {
                tracing::warn!(package = %unit, %refusal, "the undoing is somebody else's");
                return;
            }
            Err(_) => tracing::warn!(package = %unit, "not undone yet: the package agent goes on with it"),
        }
        if timeout_at(until, self.finish_when_empty()).await.is_err() {
            tracing::info!(package = %unit, "the undoing goes on");
        }
    }

    async fn insist<T: Send>(
        &self,
        planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
    ) -> Result<T, Refusal> {
        loop {
            match carry_out(&*self.host.kv, &self.scope(), &planner).await {
                Ok(done) => return Ok(done.answer),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(_) => sleep(STORE_RETRY).await,
            }
        }
    }

    async fn finish_when_empty(&self) {
        let (unit, op) = (&self.unit, &self.op);
        let mut views = self.host.views.clone();
        loop {
            let view = views.borrow_and_update().clone();
            let rows = view.count(&below(CopyKey::PREFIX, unit)).unwrap_or(1);
            let found = view.get(&UnitKey::new(unit)).ok().flatten().filter(|unit| unit.op == *op);
            if let Some(found) = found.filter(|_| rows == 0) {
                let scope = match &found.manifest {
                    Some(digest) => self.scope().and_manifest(digest),
                    None => self.scope(),
                };
                match carry_out(&*self.host.kv, &scope, |view| finish(view, unit, op)).await {
                    Ok(_) => return,
                    Err(Failure::Refused(refusal)) if refusal.class != Class::NotYet => return,
                    Err(_) => {}
                }
            }
            if views.changed().await.is_err() {
                return;
            }
        }
    }

    /// What the records say of the package.
    pub async fn status(&self) -> Result<PackageStatus, CreateError> {
        let view = View::load(&*self.host.kv, self.scope()).await;
        let view = view.map_err(|e| CreateError::Unknown(e.to_string()))?;
        Ok(package_status(&view, &self.unit)?)
    }
}
