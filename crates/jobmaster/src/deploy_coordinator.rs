//! The deploy coordinator: carries one create from the reservation to READY, or undoes it everywhere.
//!
//! ```text
//! T1 reserve -> receive and hash the files -> publish here -> announce the manifest -> N1 PRESENT here
//!   -> targets fetch, verify, publish, N1 -> enough PRESENT: T3 READY | a live target failed, time is up: T4 undo
//! ```
//! The proposal's UploadNewICP is the announced record that each target's agent reacts to; UploadNewICPDone is the
//! target's own row. Nothing is sent that could be lost. If this process dies, the record names a coordinator that
//! is gone and a dispatcher undoes the create after the grace.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Multipart;
use icp_store::{Sealed, StoreError};
use meta_client::TypedKey;
use records::keys::{CopyKey, UnitKey, below};
use records::packages::{
    CopyReport, PackageStatus, Progress, Reserve, Reserved, Targets, abort, announce, finish, package_status,
    present, progress, ready, reserve,
};
use records::record::{Policy, UnitOrigin};
use records::{Class, Failure, Plan, Refusal, Scope, UnitId, View, carry_out};
use tokio::time::{Instant, sleep, timeout_at};

use crate::host::{Host, now_ms};
use crate::limits::{STORE_RETRY, UNDO_WAIT};
use crate::metrics::End;
use crate::package_copy::to_record;
use crate::receive::{ReceiveError, discard, receive};
use crate::session::Session;

/// What a client wants.
#[derive(Debug, Clone)]
pub struct Create {
    /// The package.
    pub unit: UnitId,
    /// How it comes about.
    pub origin: UnitOrigin,
    /// Which nodes.
    pub targets: Targets,
    /// How many of them.
    pub policy: Policy,
    /// How long it may take.
    pub timeout: Duration,
    /// Size of the upload, if the client said it.
    pub declared_bytes: u64,
}

/// Why there is no package.
#[derive(Debug)]
pub enum CreateError {
    /// The records say no.
    Refused(Refusal),
    /// The body.
    Received(ReceiveError),
    /// It was begun and undone.
    Undone(String),
    /// Time is up; undone.
    TimedOut(String),
    /// The store did not answer: it may be going on.
    Unknown(String),
    /// This node is not registered now.
    NotRegistered,
}

impl From<Refusal> for CreateError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for CreateError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => Self::Refused(refusal),
            other => Self::Unknown(other.to_string()),
        }
    }
}

/// Creates the package from the body. Runs to its end on a task of its own: a client that hangs up does not leave a
/// create behind that nobody carries.
pub async fn create(host: Arc<Host>, wish: Create, body: Multipart) -> Result<PackageStatus, CreateError> {
    let metrics = host.metrics.clone();
    let task = tokio::spawn(async move {
        let Some(session) = host.session.borrow().clone() else { return Err(CreateError::NotRegistered) };
        let op = format!("{:032x}", rand::random::<u128>());
        let deadline = Instant::now() + wish.timeout;
        let carried = host.creates.hold(&op);
        let outcome = Coordinator { host: host.clone(), session, wish, op, deadline }.run(body).await;
        // Whatever this could not end, the package agent does from now on.
        drop(carried);
        host.disk_changed.notify_one();
        outcome
    });
    let outcome = task.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
    let end = if outcome.is_ok() { "ok" } else { "failed" };
    metrics.creates.get_or_create(&End { end }).inc();
    outcome
}

struct Coordinator {
    host: Arc<Host>,
    session: Session,
    wish: Create,
    op: String,
    deadline: Instant,
}

/// The epoch of a create that nobody took over.
const FIRST_EPOCH: u64 = 1;

impl Coordinator {
    async fn run(self, body: Multipart) -> Result<PackageStatus, CreateError> {
        let unit = &self.wish.unit;
        match self.reserve().await {
            Ok(Reserved::Started { targets }) => {
                tracing::info!(package = %unit, op = self.op, ?targets, "UploadNewICP: create begun");
                self.carry(&targets, body).await
            }
            Ok(Reserved::Ready { digest, .. }) => self.compare(digest, body).await,
            Ok(Reserved::Joined { .. }) => {
                discard(body).await;
                Err(Refusal::new(Class::InProgress, format!("{unit} is being created by the same request"))
                    .into())
            }
            Err(error) => {
                let _ = timeout_at(self.deadline, discard(body)).await;
                Err(error)
            }
        }
    }

