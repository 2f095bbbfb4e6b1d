//! Keeps this node's packages what the records say: fetches what it is to hold, drains and deletes what is removed,
//! undoes creates of its own that nobody carries any more.
//!
//! The agent decides on the mirror, which may be a moment behind. That is harmless for what it writes (each write is
//! guarded) and for what it fetches (never published under a wrong op). What it *deletes* without a row of its own is
//! looked up in the store first: a package that this node just received may be newer than the mirror.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use icp_store::{DiskState, OnDisk};
use meta_client::{Stored, TypedKey};
use process_kit::Did;
use process_kit::rounds::RoundsOf;
use records::keys::{CopyKey, NodeKey, PinKey, UnitKey, below};
use records::packages::{drains, is_stranded, substitutes};
use records::record::{Copy, CopyState, PackageRef, Unit, UnitOrigin, UnitState};
use records::{Changes, Parsed, Refusal, UnitId, View, nodes};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::host::Host;
use crate::limits::{FETCH_RETRY, RESCAN_EVERY};
use crate::package_tasks::{Outcome, Task, carry};
use crate::register_target::is_due;
use crate::session::Tenure;

/// The agent's name among the reconcilers.
const NAME: &str = "package-agent";

/// A package on disk.
struct Here {
    op: String,
    /// Registered, and not yet known to have been READY.
    tentative: bool,
}

/// The agent of one tenure.
pub struct PackageAgent {
    host: Arc<Host>,
    tenure: Tenure,
    /// What is on disk, by package.
    disk: BTreeMap<UnitId, Here>,
    scanned_at: Option<Instant>,
    units: Parsed<UnitKey>,
    copies: Changes<CopyKey>,
    pins: Changes<PinKey>,
    nodes: Changes<NodeKey>,
    /// Everything is to be looked at, not only what changed.
    all_due: bool,
    /// Packages that a task works on.
    busy: HashSet<PackageRef>,
    /// Operations whose fetch failed, and when.
    failures: HashMap<String, Instant>,
    rounds: RoundsOf,
}

impl PackageAgent {
    /// For this tenure.
    pub fn new(host: Arc<Host>, tenure: Tenure) -> Self {
        Self {
            rounds: host.rounds.of(NAME),
            host,
            tenure,
            disk: BTreeMap::new(),
            scanned_at: None,
            units: Parsed::default(),
            copies: Changes::default(),
            pins: Changes::default(),
            nodes: Changes::default(),
            all_due: true,
            busy: HashSet::new(),
            failures: HashMap::new(),
        }
    }

    /// Works until the tenure is lost.
    pub async fn run(mut self) {
        let mut tasks: JoinSet<(Task, Outcome)> = JoinSet::new();
        let mut views = self.host.views.clone();
        let lost = self.tenure.lost.clone();
        loop {
            let view = views.borrow_and_update().clone();
            // Before the first view, and behind this boot's own registration, nothing is known.
            if view.revision() >= self.tenure.session.me.incarnation {
                let begun = Instant::now();
                let scanned = self.scan_if_due().await;
                let error = scanned.and_then(|()| self.start_tasks(&view, &mut tasks)).err();
                self.rounds.ended(begun.elapsed(), &Did::default(), error.as_deref());
            }
            tokio::select! {
                () = lost.cancelled() => break,
                changed = views.changed() => if changed.is_err() { break },
                () = self.host.gates.changed() => self.all_due = true,
                () = self.host.disk_changed.notified() => self.scanned_at = None,
                () = sleep(RESCAN_EVERY) => self.scanned_at = None,
                Some(done) = tasks.join_next() => self.finished(done),
            }
        }
        tasks.shutdown().await;
    }

