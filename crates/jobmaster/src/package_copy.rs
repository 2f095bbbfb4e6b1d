//! One node's copy of a package: having it, and giving it up. Whoever changes a copy holds its turn, so that a job's
//! fetch, the agent's and a deletion never cross.

use std::collections::HashSet;
use std::sync::Arc;

use icp_store::{FetchError, FileEntry, GivenUp, Manifest as DiskManifest, StoreError, Wanted};
use meta_client::TypedKey;
use rand::seq::SliceRandom;
use records::keys::{CopyKey, ManifestKey, NodeKey, UnitKey, below};
use records::packages::{CopyReport, disk_full, drains, dropped, failed, fetching, present, was_ready};
use records::record::{Copy, CopyState, Manifest, ManifestFile, NodeRef, PackageRef, Unit, UnitState};
use records::{Class, JobId, Plan, Refusal, Scope, UnitId, View, nodes};
use tokio::time::sleep;

use crate::host::Host;
use crate::limits::STORE_RETRY;
use crate::metrics::End;
use crate::package_repair::{Suspect, Turn};
use crate::register_target::adopt_late;
use crate::session::Tenure;

/// Why a package is not here.
#[derive(Debug)]
pub enum EnsureError {
    /// It may not be here, or no longer.
    Refused(Refusal),
    /// It cannot be had: disk or sources.
    Failed(Trouble),
}

/// What is wrong with the disk or the sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word for programs: `ENOSPC`, `EIO`, `NO_SOURCE`, ...
    pub code: &'static str,
    /// In words.
    pub why: String,
}

impl Trouble {
    /// What the node says about its copy.
    pub fn plan(&self, view: &View, report: &CopyReport) -> Result<Plan<()>, Refusal> {
        let says = if self.code == "ENOSPC" { disk_full } else { failed };
        says(view, report, &self.why)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self { code: error.code(), why: error.to_string() }
    }
}

impl From<FetchError> for Trouble {
    fn from(error: FetchError) -> Self {
        Self { code: error.code(), why: error.to_string() }
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self { code: refusal.class.code(), why: refusal.text }
    }
}

impl From<Trouble> for EnsureError {
    fn from(trouble: Trouble) -> Self {
        Self::Failed(trouble)
    }
}

