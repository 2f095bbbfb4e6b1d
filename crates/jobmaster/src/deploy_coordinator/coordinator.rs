//! One create, step by step.

use std::sync::Arc;

use icp_store::{Manifest, Sealed, StoreError};
use meta_types::LeaseId;
use process_kit::Form;
use records::keys::UnitKey;
use records::packages::{
    CopyReport, PackageStatus, Reserve, Reserved, announce, present, reserve, take_over,
};
use records::record::{NodeRef, PackageRef, UnitState};
use records::{Class, Failure, Refusal, Scope, View, carry_out};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::upload::Upload;
use super::{Create, CreateError, Listed, TAKEN_OVER_DEADLINE, busy, reason_of};
use crate::host::{Host, now_ms};
use crate::limits::{REQUEST_KEPT, STORE_RETRY};
use crate::operation::Operation;
use crate::package_copy::to_record;
use crate::receive::receive;
use crate::session::Tenure;

/// A create and who carries it.
pub(super) struct Coordinator {
    pub me: NodeRef,
    pub operation: Operation,
}

impl Coordinator {
    pub fn new(host: Arc<Host>, wish: &Create) -> Result<Self, CreateError> {
        let Some(session) = host.session.borrow().clone() else { return Err(CreateError::NotRegistered) };
        let operation =
            Operation::new(host, wish.unit.clone(), wish.timeout).with_request(wish.request.clone());
        Ok(Self { me: session.me, operation })
    }

    /// Makes this node the coordinator of a create whose own is lost.
    pub async fn taking_over(
        host: Arc<Host>,
        tenure: &Tenure,
        package: &PackageRef,
    ) -> Result<Self, Refusal> {
        let me = tenure.session.me.clone();
        let PackageRef { unit, op } = package;
        let scope = Scope::package(unit);
        let epoch = host.insist(tenure, &scope, |view| take_over(view, unit, op, &me)).await?;
        let view = View::load(&*host.kv, scope).await.map_err(|e| Refusal::not_yet(e.to_string()))?;
        let found = view.get(&UnitKey::new(unit))?;
        let request = found.and_then(|found| found.request.clone());
        let operation =
            Operation::taken_over(host, package, epoch, TAKEN_OVER_DEADLINE).with_request(request);
        Ok(Self { me, operation })
    }

    pub async fn create_from_body(&self, wish: &Create, body: Form) -> Result<PackageStatus, CreateError> {
        let unit = &self.operation.unit;
        match self.reserve(wish, None).await {
            Ok(Reserved::Started { targets }) => {
                tracing::info!(package = %unit, op = self.operation.op, ?targets, "UploadNewICP: create begun");
                let begun = self.receive_and_announce(&targets, body, wish.declared_bytes).await;
                self.conclude(begun).await
            }
            Ok(Reserved::Ready { digest, .. }) => self.compare(digest, body).await,
            Ok(Reserved::Joined { .. }) => Err(busy(unit)),
            Err(error) => Err(error),
        }
    }

    /// T1 with the files of the package.
    pub async fn reserve_listed(&self, wish: &Create, manifest: &Manifest) -> Result<Reserved, CreateError> {
        self.reserve(wish, Some(manifest)).await
    }

    /// The upload of what was reserved with its list; `answer` hears what is to be sent.
    pub async fn create_listed(
        &self,
        targets: &[String],
        manifest: Manifest,
        answer: oneshot::Sender<Listed>,
    ) -> Result<PackageStatus, CreateError> {
        tracing::info!(package = %self.operation.unit, op = self.operation.op, ?targets, "UploadNewICP: create begun");
        let begun = self.upload_and_announce(targets, manifest, answer).await;
        self.operation.host.uploads.remove(&self.operation.op);
        self.conclude(begun).await
    }

    async fn upload_and_announce(
        &self,
        targets: &[String],
        manifest: Manifest,
        answer: oneshot::Sender<Listed>,
    ) -> Result<(), CreateError> {
        let upload = Arc::new(Upload::open(&self.operation.host, &self.operation.op, manifest).await?);
        self.operation.host.uploads.add(&self.operation.op, &upload);
        let peers = upload.look_around(&self.operation.host, &self.me.node).await;
        // A client that is gone comes back with the same request, or its upload is given up below.
        let _ = answer.send(Listed::Begun { op: self.operation.op.clone(), missing: upload.missing() });
        let sealed = tokio::select! {
            sealed = upload.complete(&self.operation.host, peers, self.operation.deadline) => sealed?,
            over = self.superseded() => return Err(over?),
        };
        self.publish_and_announce(targets, sealed).await
    }

    /// T1, waiting within the deadline for what goes away by itself.
    async fn reserve(&self, wish: &Create, manifest: Option<&Manifest>) -> Result<Reserved, CreateError> {
        let mut wish = Reserve {
            unit: self.operation.unit.clone(),
            op: self.operation.op.clone(),
            origin: wish.origin,
            coordinator: self.me.clone(),
            manifest: manifest.map(|manifest| (manifest.digest().to_string(), to_record(manifest))),
            uploading: manifest.is_some(),
            targets: wish.targets.clone(),
            policy: wish.policy,
            request: None,
            now_ms: now_ms(),
            from: None,
        };
        let mut scope = self.operation.scope();
        if let Some((digest, _)) = &wish.manifest {
            scope = scope.and_manifest(digest);
        }
        let mut lease = None;
        loop {
            if let (Some(request), None) = (&self.operation.request, lease) {
                lease = Some(self.request_lease().await?);
                wish.request = lease.map(|lease| (request.clone(), lease));
            }
            match carry_out(&*self.operation.host.kv, &scope, |view| reserve(view, &wish)).await {
                Err(Failure::Refused(refusal))
                    if refusal.transient && Instant::now() < self.operation.deadline =>
                {
                    sleep(STORE_RETRY).await;
                }
                Ok(done) if matches!(done.answer, Reserved::Started { .. }) => return Ok(done.answer),
                // Unknown: it may hang on the lease by now.
                Err(failure @ (Failure::Store(_) | Failure::Contended)) => return Err(failure.into()),
                other => {
                    if let Some(lease) = lease {
                        let _ = self.operation.host.kv.lease_revoke(lease).await;
                    }
                    return Ok(other?.answer);
                }
            }
        }
    }