    fn finished(&mut self, done: Result<(Task, Outcome), tokio::task::JoinError>) {
        self.scanned_at = None;
        let Ok((task, outcome)) = done else {
            let text = "a task of the package agent panicked";
            tracing::error!("{text}");
            self.rounds.finished(&Did::default(), Some(text));
            return;
        };
        let op = &task.package().op;
        if task.leaves_something() {
            self.host.leftovers.notify_one();
        }
        let mut did = Did::default();
        did.add(task.kind(), u64::from(outcome == Outcome::Done));
        let error = match &outcome {
            Outcome::Failed(why) => Some(format!("{} {}: {why}", task.kind(), task.package().unit)),
            Outcome::Done | Outcome::MovedOn | Outcome::NotYet => None,
        };
        self.rounds.finished(&did, error.as_deref());
        if matches!(outcome, Outcome::Done | Outcome::MovedOn) {
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

    /// The error is for people.
    async fn scan_if_due(&mut self) -> Result<(), String> {
        if self.scanned_at.is_some() {
            return Ok(());
        }
        self.all_due = true;
        match self.host.on_disk(icp_store::PackageStore::list).await {
            Ok(found) => {
                self.disk = found.into_iter().filter_map(ours).collect();
                self.scanned_at = Some(Instant::now());
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "the packages on disk cannot be listed");
                Err(format!("the packages on disk cannot be listed: {error}"))
            }
        }
    }

    fn start_tasks(&mut self, view: &View, tasks: &mut JoinSet<(Task, Outcome)>) -> Result<(), String> {
        let todo = self.todo(view).map_err(|refusal| {
            tracing::error!(%refusal, "the package agent cannot read the records");
            format!("the records cannot be read: {refusal}")
        })?;
        for task in todo {
            let failed = self.failures.get(&task.package().op);
            if failed.is_some_and(|at| at.elapsed() < FETCH_RETRY)
                || !self.busy.insert(task.package().clone())
            {
                continue;
            }
            let (host, tenure) = (self.host.clone(), self.tenure.clone());
            tasks.spawn(async move {
                let outcome = carry(&host, &tenure, &task).await;
                (task, outcome)
            });
        }
        Ok(())
    }

    /// Packages of which something changed that decides what is to be done here. Not every change: each run pins
    /// packages, and only the last pin to go lets one be deleted.
    fn changed(&mut self, view: &View) -> BTreeSet<UnitId> {
        let me = self.tenure.session.me.node.clone();
        let mut changed: BTreeSet<UnitId> = self.units.update(view).into_iter().map(|key| key.unit).collect();
        if changed.iter().any(|unit| self.units.get(&UnitKey::new(unit)).is_none()) {
            self.host.leftovers.notify_one();
        }
        // Of other nodes' rows only one that goes: this node may be the one to make the copy good.
        let rows = self.copies.keys_since(view).into_iter();
        changed.extend(rows.filter(|(key, there)| key.node == me || !there).map(|(key, _)| key.unit));
        let unpinned = self.pins.keys_since(view).into_iter().filter(|(_, is_there)| !is_there);
        changed.extend(unpinned.map(|(key, _)| key.unit));
        // Creates of a node that is gone may be ours now.
        self.all_due |= self.nodes.keys_since(view).iter().any(|(_, is_there)| !is_there);
        changed
    }

    fn todo(&mut self, view: &View) -> Result<Vec<Task>, Refusal> {
        let changed = self.changed(view);
        let mut todo = Vec::new();
        if !self.all_due {
            for unit in changed {
                let key = UnitKey::new(&unit);
                if let Some(unit) = self.units.get(&key) {
                    todo.extend(self.todo_for(view, &key, unit)?);
                }
            }
            return Ok(todo);
        }
        for (key, unit) in self.units.iter() {
            todo.extend(self.todo_for(view, key, unit)?);
        }
        for (unit, Here { op, .. }) in &self.disk {
            let known = self.units.get(&UnitKey::new(unit)).is_some_and(|found| found.op == *op);
            if !known && self.host.gates.count(op) == 0 {
                todo.push(Task::Forget(PackageRef { unit: unit.clone(), op: op.clone() }));
            }
        }
        let asked_for = |unit: &Unit| matches!(unit.state, UnitState::Creating | UnitState::Purging);
        let units = || self.units.iter().map(|(_, unit)| unit).filter(|unit| asked_for(unit));
        self.host.inspections.retain(|op| units().any(|unit| unit.op == op));
        self.all_due = false;
        Ok(todo)
    }

    fn todo_for(&self, view: &View, key: &UnitKey, unit: &Unit) -> Result<Option<Task>, Refusal> {
        let me = &self.tenure.session.me;
        let package = PackageRef { unit: key.unit.clone(), op: unit.op.clone() };
        if is_stranded(unit, me, |op| self.host.creates.count(op) > 0) {
            return Ok(Some(Task::Abort(package, unit.epoch, unit.request.clone())));
        }
        let row: Option<Stored<Copy>> =
            view.get(&CopyKey::new(&key.unit, &me.node))?.filter(|row| row.op == unit.op);
        let disk = self.disk.get(&package.unit).filter(|here| here.op == package.op);
        let here = disk.is_some();
        let target = unit.targets.contains(&me.node);
        // What this boot said already stands; what an earlier one said is to be said again.
        let mine = row.as_ref().filter(|row| row.incarnation == me.incarnation);
        let said = mine.map(|row| row.state);
        Ok(match unit.state {
            UnitState::Creating if unit.origin == UnitOrigin::Register => {
                let due = is_due(unit, mine.map(|row| (row.state, row.digest.is_some())));
                (target && due).then_some(Task::TakePart(package))
            }
            UnitState::Creating => {
                let known = unit.manifest.is_some() && !unit.uploading && unit.coordinator != *me;
                let is_lost = || Ok::<_, Refusal>(!nodes::is_alive(view, &unit.coordinator)?);
                if known && said == Some(CopyState::Present) && is_lost()? {
                    return Ok(Some(Task::TakeOver(package)));
                }
                (known && target && said.is_none()).then_some(Task::Ensure(package))
            }
            UnitState::Ready => match said {
                Some(CopyState::Present) => {
                    disk.is_some_and(|here| here.tentative).then_some(Task::Confirm(package))
                }
                // Damaged, and something runs on it: its end wakes the agent.
                Some(CopyState::Corrupt) if self.host.gates.running(&package.op) > 0 => None,
                // FETCHING too: whoever began it may be gone, and if not, this waits for its turn.
                Some(_) => Some(Task::Ensure(package)),
                None if row.is_some() || here || target => Some(Task::Ensure(package)),
                None => {
                    let wanted = substitutes(view, &key.unit, unit)?.contains(&me.node);
                    wanted.then_some(Task::MakeGood(package))
                }
            },
            UnitState::Removing | UnitState::Purging => {
                if row.is_none() && !here {
                    return Ok(None);
                }
                let running = self.host.gates.count(&package.op);
                let pins = view.under::<PinKey>(&below(PinKey::PREFIX, &package.unit))?;
                let pinned = pins.first().filter(|_| unit.state == UnitState::Removing);
                if running == 0 && pinned.is_none() {
                    return Ok(Some(Task::Drop(package)));
                }
                if let Some((pin, _)) = pinned.filter(|_| here && said.is_none()) {
                    return Ok(Some(Task::Keep(package, pin.job.clone())));
                }
                let told = said == Some(CopyState::Draining);
                let untold =
                    row.is_some_and(|row| drains(row.state) && !(told && row.uses == running as u64));
                untold.then_some(Task::Drain(package, running))
            }
        })
    }
}

fn ours(found: OnDisk) -> Option<(UnitId, Here)> {
    match found.state {
        DiskState::Published { op, tentative, .. } => {
            Some((UnitId::new(&found.name, &found.version).ok()?, Here { op, tentative }))
        }
        DiskState::Unregistered => None,
    }
}