    fn scope(&self) -> Scope {
        Scope::package(&self.wish.unit)
    }

    /// T1, waiting within the deadline for what goes away by itself.
    async fn reserve(&self) -> Result<Reserved, CreateError> {
        let wish = Reserve {
            unit: self.wish.unit.clone(),
            op: self.op.clone(),
            origin: self.wish.origin,
            coordinator: self.session.me.clone(),
            manifest: None,
            targets: self.wish.targets.clone(),
            policy: self.wish.policy,
            request: None,
            now_ms: now_ms(),
            from: None,
        };
        loop {
            match carry_out(&*self.host.kv, &self.scope(), |view| reserve(view, &wish)).await {
                Ok(done) => return Ok(done.answer),
                Err(Failure::Refused(refusal)) if refusal.transient && Instant::now() < self.deadline => {
                    sleep(STORE_RETRY).await;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// It exists: the same content is fine, other content is not.
    async fn compare(&self, digest: Option<String>, body: Multipart) -> Result<PackageStatus, CreateError> {
        let sealed = receive(&self.host, &self.op, body).await.map_err(CreateError::Received)?;
        self.discard_staging().await;
        if digest == Some(sealed.manifest.digest().to_string()) {
            return self.status().await;
        }
        let text = format!(
            "{} already exists with other content: remove it first or use another version",
            self.wish.unit
        );
        Err(Refusal::new(Class::Exists, text).into())
    }

    async fn carry(&self, targets: &[String], body: Multipart) -> Result<PackageStatus, CreateError> {
        let outcome = match self.receive_and_announce(targets, body).await {
            Ok(()) => self.wait_for_targets().await,
            Err(error) => Err(error),
        };
        // The targets have their own copies, or there is nothing left to serve.
        self.discard_staging().await;
        match outcome {
            Ok(()) => {
                tracing::info!(package = %self.wish.unit, op = self.op, "UploadNewICPDone: READY");
                self.status().await
            }
            Err(error) => {
                self.undo(&reason_of(&error)).await;
                Err(error)
            }
        }
    }

    async fn receive_and_announce(&self, targets: &[String], body: Multipart) -> Result<(), CreateError> {
        let here = &self.host.options.name;
        let of_disk = |e: StoreError| CreateError::Undone(format!("node {here} failed: {e}"));
        let declared = self.wish.declared_bytes;
        if let Err(error) = self.host.on_disk(move |store| store.check_space(declared)).await {
            let _ = timeout_at(self.deadline, discard(body)).await;
            return Err(of_disk(error));
        }
        let received = timeout_at(self.deadline, receive(&self.host, &self.op, body)).await;
        let received = received.map_err(|_| CreateError::TimedOut("the upload took too long".into()))?;
        let sealed = received.map_err(CreateError::Received)?;
        let manifest = sealed.manifest.clone();
        let is_target = targets.contains(here);
        if is_target {
            self.publish(sealed).await.map_err(of_disk)?;
        }
        let digest = manifest.digest().to_string();
        let record = to_record(&manifest);
        let scope = self.scope().and_manifest(&digest);
        self.write(&scope, |view| announce(view, &self.wish.unit, &self.op, FIRST_EPOCH, &digest, &record))
            .await?;
        if is_target {
            let report = CopyReport {
                unit: self.wish.unit.clone(),
                op: self.op.clone(),
                me: self.session.me.clone(),
                for_job: None,
            };
            self.write(&self.scope(), |view| present(view, &report, manifest.total_bytes())).await?;
        }
        Ok(())
    }

    async fn publish(&self, sealed: Sealed) -> Result<(), StoreError> {
        let unit = self.wish.unit.clone();
        self.host.on_disk(move |_| sealed.publish(&unit.name, &unit.version)).await?;
        self.host.disk_changed.notify_one();
        Ok(())
    }

    async fn discard_staging(&self) {
        let op = self.op.clone();
        if let Err(error) = self.host.on_disk(move |store| store.discard(&op)).await {
            tracing::warn!(%error, "what was received cannot be deleted yet");
        }
    }

    /// Carries a plan out within the deadline.
    async fn write<T: Send>(
        &self,
        scope: &Scope,
        planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
    ) -> Result<T, CreateError> {
        loop {
            match carry_out(&*self.host.kv, scope, &planner).await {
                Ok(done) => return Ok(done.answer),
                Err(Failure::Refused(refusal)) => return Err(refusal.into()),
                Err(failure) if Instant::now() >= self.deadline => {
                    return Err(CreateError::Unknown(failure.to_string()));
                }
                Err(_) => sleep(STORE_RETRY).await,
            }
        }
    }

    async fn wait_for_targets(&self) -> Result<(), CreateError> {
        let (unit, op) = (&self.wish.unit, &self.op);
        loop {
            let step = self
                .next(|view| match progress(view, unit, op)? {
                    Progress::Waiting { .. } => Ok(None),
                    step => Ok(Some(step)),
                })
                .await?;
            match step {
                Some(Progress::Enough) => {
                    match self.write(&self.scope(), |view| ready(view, unit, op, FIRST_EPOCH)).await {
                        // A target died or failed in between: look again.
                        Err(CreateError::Refused(refusal)) if refusal.class == Class::NotYet => {
                            sleep(STORE_RETRY).await;
                        }
                        other => return other,
                    }
                }
                Some(Progress::Failed { reason }) => return Err(CreateError::Undone(reason)),
                Some(_) => return Err(CreateError::Undone("no target node is alive any more".into())),
                None => return Err(self.too_late()),
            }
        }
    }

    fn too_late(&self) -> CreateError {
        let view = self.host.views.borrow().clone();
        let waiting = match progress(&view, &self.wish.unit, &self.op) {
            Ok(Progress::Waiting { on }) => format!(": waited for {}", on.join(", ")),
            _ => String::new(),
        };
        CreateError::TimedOut(format!("not on enough nodes within {:?}{waiting}", self.wish.timeout))
    }

    /// The first answer that some view gives; none when time is up. Views from before the create say nothing.
    async fn next<T>(
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

    /// T4, and a moment for the nodes to delete what they have, so that the name is free when the client reads the
    /// answer. If it takes longer a dispatcher finishes it.
    async fn undo(&self, reason: &str) {
        let (unit, op) = (&self.wish.unit, &self.op);
        tracing::warn!(package = %unit, op, reason, "UploadNewICPDone: failed; undoing it everywhere");
        let until = Instant::now() + UNDO_WAIT;
        let given_up = self.within(until, self.host_write(|view| abort(view, unit, op, FIRST_EPOCH, reason)));
        if let Some(Err(refusal)) = given_up.await {
            tracing::warn!(package = %unit, %refusal, "the undoing is somebody else's");
            return;
        }
        self.within(until, self.finish_when_empty()).await;
    }

    async fn within<T>(&self, until: Instant, work: impl Future<Output = T>) -> Option<T> {
        timeout_at(until, work).await.ok()
    }

    async fn host_write<T: Send>(
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
        let (unit, op) = (&self.wish.unit, &self.op);
        let mut views = self.host.views.clone();
        loop {
            let view = views.borrow_and_update().clone();
            let rows = view.count(&below(CopyKey::PREFIX, unit)).unwrap_or(1);
            let found = view.get(&UnitKey::new(unit)).ok().flatten().filter(|unit| unit.op == *op);
            match found {
                Some(found) if rows == 0 => {
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
                _ => {}
            }
            if views.changed().await.is_err() {
                return;
            }
        }
    }

    async fn status(&self) -> Result<PackageStatus, CreateError> {
        let view = View::load(&*self.host.kv, self.scope()).await;
        let view = view.map_err(|e| CreateError::Unknown(e.to_string()))?;
        Ok(package_status(&view, &self.wish.unit)?)
    }
}

/// One sentence for the record.
pub fn reason_of(error: &CreateError) -> String {
    match error {
        CreateError::Refused(refusal) => refusal.text.clone(),
        CreateError::Received(ReceiveError::Store(error)) => error.to_string(),
        CreateError::Received(ReceiveError::Body(why)) => format!("the upload broke off: {why}"),
        CreateError::Undone(why) | CreateError::TimedOut(why) | CreateError::Unknown(why) => why.clone(),
        CreateError::NotRegistered => "this node is not registered now".into(),
    }
}