/// For whom a copy is made sure of.
#[derive(Debug, Clone, Copy)]
pub enum For<'a> {
    /// The node.
    Node,
    /// A job that may still start here, later.
    Pin(&'a JobId),
    /// A job that is about to start and holds the gate.
    Start(&'a JobId),
}

impl From<Refusal> for EnsureError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A manifest as the records have it.
pub fn to_record(manifest: &DiskManifest) -> Manifest {
    let files = manifest.files().iter().map(|file| ManifestFile {
        path: file.path.clone(),
        size: file.size,
        hash: file.blake3.to_string(),
        executable: false,
    });
    Manifest { files: files.collect(), holders: Vec::new(), extra: Default::default() }
}

/// A manifest as the disk has it, if it is the one with this digest.
fn from_record(record: &Manifest, digest: &str) -> Result<DiskManifest, String> {
    let files: Result<Vec<FileEntry>, String> = record
        .files
        .iter()
        .map(|file| {
            let blake3 = file.hash.parse()?;
            Ok(FileEntry { path: file.path.clone(), size: file.size, blake3 })
        })
        .collect();
    let manifest = DiskManifest::new(files?).map_err(|e| e.to_string())?;
    if manifest.digest().to_string() != digest {
        return Err(format!("the manifest record does not have digest {digest}"));
    }
    Ok(manifest)
}

/// Makes sure that the package is PRESENT here under `package.op`. Calls for one package wait for each other: the
/// first fetches, the others find it here.
pub async fn ensure(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    whom: For<'_>,
) -> Result<(), EnsureError> {
    let (for_job, waiting) = match whom {
        For::Node => (None, None),
        For::Pin(job) => (Some(job), None),
        For::Start(job) => (Some(job), Some(host.gates.wait(&package.op))),
    };
    let turn: Turn = Arc::new(host.turns.of(&package.op).lock_owned().await);
    let done = ensure_alone(host, tenure, package, for_job, &turn).await;
    // Before the turn: see `Gates::wait`.
    drop(waiting);
    done
}

/// [`ensure`], with the turn held.
async fn ensure_alone(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    for_job: Option<&JobId>,
    turn: &Turn,
) -> Result<(), EnsureError> {
    let unit = &package.unit;
    let report = CopyReport {
        unit: unit.clone(),
        op: package.op.clone(),
        me: tenure.session.me.clone(),
        for_job: for_job.cloned(),
    };
    let view = load(host, tenure, Scope::package(unit)).await?;
    let Some(found) = view.get(&UnitKey::new(unit))?.filter(|found| found.op == package.op) else {
        return Err(Refusal::new(Class::UnitNotReady, format!("package {unit} is gone")).into());
    };
    let scope = Scope::package(unit);
    let on_disk = installed(host, unit).await.map_err(Trouble::from)?;
    if let Some((op, bytes)) = on_disk {
        if op == package.op {
            let row = view.get(&CopyKey::new(unit, &report.me.node))?.filter(|row| row.op == op);
            if row.as_ref().is_some_and(|row| is_usable(row, &report)) {
                return Ok(());
            }
            // What an earlier boot verified stays verified. Without that, or with a word of damage, it is read again.
            if row.is_some_and(|row| drains(row.state)) {
                return Ok(host.insist(tenure, &scope, |view| present(view, &report, bytes)).await?);
            }
            let (view, found, report, turn) = (&view, &found.value, &report, turn.clone());
            return Suspect { host, tenure, view, found, report, turn }.settle().await;
        }
        // What the records do not know any more makes room.
        delete(host, unit, &op).await.map_err(Trouble::from)?;
    }
    host.insist(tenure, &scope, |view| fetching(view, &report, 0)).await?;
    match fetch(host, tenure, &view, unit, &found).await {
        Ok(bytes) => {
            host.metrics.fetches.get_or_create(&End { end: "ok" }).inc();
            tracing::info!(package = %unit, bytes, "fetched");
            Ok(host.insist(tenure, &scope, |view| present(view, &report, bytes)).await?)
        }
        Err(trouble) => {
            host.metrics.fetches.get_or_create(&End { end: "failed" }).inc();
            tracing::warn!(package = %unit, why = trouble.why, "not fetched");
            host.insist(tenure, &scope, |view| trouble.plan(view, &report)).await?;
            Err(trouble.into())
        }
    }
}

/// A row of this boot that lets a use begin.
fn is_usable(row: &Copy, report: &CopyReport) -> bool {
    let state = match row.state {
        CopyState::Present => true,
        CopyState::Draining => report.for_job.is_some(),
        CopyState::Fetching | CopyState::Failed | CopyState::Corrupt => false,
    };
    state && row.op == report.op && row.incarnation == report.me.incarnation
}

/// Reads a scope, however long the store stays away, as long as this boot has the right to write.
pub async fn load(host: &Host, tenure: &Tenure, scope: Scope) -> Result<View, Refusal> {
    loop {
        match View::load(&*host.kv, scope.clone()).await {
            Ok(view) => return Ok(view),
            Err(error) => tracing::warn!(%error, "not read; trying again"),
        }
        if tenure.lost.is_cancelled() {
            return Err(Refusal::fenced("the registration of this node is gone"));
        }
        sleep(STORE_RETRY).await;
    }
}

/// Operation and bytes of the package on disk, if it is ours.
pub(crate) async fn installed(host: &Host, unit: &UnitId) -> Result<Option<(String, u64)>, StoreError> {
    let unit = unit.clone();
    let found = host.on_disk(move |store| store.installed(&unit.name, &unit.version)).await?;
    Ok(found.map(|found| (found.op, found.manifest.total_bytes())))
}

/// Of an operation that the records do not know any more. That is no proof that it was ever READY: registered files
/// that nobody confirmed go back to their owner.
pub(crate) async fn delete(host: &Host, unit: &UnitId, op: &str) -> Result<GivenUp, StoreError> {
    let (unit, op) = (unit.clone(), op.to_owned());
    host.on_disk(move |store| {
        let given_up = store.give_up(&unit.name, &unit.version, &op)?;
        store.empty_trash(&op)?;
        store.discard(&op)?;
        Ok(given_up)
    })
    .await
}

async fn fetch(
    host: &Host,
    tenure: &Tenure,
    view: &View,
    unit: &UnitId,
    found: &Unit,
) -> Result<u64, Trouble> {
    if let Some(bytes) = adopt_late(host, unit, found).await? {
        return Ok(bytes);
    }
    let manifest = manifest_of(host, tenure, found).await?;
    let bytes = manifest.total_bytes();
    let sources = sources(view, unit, found, &host.options.name)?;
    let wanted =
        Wanted { op: found.op.clone(), name: unit.name.clone(), version: unit.version.clone(), manifest };
    let fetched = host.fetcher.fetch(&wanted, &sources).await;
    fetched.map_err(|error| Trouble { code: error.code(), why: error.to_string() })?;
    Ok(bytes)
}

/// The manifest that the cluster recorded for a package.
pub async fn manifest_of(host: &Host, tenure: &Tenure, found: &Unit) -> Result<DiskManifest, Trouble> {
    let unknown = |why: &str| Trouble { code: "NO_MANIFEST", why: why.to_owned() };
    let digest = found.manifest.clone().ok_or_else(|| unknown("its content is not known yet"))?;
    let key = ManifestKey { digest: digest.clone() };
    let manifests = load(host, tenure, Scope::default().and_key(&key)).await?;
    let record = manifests.get(&key)?.ok_or_else(|| unknown("its manifest is gone"))?;
    from_record(&record, &digest).map_err(|why| unknown(&why))
}

/// Addresses of live nodes that have it, in random order; the coordinator of a running create last.
pub fn sources(view: &View, unit: &UnitId, found: &Unit, not: &str) -> Result<Vec<String>, Refusal> {
    let address = |node: &str| -> Result<Option<String>, Refusal> {
        Ok(view.get(&NodeKey { node: node.into() })?.and_then(|node| node.value.node_address))
    };
    let mut addresses = Vec::new();
    for (key, copy) in view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))? {
        let holds = matches!(copy.state, CopyState::Present | CopyState::Draining) && copy.op == found.op;
        let writer = NodeRef { node: key.node.clone(), incarnation: copy.incarnation };
        if holds && key.node != not && nodes::is_alive(view, &writer)? {
            addresses.extend(address(&key.node)?);
        }
    }
    addresses.shuffle(&mut rand::rng());
    if found.state == UnitState::Creating && found.coordinator.node != not {
        let coordinator = address(&found.coordinator.node)?;
        addresses.extend(coordinator.filter(|_| nodes::is_alive(view, &found.coordinator).unwrap_or(false)));
    }
    let mut seen = HashSet::new();
    addresses.retain(|address| seen.insert(address.clone()));
    Ok(addresses)
}

