//! This node's part in a register: looks at its own directory, says what it found, and takes the files over when the
//! coordinator announced exactly these. The crash table is `icp_store::adopt`'s.
//!
//! ```text
//! CREATING, origin register, no row of this boot        RegisterNewICP: inspect -> FETCHING with the digest, or FAILED
//! CREATING, announced, row FETCHING with the digest     adopt -> PRESENT with the digest, or FAILED
//! READY, PRESENT, tentative on disk                     confirm: from now on the files are the package's
//! READY, no row, a target that was away                 inspect; equal -> adopt -> PRESENT; else the user is told
//! PURGING (aborted), or nothing is known of it          give up: the files are the user's again
//! ```

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use icp_store::{Finding, InspectError, Inspection, StoreError};
use parking_lot::Mutex;
use records::keys::{CopyKey, UnitKey};
use records::packages::{adopted, failed, inspected, was_ready};
use records::record::{CopyState, PackageRef, Unit, UnitOrigin, UnitState};
use records::{Refusal, Scope, UnitId};

use crate::host::Host;
use crate::package_copy::{EnsureError, Trouble, delete, installed, load, report};
use crate::session::Tenure;

/// What this process found for registers, by operation: asked for by coordinators while one goes on.
#[derive(Debug, Default)]
pub struct Inspections {
    by_op: Mutex<HashMap<String, Looked>>,
}

#[derive(Debug, Clone)]
enum Looked {
    Files(Arc<Inspection>),
    Refused(Finding),
}

impl Inspections {
    /// What was found for an operation.
    pub fn finding(&self, op: &str) -> Option<Finding> {
        Some(match self.by_op.lock().get(op)? {
            Looked::Files(found) => Finding::Found { files: found.manifest.clone() },
            Looked::Refused(finding) => finding.clone(),
        })
    }

    /// Forgets those that nobody asks for any more.
    pub fn retain(&self, is_needed: impl Fn(&str) -> bool) {
        self.by_op.lock().retain(|op, _| is_needed(op));
    }

    fn put(&self, op: &str, looked: Looked) {
        self.by_op.lock().insert(op.to_owned(), looked);
    }

    fn files(&self, op: &str) -> Option<Arc<Inspection>> {
        match self.by_op.lock().get(op)? {
            Looked::Files(found) => Some(found.clone()),
            Looked::Refused(_) => None,
        }
    }
}

/// Whether the next step of a register is this node's: `said` is the state of this boot's row and its digest.
pub fn is_due(unit: &Unit, said: Option<(CopyState, bool)>) -> bool {
    match said {
        None => true,
        Some((CopyState::Fetching, inspected)) => !inspected || unit.manifest.is_some(),
        Some((CopyState::Present | CopyState::Failed | CopyState::Draining | CopyState::Corrupt, _)) => false,
    }
}

/// The next step.
pub async fn take_part(host: &Host, tenure: &Tenure, package: &PackageRef) -> Result<(), EnsureError> {
    let turn = host.turns.of(&package.op);
    let _mine = turn.lock().await;
    let view = load(host, tenure, Scope::package(&package.unit)).await?;
    let me = &tenure.session.me;
    let unit = view.get(&UnitKey::new(&package.unit))?.filter(|unit| unit.op == package.op);
    let Some(unit) = unit.filter(|unit| unit.state == UnitState::Creating) else { return Ok(()) };
    let row = view.get(&CopyKey::new(&package.unit, &me.node))?;
    let row = row.filter(|row| row.op == package.op && row.incarnation == me.incarnation);
    if !is_due(&unit, row.as_ref().map(|row| (row.state, row.digest.is_some()))) {
        return Ok(());
    }
    let found = match host.inspections.files(&package.op).filter(|_| row.is_some()) {
        Some(found) => found,
        None => match look(host, package, &unit).await? {
            Ok(found) => found,
            Err(error) => return refuse(host, tenure, package, &error).await,
        },
    };
    match &unit.manifest {
        None => say_found(host, tenure, package, &found).await,
        Some(announced) if *announced == found.digest().to_string() => {
            take_over(host, tenure, package, &found).await
        }
        Some(announced) => {
            let why = format!("these are not the files that were announced (digest {announced})");
            let path = ".".to_owned();
            refuse(host, tenure, package, &InspectError::Refused { path, why }).await
        }
    }
}

/// Makes room from what the records do not know any more, and hashes the files. The outer error is for a later try.
async fn look(
    host: &Host,
    package: &PackageRef,
    unit: &Unit,
) -> Result<Result<Arc<Inspection>, InspectError>, EnsureError> {
    let later = |e: StoreError| EnsureError::from(Trouble::from(e));
    if let Some((op, _)) = installed(host, &package.unit).await.map_err(later)?
        && op != package.op
    {
        delete(host, &package.unit, &op).await.map_err(later)?;
    }
    Ok(inspect(host, package, unit.from.clone()).await)
}

