//! The register coordinator: carries one register from the reservation to READY, or undoes it. No byte is sent: the
//! files lie on the nodes, and `register_target` is what each of them does.
//!
//! ```text
//! T1 reserve(origin register) -> every live target: FETCHING with the digest of what it found, or FAILED
//!   -> not all equal, or one has nothing: ask each node for its list, T4, answer which node and file is to blame
//!   -> equal (and as expected): announce -> every live target PRESENT: T3 READY | one failed, time is up: T4
//! ```
//! The proposal's RegisterNewICP is the reserved record that each target's agent reacts to; RegisterNewICPDone is the
//! target's own row. If this process dies, the record names a coordinator that is gone: a dispatcher undoes the
//! register after the grace, and the nodes give the files back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use icp_store::peer::{self, Peer};
use icp_store::{Digest, Finding, Manifest};
use records::keys::NodeKey;
use records::packages::{
    Inspections, PackageStatus, Reserve, Reserved, Targets, announce, inspections, reserve,
};
use records::record::{Policy, UnitOrigin};
use records::{Class, Refusal, UnitId, View};
use tokio::time::{Instant, sleep};

use crate::deploy_coordinator::{CreateError, reason_of};
use crate::host::{Host, now_ms};
use crate::limits::STORE_RETRY;
use crate::metrics::End;
use crate::operation::Operation;
use crate::package_copy::to_record;
use crate::register_report::{Blame, Findings, Report, Row, compare, unexpected};
use crate::register_target::digest_of;
use crate::session::Session;

/// What a client wants.
#[derive(Debug, Clone)]
pub struct Register {
    /// The package.
    pub unit: UnitId,
    /// The directory on each node; none = the package's own place.
    pub from: Option<String>,
    /// Which nodes.
    pub targets: Targets,
    /// What the files must be.
    pub expect: Option<Digest>,
    /// How long it may take.
    pub timeout: Duration,
}

/// A package that was registered.
#[derive(Debug, Clone)]
pub struct Registered {
    /// What the records say of it.
    pub status: PackageStatus,
    /// One row a node.
    pub rows: Vec<Row>,
}

/// Why there is none.
#[derive(Debug)]
pub enum RegisterError {
    /// As a create can fail.
    Create(CreateError),
    /// The files of the nodes.
    Files(Report),
}

impl<E: Into<CreateError>> From<E> for RegisterError {
    fn from(error: E) -> Self {
        Self::Create(error.into())
    }
}

/// Registers what lies on the nodes. Runs to its end on a task of its own, whatever becomes of the client.
pub async fn register(host: Arc<Host>, wish: Register) -> Result<Registered, RegisterError> {
    let metrics = host.metrics.clone();
    let task = tokio::spawn(async move {
        let Some(session) = host.session.borrow().clone() else {
            return Err(CreateError::NotRegistered.into());
        };
        let operation = Operation::new(host, wish.unit.clone(), wish.timeout);
        Coordinator { session, wish, operation }.run().await
    });
    let outcome = task.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
    let end = if outcome.is_ok() { "ok" } else { "failed" };
    metrics.registers.get_or_create(&End { end }).inc();
    outcome
}

struct Coordinator {
    session: Session,
    wish: Register,
    operation: Operation,
}

impl Coordinator {
    async fn run(self) -> Result<Registered, RegisterError> {
        let (unit, op) = (&self.wish.unit, &self.operation.op);
        let wish = Reserve {
            unit: unit.clone(),
            op: op.clone(),
            origin: UnitOrigin::Register,
            coordinator: self.session.me.clone(),
            manifest: None,
            uploading: false,
            targets: self.wish.targets.clone(),
            policy: Policy::All,
            request: None,
            now_ms: now_ms(),
            from: self.wish.from.clone(),
        };
        let scope = self.operation.scope();
        match self.operation.write(&scope, true, |view| reserve(view, &wish)).await? {
            Reserved::Started { targets } => {
                tracing::info!(package = %unit, op, ?targets, from = wish.from, "RegisterNewICP: begun");
                self.carry().await
            }
            Reserved::Ready { digest, .. } => self.compare_with_ready(digest).await,
            Reserved::Joined { .. } => {
                Err(Refusal::new(Class::InProgress, format!("{unit} is being created by the same request"))
                    .into())
            }
        }
    }

    /// It exists: the same files are fine, others are not.
    async fn compare_with_ready(&self, digest: Option<String>) -> Result<Registered, RegisterError> {
        let unit = &self.wish.unit;
        let exists = |found: &str| {
            let digest = digest.as_deref().unwrap_or("unknown");
            Refusal::new(
                Class::Exists,
                format!(
                    "{unit} already exists with digest {digest}, not {found}: remove it first or use another version"
                ),
            )
        };
        if let Some(expect) = self.wish.expect.map(|expect| expect.to_string())
            && digest.as_ref() != Some(&expect)
        {
            return Err(exists(&expect).into());
        }
        if let Some(from) = self.wish.from.clone() {
            let found = digest_of(&self.operation.host, unit, from).await?;
            if digest.as_ref() != Some(&found) {
                return Err(exists(&found).into());
            }
        }
        self.registered().await
    }

    async fn carry(&self) -> Result<Registered, RegisterError> {
        let (unit, op) = (&self.wish.unit, &self.operation.op);
        match self.agree().await {
            Ok(()) => {
                tracing::info!(package = %unit, op, "RegisterNewICPDone: READY");
                self.registered().await
            }
            Err(error) => {
                let reason = match &error {
                    RegisterError::Create(error) => reason_of(error),
                    RegisterError::Files(report) => report.text.clone(),
                };
                self.operation.undo(&reason).await;
                Err(error)
            }
        }
    }

