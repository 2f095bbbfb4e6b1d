//! Keeps this node's packages what the records say: fetches what it is to hold, drains and deletes what is removed,
//! and fetches on demand for a claimed job.
//!
//! The agent decides on the mirror, which may be a moment behind. That is harmless for what it writes (each write is
//! guarded) and for what it fetches (never published under a wrong op). What it *deletes* without a row of its own is
//! looked up in the store first: a package that this node just received may be newer than the mirror.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use icp_store::{DiskState, FileEntry, Manifest as DiskManifest, OnDisk, StoreError, Wanted};
use meta_client::{Stored, TypedKey};
use rand::seq::SliceRandom;
use records::keys::{CopyKey, ManifestKey, NodeKey, PinKey, UnitKey, below};
use records::packages::{CopyReport, draining, dropped, failed, fetching, present};
use records::record::{Copy, CopyState, Manifest, ManifestFile, NodeRef, PackageRef, Unit, UnitState};
use records::{Class, JobId, Refusal, Scope, UnitId, View, nodes};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::host::Host;
use crate::limits::{FETCH_RETRY, RESCAN_EVERY, STORE_RETRY};
use crate::metrics::End;
use crate::session::Tenure;

/// Why a package is not here.
#[derive(Debug)]
pub enum EnsureError {
    /// It may not be here, or no longer.
    Refused(Refusal),
    /// It cannot be had: disk or sources.
    Failed(String),
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
    for_job: Option<&JobId>,
) -> Result<(), EnsureError> {
    let turn = host.turns.of(&package.op);
    let _mine = turn.lock().await;
    ensure_alone(host, tenure, package, for_job).await
}