async fn inspect(
    host: &Host,
    package: &PackageRef,
    from: Option<String>,
) -> Result<Arc<Inspection>, InspectError> {
    let roots = register_roots(host);
    let PackageRef { unit, op } = package.clone();
    let found = host.on_disk(move |store| match from {
        None => store.inspect(&unit.name, &unit.version, &op),
        Some(dir) => store.inspect_elsewhere(&unit.name, &unit.version, dir.as_ref(), &roots),
    });
    found.await.map(Arc::new)
}

/// Directories whose files may be registered.
pub fn register_roots(host: &Host) -> Vec<PathBuf> {
    host.options.host.register_from.iter().map(PathBuf::from).collect()
}

async fn say_found(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    found: &Arc<Inspection>,
) -> Result<(), EnsureError> {
    host.inspections.put(&package.op, Looked::Files(found.clone()));
    let (digest, bytes) = (found.digest().to_string(), found.manifest.total_bytes());
    tracing::info!(package = %package.unit, op = package.op, digest, bytes, "RegisterNewICP: inspected");
    let report = report(tenure, package);
    let scope = Scope::package(&package.unit);
    Ok(host.insist(tenure, &scope, |view| inspected(view, &report, &digest, bytes)).await?)
}

async fn take_over(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    found: &Arc<Inspection>,
) -> Result<(), EnsureError> {
    if let Err(error) = adopt(host, package, found).await {
        return refuse(host, tenure, package, &error).await;
    }
    let (digest, bytes) = (found.digest().to_string(), found.manifest.total_bytes());
    tracing::info!(package = %package.unit, op = package.op, digest, "RegisterNewICPDone: here");
    let report = report(tenure, package);
    let scope = Scope::package(&package.unit);
    Ok(host.insist(tenure, &scope, |view| adopted(view, &report, &digest, bytes)).await?)
}

async fn adopt(host: &Host, package: &PackageRef, found: &Arc<Inspection>) -> Result<(), InspectError> {
    let (PackageRef { unit, op }, found) = (package.clone(), found.clone());
    host.on_disk(move |store| store.adopt(&unit.name, &unit.version, &op, &found)).await
}

async fn refuse(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    error: &InspectError,
) -> Result<(), EnsureError> {
    host.inspections.put(&package.op, Looked::Refused(error.into()));
    let why = format!("{}: {error}", error.state());
    tracing::warn!(package = %package.unit, op = package.op, why, "RegisterNewICPDone: not here");
    let report = report(tenure, package);
    let scope = Scope::package(&package.unit);
    Ok(host.insist(tenure, &scope, |view| failed(view, &report, &why)).await?)
}

/// The package was READY: registered files on this disk are its own from now on.
pub async fn confirm(host: &Host, package: &PackageRef) -> Result<(), EnsureError> {
    let turn = host.turns.of(&package.op);
    let _mine = turn.lock().await;
    let PackageRef { unit, op } = package.clone();
    let confirmed = host.on_disk(move |store| store.confirm(&unit.name, &unit.version, &op)).await;
    confirmed.map(|_| ()).map_err(|e| Trouble::from(e).into())
}

/// A target of a register that was away when the others took theirs over: what lies in its place is the package if it
/// is equal. Other files of the user are neither replaced nor deleted. None if there is nothing and it is to be
/// fetched; nodes that were not asked to register what they have are left alone too.
pub async fn adopt_late(host: &Host, unit: &UnitId, found: &Unit) -> Result<Option<u64>, Trouble> {
    let concerned = found.origin == UnitOrigin::Register
        && found.from.is_none()
        && found.targets.contains(&host.options.name)
        && was_ready(found);
    if !concerned {
        return Ok(None);
    }
    let package = PackageRef { unit: unit.clone(), op: found.op.clone() };
    let here = match inspect(host, &package, None).await {
        Ok(here) => here,
        Err(InspectError::Missing(_)) => return Ok(None),
        Err(error) => return Err(in_the_way(unit, &error.to_string())),
    };
    if found.manifest != Some(here.digest().to_string()) {
        return Err(in_the_way(unit, "they are not the registered files"));
    }
    adopt(host, &package, &here).await.map_err(|e| in_the_way(unit, &e.to_string()))?;
    Ok(Some(here.manifest.total_bytes()))
}

fn in_the_way(unit: &UnitId, why: &str) -> Trouble {
    let why = format!("files lie where {unit} belongs and are not replaced: {why}; move them away");
    Trouble { code: "OCCUPIED", why }
}

/// Digest of `from` on this node, for a register of what is READY already.
pub async fn digest_of(host: &Host, unit: &UnitId, from: String) -> Result<String, Refusal> {
    let package = PackageRef { unit: unit.clone(), op: "compare".into() };
    let found = inspect(host, &package, Some(from)).await;
    found.map(|found| found.digest().to_string()).map_err(|e| Refusal::bad_request(e.to_string()))
}