    async fn agree(&self) -> Result<(), RegisterError> {
        let (unit, op) = (&self.wish.unit, &self.operation.op);
        let said = self.until_all_looked().await?;
        let manifest = self.judge(&said).await?;
        let (digest, record) = (manifest.digest().to_string(), to_record(&manifest));
        let scope = self.operation.scope().and_manifest(&digest);
        self.operation
            .write(&scope, false, |view| announce(view, unit, op, self.operation.epoch, &digest, &record))
            .await?;
        let error = match self.operation.until_ready().await {
            Err(error @ (CreateError::Undone(_) | CreateError::Full(_))) => error,
            held => return Ok(held?),
        };
        // What a node found when it was to take the files over.
        let said = inspections(&self.fresh().await?, unit, op)?;
        let failed: Vec<&String> = said.failed.iter().map(|(node, _)| node).collect();
        if failed.is_empty() {
            return Err(error.into());
        }
        match compare(&self.ask(&failed).await?, None) {
            Err(report) => {
                let text = reason_of(&error);
                Err(RegisterError::Files(Report { text, blame: Blame::Unusable, ..report }))
            }
            Ok(_) => Err(error.into()),
        }
    }

    /// Every live target said what it found.
    async fn until_all_looked(&self) -> Result<Inspections, RegisterError> {
        let (unit, op) = (&self.wish.unit, &self.operation.op);
        let mut waiting = Vec::new();
        let said = self.operation.next(|view| {
            let said = inspections(view, unit, op)?;
            waiting.clone_from(&said.waiting);
            Ok(said.waiting.is_empty().then_some(said))
        });
        let said = said.await?;
        said.ok_or_else(|| {
            let text = format!(
                "not every node hashed its files within {:?}: waited for {}",
                self.wish.timeout,
                waiting.join(", ")
            );
            CreateError::TimedOut(text).into()
        })
    }

    /// The list that all agree on. Only if they do not is each asked for its own.
    async fn judge(&self, said: &Inspections) -> Result<Manifest, RegisterError> {
        let digests: BTreeSet<&String> = said.found.iter().map(|(_, digest)| digest).collect();
        let (Some(digest), true, 1) = (digests.first(), said.failed.is_empty(), digests.len()) else {
            let nodes: Vec<&String> = said.found.iter().chain(&said.failed).map(|(node, _)| node).collect();
            return match compare(&self.ask(&nodes).await?, self.wish.expect.as_ref()) {
                Err(report) => Err(RegisterError::Files(report)),
                Ok(_) => Err(CreateError::Undone("the nodes contradict their rows: try again".into()).into()),
            };
        };
        let nodes: Vec<&String> = said.found.iter().map(|(node, _)| node).collect();
        if let Some(expect) = self.wish.expect.filter(|expect| expect.to_string() != **digest) {
            return Err(RegisterError::Files(unexpected(&nodes, digest, &expect)));
        }
        for node in nodes {
            match self.ask(&[node]).await?.remove(node) {
                Some(Finding::Found { files }) if files.digest().to_string() == **digest => return Ok(files),
                other => tracing::warn!(node, ?other, "a node did not send the list that it stands for"),
            }
        }
        Err(CreateError::Undone("no node sends the list of its files: try again".into()).into())
    }

    /// What these nodes found, in full. One that does not answer has a row that says so.
    async fn ask(&self, nodes: &[&String]) -> Result<Findings, RegisterError> {
        let view = self.fresh().await?;
        let (client, host) = (peer::client(), &self.operation.host);
        let asked = nodes.iter().map(|node| {
            let address = view.get(&NodeKey::new(node)).ok().flatten().and_then(|n| n.value.node_address);
            let client = client.clone();
            async move {
                let found = match address {
                    _ if **node == host.options.name => host
                        .inspections
                        .finding(&self.operation.op)
                        .ok_or("it forgot what it found".to_owned()),
                    Some(address) => self.ask_one(Peer::new(client, address)).await,
                    None => Err("it is gone".to_owned()),
                };
                let found = found.unwrap_or_else(|error| Finding::Refused {
                    state: "UNREACHABLE".into(),
                    file: None,
                    error,
                });
                ((*node).clone(), found)
            }
        });
        Ok(join_all(asked).await.into_iter().collect::<BTreeMap<_, _>>())
    }

    async fn ask_one(&self, peer: Peer) -> Result<Finding, String> {
        let UnitId { name, version, .. } = &self.wish.unit;
        peer.inspection(name, version, &self.operation.op).await.map_err(|e| e.to_string())
    }

    async fn fresh(&self) -> Result<View, RegisterError> {
        // A leader that dies now is no reason to give the register up.
        loop {
            match View::load(&*self.operation.host.kv, self.operation.scope()).await {
                Ok(view) => return Ok(view),
                Err(error) if Instant::now() >= self.operation.deadline => {
                    return Err(CreateError::Unknown(error.to_string()).into());
                }
                Err(_) => sleep(STORE_RETRY).await,
            }
        }
    }

    async fn registered(&self) -> Result<Registered, RegisterError> {
        let status = self.operation.status().await?;
        let rows = status.nodes.iter().map(|copy| {
            let state = if copy.status == "PRESENT" { "OK" } else { copy.status };
            Row::whole(&copy.node, if copy.alive { state } else { "OFFLINE" })
        });
        Ok(Registered { rows: rows.collect(), status })
    }
}