async fn ensure_alone(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    for_job: Option<&JobId>,
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
    let on_disk = installed(host, unit).await.map_err(|e| EnsureError::Failed(e.to_string()))?;
    if let Some((op, bytes)) = on_disk {
        if op == package.op {
            let row = view.get(&CopyKey::new(unit, &report.me.node))?;
            if row.is_some_and(|row| is_usable(&row, &report)) {
                return Ok(());
            }
            return Ok(host.insist(tenure, &scope, |view| present(view, &report, bytes)).await?);
        }
        // What the records do not know any more makes room.
        delete(host, unit, &op).await.map_err(|e| EnsureError::Failed(e.to_string()))?;
    }
    host.insist(tenure, &scope, |view| fetching(view, &report, 0)).await?;
    match fetch(host, tenure, &view, unit, &found).await {
        Ok(bytes) => {
            host.metrics.fetches.get_or_create(&End { end: "ok" }).inc();
            tracing::info!(package = %unit, bytes, "fetched");
            Ok(host.insist(tenure, &scope, |view| present(view, &report, bytes)).await?)
        }
        Err(why) => {
            host.metrics.fetches.get_or_create(&End { end: "failed" }).inc();
            tracing::warn!(package = %unit, why, "not fetched");
            host.insist(tenure, &scope, |view| failed(view, &report, &why)).await?;
            Err(EnsureError::Failed(why))
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

async fn load(host: &Host, tenure: &Tenure, scope: Scope) -> Result<View, Refusal> {
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
async fn installed(host: &Host, unit: &UnitId) -> Result<Option<(String, u64)>, StoreError> {
    let unit = unit.clone();
    let found = host.on_disk(move |store| store.installed(&unit.name, &unit.version)).await?;
    Ok(found.map(|found| (found.op, found.manifest.total_bytes())))
}

async fn delete(host: &Host, unit: &UnitId, op: &str) -> Result<(), StoreError> {
    let (unit, op) = (unit.clone(), op.to_owned());
    host.on_disk(move |store| {
        store.retire(&unit.name, &unit.version, &op)?;
        store.empty_trash(&op)?;
        store.discard(&op)
    })
    .await
}

async fn fetch(
    host: &Host,
    tenure: &Tenure,
    view: &View,
    unit: &UnitId,
    found: &Unit,
) -> Result<u64, String> {
    let digest = found.manifest.clone().ok_or("its content is not known yet")?;
    let key = ManifestKey { digest: digest.clone() };
    let manifests = load(host, tenure, Scope::default().and_key(&key)).await.map_err(|r| r.text)?;
    let record = manifests.get(&key).map_err(|r| r.text)?.ok_or("its manifest is gone")?;
    let manifest = from_record(&record, &digest)?;
    let bytes = manifest.total_bytes();
    let sources = sources(view, unit, found, &host.options.name).map_err(|r| r.text)?;
    let wanted =
        Wanted { op: found.op.clone(), name: unit.name.clone(), version: unit.version.clone(), manifest };
    host.fetcher.fetch(&wanted, &sources).await.map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Addresses of live nodes that have it, in random order; the coordinator of a running create last.
fn sources(view: &View, unit: &UnitId, found: &Unit, not: &str) -> Result<Vec<String>, Refusal> {
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

/// Something to do about one package.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Task {
    /// Have it.
    Ensure(PackageRef),
    /// Say that it is being given up.
    Drain(PackageRef, usize),
    /// Delete it, and the row.
    Drop(PackageRef),
    /// Delete what the records do not know, if they still do not.
    Forget(PackageRef),
}

impl Task {
    fn package(&self) -> &PackageRef {
        match self {
            Self::Ensure(package) | Self::Drain(package, _) | Self::Drop(package) | Self::Forget(package) => {
                package
            }
        }
    }
}

/// The agent of one tenure.
pub struct PackageAgent {
    host: Arc<Host>,
    tenure: Tenure,
    /// What is on disk, by package: its operation.
    disk: BTreeMap<UnitId, String>,
    scanned_at: Option<Instant>,
    /// Packages that a task works on.
    busy: HashSet<PackageRef>,
    /// Operations whose fetch failed, and when.
    failures: HashMap<String, Instant>,
}

impl PackageAgent {
    /// For this tenure.
    pub fn new(host: Arc<Host>, tenure: Tenure) -> Self {
        Self {
            host,
            tenure,
            disk: BTreeMap::new(),
            scanned_at: None,
            busy: HashSet::new(),
            failures: HashMap::new(),
        }
    }

    /// Works until the tenure is lost.
    pub async fn run(mut self) {
        let mut tasks: JoinSet<(Task, bool)> = JoinSet::new();
        let mut views = self.host.views.clone();
        let lost = self.tenure.lost.clone();
        loop {
            let view = views.borrow_and_update().clone();
            // Before the first view, and behind this boot's own registration, nothing is known.
            if view.revision() >= self.tenure.session.me.incarnation {
                self.scan_if_due().await;
                self.start_tasks(&view, &mut tasks);
            }
            tokio::select! {
                () = lost.cancelled() => break,
                changed = views.changed() => if changed.is_err() { break },
                () = self.host.gates.changed() => {}
                () = self.host.disk_changed.notified() => self.scanned_at = None,
                () = sleep(RESCAN_EVERY) => self.scanned_at = None,
                Some(done) = tasks.join_next() => self.finished(done),
            }
        }
        tasks.shutdown().await;
    }

    fn finished(&mut self, done: Result<(Task, bool), tokio::task::JoinError>) {
        self.scanned_at = None;
        let Ok((task, well)) = done else {
            tracing::error!("a task of the package agent panicked");
            return;
        };
        let op = &task.package().op;
        if well {
            self.failures.remove(op);
        } else {
            self.failures.insert(op.clone(), Instant::now());
            // Looked at again when the pause is over.
            let host = self.host.clone();
            tokio::spawn(async move {
                sleep(FETCH_RETRY).await;
                host.disk_changed.notify_one();
            });
        }
        self.busy.remove(task.package());
    }

    async fn scan_if_due(&mut self) {
        if self.scanned_at.is_some() {
            return;
        }
        match self.host.on_disk(icp_store::PackageStore::list).await {
            Ok(found) => {
                self.disk = found.into_iter().filter_map(ours).collect();
                self.scanned_at = Some(Instant::now());
            }
            Err(error) => tracing::warn!(%error, "the packages on disk cannot be listed"),
        }
    }

    fn start_tasks(&mut self, view: &View, tasks: &mut JoinSet<(Task, bool)>) {
        let todo = match self.todo(view) {
            Ok(todo) => todo,
            Err(refusal) => {
                tracing::error!(%refusal, "the package agent cannot read the records");
                return;
            }
        };
        for task in todo {
            let failed = self.failures.get(&task.package().op);
            if failed.is_some_and(|at| at.elapsed() < FETCH_RETRY)
                || !self.busy.insert(task.package().clone())
            {
                continue;
            }
            let (host, tenure) = (self.host.clone(), self.tenure.clone());
            tasks.spawn(async move {
                let well = carry(&host, &tenure, &task).await;
                (task, well)
            });
        }
    }

    fn todo(&self, view: &View) -> Result<Vec<Task>, Refusal> {
        let me = &self.tenure.session.me;
        let mut todo = Vec::new();
        let mut known = HashSet::new();
        for (key, unit) in view.all::<UnitKey>()? {
            known.insert((key.unit.clone(), unit.op.clone()));
            let row = view.get(&CopyKey::new(&key.unit, &me.node))?.filter(|row| row.op == unit.op);
            let package = PackageRef { unit: key.unit, op: unit.op.clone() };
            todo.extend(self.todo_for(view, package, &unit, row)?);
        }
        for (unit, op) in &self.disk {
            if !known.contains(&(unit.clone(), op.clone())) && self.host.gates.count(op) == 0 {
                todo.push(Task::Forget(PackageRef { unit: unit.clone(), op: op.clone() }));
            }
        }
        Ok(todo)
    }

    fn todo_for(
        &self,
        view: &View,
        package: PackageRef,
        unit: &Unit,
        row: Option<Stored<Copy>>,
    ) -> Result<Option<Task>, Refusal> {
        let me = &self.tenure.session.me;
        let here = self.disk.get(&package.unit) == Some(&package.op);
        let target = unit.targets.contains(&me.node);
        // What this boot said already stands; what an earlier one said is to be said again.
        let said = row.as_ref().filter(|row| row.incarnation == me.incarnation).map(|row| row.state);
        Ok(match unit.state {
            UnitState::Creating => {
                let known = unit.manifest.is_some() && unit.coordinator != *me;
                (known && target && said.is_none()).then_some(Task::Ensure(package))
            }
            UnitState::Ready => match said {
                Some(CopyState::Present) => None,
                // Somebody's own fetch, for a job: it reports by itself.
                Some(CopyState::Fetching) => None,
                Some(_) => Some(Task::Ensure(package)),
                None => (row.is_some() || here || target).then_some(Task::Ensure(package)),
            },
            UnitState::Removing | UnitState::Purging => {
                if row.is_none() && !here {
                    return Ok(None);
                }
                let running = self.host.gates.count(&package.op);
                let pins = below(PinKey::PREFIX, &package.unit);
                let waits = unit.state == UnitState::Removing && view.count(&pins)? > 0;
                if running == 0 && !waits {
                    return Ok(Some(Task::Drop(package)));
                }
                let told =
                    row.is_none_or(|row| said == Some(CopyState::Draining) && row.uses == running as u64);
                (!told).then_some(Task::Drain(package, running))
            }
        })
    }
}

fn ours(found: OnDisk) -> Option<(UnitId, String)> {
    match found.state {
        DiskState::Published { op, .. } => Some((UnitId::new(&found.name, &found.version).ok()?, op)),
        DiskState::Unregistered => None,
    }
}

/// Does one task. False if it is to be tried again after a pause.
async fn carry(host: &Host, tenure: &Tenure, task: &Task) -> bool {
    let package = task.package();
    let outcome = match task {
        Task::Ensure(package) => ensure(host, tenure, package, None).await,
        Task::Drain(package, uses) => {
            let report = report(tenure, package);
            let uses = *uses as u64;
            let scope = Scope::package(&package.unit);
            host.insist(tenure, &scope, |view| draining(view, &report, uses)).await.map_err(Into::into)
        }
        Task::Drop(package) => drop_copy(host, tenure, package).await,
        Task::Forget(package) => forget(host, tenure, package).await,
    };
    match outcome {
        Ok(()) => true,
        // The records moved on: the next view says what is to be done.
        Err(EnsureError::Refused(refusal)) => {
            tracing::debug!(package = %package.unit, %refusal, "not done");
            refusal.class != Class::NotYet
        }
        Err(EnsureError::Failed(why)) => {
            tracing::warn!(package = %package.unit, why, "not done; trying again later");
            false
        }
    }
}

fn report(tenure: &Tenure, package: &PackageRef) -> CopyReport {
    CopyReport {
        unit: package.unit.clone(),
        op: package.op.clone(),
        me: tenure.session.me.clone(),
        for_job: None,
    }
}

/// N3: first asks whether the row may go, then takes the files out of sight, then deletes the row, then the bytes.
/// A crash in between leaves a row without files, which the next boot deletes.
async fn drop_copy(host: &Host, tenure: &Tenure, package: &PackageRef) -> Result<(), EnsureError> {
    let report = report(tenure, package);
    let scope = Scope::package(&package.unit);
    let turn = host.turns.of(&package.op);
    let _mine = turn.lock().await;
    let view = load(host, tenure, scope.clone()).await?;
    dropped(&view, &report)?;
    if host.gates.count(&package.op) > 0 {
        return Err(Refusal::not_yet("something still runs on it here").into());
    }
    let failed = |e: StoreError| EnsureError::Failed(e.to_string());
    let (unit, op) = (package.unit.clone(), package.op.clone());
    host.on_disk(move |store| store.retire(&unit.name, &unit.version, &op)).await.map_err(failed)?;
    host.insist(tenure, &scope, |view| dropped(view, &report)).await?;
    let op = package.op.clone();
    host.on_disk(move |store| store.empty_trash(&op).and_then(|()| store.discard(&op)))
        .await
        .map_err(failed)?;
    tracing::info!(package = %package.unit, "deleted");
    Ok(())
}

/// A package on disk whose operation the records do not know. They are asked once more, linearizably: the operation
/// of a package that this node received itself is in them before the package is on disk.
async fn forget(host: &Host, tenure: &Tenure, package: &PackageRef) -> Result<(), EnsureError> {
    let view = load(host, tenure, Scope::package(&package.unit)).await?;
    let known = view.get(&UnitKey::new(&package.unit))?;
    if known.is_some_and(|unit| unit.op == package.op) || host.gates.count(&package.op) > 0 {
        return Ok(());
    }
    delete(host, &package.unit, &package.op).await.map_err(|e| EnsureError::Failed(e.to_string()))?;
    tracing::info!(package = %package.unit, op = package.op, "deleted: the cluster does not know it any more");
    Ok(())
}