/// What this boot says about its own copy, for nobody in particular.
pub fn report(tenure: &Tenure, package: &PackageRef) -> CopyReport {
    CopyReport {
        unit: package.unit.clone(),
        op: package.op.clone(),
        me: tenure.session.me.clone(),
        for_job: None,
    }
}

/// N3: first asks whether the row may go, then takes the files out of sight, then deletes the row, then the bytes. Files
/// that were registered are deleted only if the package was READY; from a register that failed they go back.
/// A crash in between leaves a row without files, which the next boot deletes.
pub async fn drop_copy(host: &Host, tenure: &Tenure, package: &PackageRef) -> Result<(), EnsureError> {
    let report = report(tenure, package);
    let scope = Scope::package(&package.unit);
    let turn = host.turns.of(&package.op);
    let _mine = turn.lock().await;
    let view = load(host, tenure, scope.clone()).await?;
    dropped(&view, &report)?;
    if host.gates.count(&package.op) > 0 {
        return Err(Refusal::not_yet("something still runs on it here").into());
    }
    let failed = |e: StoreError| EnsureError::from(Trouble::from(e));
    let found = view.get(&UnitKey::new(&package.unit))?.filter(|found| found.op == package.op);
    let proven = found.is_some_and(|found| was_ready(&found));
    let (unit, op) = (package.unit.clone(), package.op.clone());
    let given_up = host.on_disk(move |store| {
        if proven {
            store.confirm(&unit.name, &unit.version, &op)?;
        }
        store.give_up(&unit.name, &unit.version, &op)
    });
    let given_up = given_up.await.map_err(failed)?;
    host.insist(tenure, &scope, |view| dropped(view, &report)).await?;
    let op = package.op.clone();
    host.on_disk(move |store| store.empty_trash(&op).and_then(|()| store.discard(&op)))
        .await
        .map_err(failed)?;
    tracing::info!(package = %package.unit, op = package.op, ?given_up, "dropped");
    Ok(())
}

/// A package on disk whose operation the records do not know. They are asked once more, linearizably: the operation
/// of a package that this node received itself is in them before the package is on disk.
pub async fn forget(host: &Host, tenure: &Tenure, package: &PackageRef) -> Result<(), EnsureError> {
    let view = load(host, tenure, Scope::package(&package.unit)).await?;
    let known = view.get(&UnitKey::new(&package.unit))?;
    if known.is_some_and(|unit| unit.op == package.op) || host.gates.count(&package.op) > 0 {
        return Ok(());
    }
    let given_up = delete(host, &package.unit, &package.op).await.map_err(Trouble::from)?;
    tracing::info!(package = %package.unit, op = package.op, ?given_up, "the cluster does not know it any more");
    Ok(())
}