    /// The lease that the outcome of a request hangs on.
    async fn request_lease(&self) -> Result<LeaseId, CreateError> {
        let granted = self.operation.host.kv.lease_grant(0, REQUEST_KEPT).await;
        Ok(granted.map_err(|error| CreateError::Unknown(error.to_string()))?.id)
    }

    /// It exists: the same content is fine, other content is not.
    async fn compare(&self, digest: Option<String>, body: Form) -> Result<PackageStatus, CreateError> {
        let received =
            timeout_at(self.operation.deadline, receive(&self.operation.host, &self.operation.op, body))
                .await;
        self.discard_staging().await;
        let sealed = received.map_err(|_| CreateError::TimedOut("the upload took too long".into()))?;
        let sealed = sealed.map_err(CreateError::Received)?;
        if digest == Some(sealed.manifest.digest().to_string()) {
            return self.operation.status().await;
        }
        let text = format!(
            "{} already exists with other content: remove it first or use another version",
            self.operation.unit
        );
        Err(Refusal::new(Class::Exists, text).into())
    }

    /// What is announced becomes READY; anything else is undone.
    async fn conclude(&self, begun: Result<(), CreateError>) -> Result<PackageStatus, CreateError> {
        match begun {
            Ok(()) => self.finish_create().await,
            Err(error) => self.give_up(error).await,
        }
    }

    /// From the announcement to READY.
    pub async fn finish_create(&self) -> Result<PackageStatus, CreateError> {
        match self.operation.until_ready().await {
            Ok(()) => {
                // The targets have their own copies.
                self.discard_staging().await;
                tracing::info!(package = %self.operation.unit, op = self.operation.op, "UploadNewICPDone: READY");
                self.operation.status().await
            }
            Err(error) => self.give_up(error).await,
        }
    }

    async fn give_up(&self, error: CreateError) -> Result<PackageStatus, CreateError> {
        self.discard_staging().await;
        self.operation.undo(&reason_of(&error)).await;
        Err(error)
    }

    async fn receive_and_announce(
        &self,
        targets: &[String],
        body: Form,
        declared: u64,
    ) -> Result<(), CreateError> {
        let enough = self.operation.host.on_disk(move |store| store.check_space(declared)).await;
        enough.map_err(|error| self.of_disk(&error))?;
        let received =
            timeout_at(self.operation.deadline, receive(&self.operation.host, &self.operation.op, body))
                .await;
        let received = received.map_err(|_| CreateError::TimedOut("the upload took too long".into()))?;
        self.publish_and_announce(targets, received.map_err(CreateError::Received)?).await
    }

    fn of_disk(&self, error: &StoreError) -> CreateError {
        CreateError::of_disk(&self.me.node, error)
    }

    async fn publish_and_announce(&self, targets: &[String], sealed: Sealed) -> Result<(), CreateError> {
        let manifest = sealed.manifest.clone();
        let is_target = targets.contains(&self.me.node);
        if is_target {
            self.publish(sealed).await.map_err(|error| self.of_disk(&error))?;
        }
        let digest = manifest.digest().to_string();
        let record = to_record(&manifest);
        let scope = self.operation.scope().and_manifest(&digest);
        self.operation
            .write(&scope, false, |view| {
                announce(
                    view,
                    &self.operation.unit,
                    &self.operation.op,
                    self.operation.epoch,
                    &digest,
                    &record,
                )
            })
            .await?;
        if is_target {
            let report = CopyReport {
                unit: self.operation.unit.clone(),
                op: self.operation.op.clone(),
                me: self.me.clone(),
                for_job: None,
            };
            self.operation
                .write(&self.operation.scope(), false, |view| present(view, &report, manifest.total_bytes()))
                .await?;
        }
        Ok(())
    }

    async fn publish(&self, sealed: Sealed) -> Result<(), StoreError> {
        let unit = self.operation.unit.clone();
        self.operation.host.on_disk(move |_| sealed.publish(&unit.name, &unit.version)).await?;
        self.operation.host.disk_changed.notify_one();
        Ok(())
    }

    async fn discard_staging(&self) {
        let op = self.operation.op.clone();
        if let Err(error) = self.operation.host.on_disk(move |store| store.discard(&op)).await {
            tracing::warn!(%error, "what was received cannot be deleted yet");
        }
    }

    /// Returns when the create is over though nothing here ended it: removed by force, or taken over.
    async fn superseded(&self) -> Result<CreateError, CreateError> {
        let key = UnitKey::new(&self.operation.unit);
        let over = |view: &View| {
            let found = view.get(&key)?;
            let ours = found.as_ref().is_some_and(|found| {
                found.op == self.operation.op
                    && found.state == UnitState::Creating
                    && found.epoch == self.operation.epoch
            });
            let why = found.and_then(|found| found.error.clone());
            Ok((!ours).then(|| why.unwrap_or_else(|| "it was removed".into())))
        };
        match self.operation.next(over).await? {
            Some(why) => {
                Ok(Refusal::fenced(format!("{} is no longer created here: {why}", self.operation.unit))
                    .into())
            }
            None => Ok(CreateError::TimedOut("the upload took too long".into())),
        }
    }
}
