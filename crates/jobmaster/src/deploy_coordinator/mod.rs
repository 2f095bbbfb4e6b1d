//! The deploy coordinator: carries one create from the reservation to READY, or undoes it everywhere.
//!
//! ```text
//! of a body   T1 reserve -> receive and hash the files -> publish here -> announce the manifest
//! of a list   T1 reserve with the manifest -> the client sends what no node has -> publish here -> announce
//! then        N1 PRESENT here -> targets fetch, verify, publish, N1 -> enough PRESENT: T3 READY
//!                                              a live target failed, time is up: T4 undo
//! ```
//! The proposal's UploadNewICP is the announced record that each target's agent reacts to; UploadNewICPDone is the
//! target's own row. Nothing is sent that could be lost. If this process dies, a node that holds the whole package
//! takes the create over (T2'); if none does, a dispatcher undoes it after the grace.

mod coordinator;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use icp_store::{Manifest, StoreError};
use process_kit::{Form, FormError};
use records::packages::{PackageStatus, Reserved, Targets};
use records::record::{PackageRef, Policy, UnitOrigin};
use records::{Class, Failure, Refusal, UnitId};
use tokio::sync::oneshot;

use self::coordinator::Coordinator;
pub use self::upload::{MissingFile, Upload, UploadError, Uploads};
use crate::host::Host;
use crate::limits::CREATE_DEADLINE;
use crate::metrics::End;
use crate::package_copy::{EnsureError, Trouble};
use crate::receive::ReceiveError;
use crate::session::Tenure;

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
    /// The client's name for this request: under it the outcome is kept.
    pub request: Option<String>,
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
    /// The same, because a node's disk is full.
    Full(String),
    /// Time is up; undone.
    TimedOut(String),
    /// The store did not answer: it may be going on.
    Unknown(String),
    /// This node is not registered now.
    NotRegistered,
}

impl CreateError {
    /// What a node's disk said undoes the create.
    pub fn of_disk(node: &str, error: &StoreError) -> Self {
        let text = format!("node {node} failed: {error}");
        if error.code() == "ENOSPC" { Self::Full(text) } else { Self::Undone(text) }
    }
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

impl From<StoreError> for CreateError {
    fn from(error: StoreError) -> Self {
        Self::Received(ReceiveError::Store(error))
    }
}

/// Creates the package from the body. Runs to its end on a task of its own: a client that hangs up does not leave a
/// create behind that nobody carries.
pub async fn create(host: Arc<Host>, wish: Create, body: Form) -> Result<PackageStatus, CreateError> {
    let task = tokio::spawn(async move {
        let coordinator = Coordinator::new(host, &wish)?;
        counted(coordinator, async |coordinator| coordinator.create_from_body(&wish, body).await).await
    });
    task.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
}

/// What a client that listed its files is told.
#[derive(Debug)]
pub enum Listed {
    /// The same content is READY.
    Ready(Box<PackageStatus>),
    /// The create goes on; these files are to be sent.
    Begun {
        /// Its operation.
        op: String,
        /// What no node has.
        missing: Vec<MissingFile>,
    },
}

/// Reserves the package with its files and answers what is to be sent; the create goes on when it is here, on a task
/// of its own.
pub async fn create_listed(host: Arc<Host>, wish: Create, manifest: Manifest) -> Result<Listed, CreateError> {
    let (answer, answered) = oneshot::channel();
    let task = tokio::spawn(async move {
        let coordinator = Coordinator::new(host, &wish)?;
        carry_listed(coordinator, wish, manifest, answer).await
    });
    tokio::select! {
        biased;
        Ok(begun) = answered => Ok(begun),
        ended = task => match ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))? {
            Some(listed) => Ok(listed),
            None => Err(CreateError::Undone("the create ended before its upload began".into())),
        },
    }
}

async fn carry_listed(
    coordinator: Coordinator,
    wish: Create,
    manifest: Manifest,
    answer: oneshot::Sender<Listed>,
) -> Result<Option<Listed>, CreateError> {
    match coordinator.reserve_listed(&wish, &manifest).await? {
        Reserved::Ready { .. } => Ok(Some(Listed::Ready(Box::new(coordinator.operation.status().await?)))),
        // The same request again: what it still lacks.
        Reserved::Joined { op } => {
            let missing = coordinator.operation.host.uploads.get(&op).map(|upload| upload.missing());
            Ok(Some(Listed::Begun { op, missing: missing.unwrap_or_default() }))
        }
        Reserved::Started { targets } => {
            let upload =
                async |coordinator: &Coordinator| coordinator.create_listed(&targets, manifest, answer).await;
            counted(coordinator, upload).await.map(|_| None)
        }
    }
}

/// T2': goes on with a create whose coordinator is lost; this node holds the whole package.
pub async fn take_over(host: &Arc<Host>, tenure: &Tenure, package: &PackageRef) -> Result<(), EnsureError> {
    let coordinator = Coordinator::taking_over(host.clone(), tenure, package).await?;
    let timeout = coordinator.operation.timeout;
    tracing::info!(package = %package.unit, op = package.op, epoch = coordinator.operation.epoch, "create taken over");
    match counted(coordinator, async |coordinator| coordinator.finish_create().await).await {
        Ok(_) => Ok(()),
        Err(CreateError::Refused(refusal)) => Err(EnsureError::Refused(refusal)),
        Err(error) => {
            tracing::warn!(package = %package.unit, ?timeout, "a create that was taken over failed");
            Err(Trouble { code: "UNDONE", why: reason_of(&error) }.into())
        }
    }
}

/// Counts the end of a create.
async fn counted<T>(
    coordinator: Coordinator,
    carry: impl AsyncFnOnce(&Coordinator) -> Result<T, CreateError>,
) -> Result<T, CreateError> {
    let outcome = carry(&coordinator).await;
    let end = if outcome.is_ok() { "ok" } else { "failed" };
    coordinator.operation.host.metrics.creates.get_or_create(&End { end }).inc();
    outcome
}

/// One sentence for the record.
pub fn reason_of(error: &CreateError) -> String {
    match error {
        CreateError::Refused(refusal) => refusal.text.clone(),
        CreateError::Received(ReceiveError::Store(error)) => error.to_string(),
        CreateError::Received(ReceiveError::Body(FormError::Broken(why))) => {
            format!("the upload broke off: {why}")
        }
        CreateError::Received(ReceiveError::Body(error)) => error.to_string(),
        CreateError::Undone(why)
        | CreateError::Full(why)
        | CreateError::TimedOut(why)
        | CreateError::Unknown(why) => why.clone(),
        CreateError::NotRegistered => "this node is not registered now".into(),
    }
}

/// How long a create that was taken over may still take.
const TAKEN_OVER_DEADLINE: Duration = CREATE_DEADLINE;

fn busy(unit: &UnitId) -> CreateError {
    Refusal::new(Class::InProgress, format!("{unit} is being created by the same request")).into()
}
