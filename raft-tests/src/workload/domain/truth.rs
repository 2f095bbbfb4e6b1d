//! What is outside of the store: which node has which files, which processes can be reached, what must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use records::UnitId;
use records::record::{NodeRef, PackageRef};
use tokio::sync::{mpsc, watch};

use super::coordinator::Create;
use super::process::Session;
use crate::history::{JobEvent, JobEventKind};
use crate::workload::env::{Chance, Env};

/// A package of one operation on one node.
type OnDisk = (String, PackageRef);

/// The world outside of the store. Clones share it.
#[derive(Clone, Default)]
pub struct Truth(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    disks: BTreeMap<OnDisk, String>,
    laid: BTreeMap<(String, UnitId), String>,
    dispatchers: BTreeMap<String, DispatcherDoor>,
    coordinators: BTreeMap<String, mpsc::UnboundedSender<Create>>,
    paused: BTreeSet<UnitId>,
    findings: Vec<String>,
}

/// How a live dispatcher is reached.
#[derive(Clone)]
pub struct DispatcherDoor {
    /// Its session.
    pub session: Session,
    /// Closed when it dies: whoever waits for its answer waits in vain.
    pub lives: watch::Receiver<()>,
}

impl Truth {
    /// What must not be and was seen, in words.
    pub fn findings(&self) -> Vec<String> {
        self.0.lock().findings.clone()
    }

    /// Something was seen that must not be.
    pub fn found(&self, what: String) {
        self.0.lock().findings.push(what);
    }

    /// The digest of the files of a package that a node has.
    pub fn on_disk(&self, node: &str, package: &PackageRef) -> Option<String> {
        self.0.lock().disks.get(&(node.to_owned(), package.clone())).cloned()
    }

    /// A node publishes files.
    pub fn publish(&self, node: &str, package: &PackageRef, digest: &str) {
        self.0.lock().disks.insert((node.to_owned(), package.clone()), digest.to_owned());
    }

    /// The digest of what a user has laid where the package belongs.
    pub fn laid(&self, node: &str, unit: &UnitId) -> Option<String> {
        self.0.lock().laid.get(&(node.to_owned(), unit.clone())).cloned()
    }

    /// A user lays files on every node that lives; on one of them others or none, if `unequal`.
    pub fn lay(&self, unit: &UnitId, digest: &str, unequal: Option<Option<&str>>) {
        let mut state = self.0.lock();
        let nodes: Vec<String> = state.coordinators.keys().cloned().collect();
        for (at, node) in nodes.into_iter().enumerate() {
            let content = if at == 0 { unequal.unwrap_or(Some(digest)) } else { Some(digest) };
            let place = (node, unit.clone());
            match content {
                Some(content) => state.laid.insert(place, content.to_owned()),
                None => state.laid.remove(&place),
            };
        }
    }

    /// A node deletes files.
    pub fn delete(&self, node: &str, package: &PackageRef) {
        self.0.lock().disks.remove(&(node.to_owned(), package.clone()));
    }

    /// Every package on a node's disk.
    pub fn disk_of(&self, node: &str) -> Vec<PackageRef> {
        let state = self.0.lock();
        state.disks.keys().filter(|(on, _)| on == node).map(|(_, package)| package.clone()).collect()
    }

    /// Nodes with files of an operation, and their digests.
    pub fn holders(&self, unit: &UnitId, op: &str) -> Vec<(String, String)> {
        let state = self.0.lock();
        let held = state.disks.iter().filter(|((_, package), _)| package.unit == *unit && package.op == op);
        held.map(|((node, _), digest)| (node.clone(), digest.clone())).collect()
    }

    /// A live dispatcher, and another one if there is one.
    pub fn two_dispatchers(&self, chance: &mut Chance) -> Option<(DispatcherDoor, DispatcherDoor)> {
        let live: Vec<_> = self.0.lock().dispatchers.values().cloned().collect();
        let first = chance.below(live.len());
        let one = live.get(first)?.clone();
        let other = live.get((first + 1) % live.len())?.clone();
        Some((one, other))
    }

    /// A coordinator is paused between its look at the package and its write, or goes on.
    pub fn pause(&self, unit: &UnitId, paused: bool) {
        let state = &mut self.0.lock().paused;
        if paused {
            state.insert(unit.clone())
        } else {
            state.remove(unit)
        };
    }

    /// A package whose coordinator is paused: now is the moment to take it away.
    pub fn paused(&self) -> Option<UnitId> {
        self.0.lock().paused.first().cloned()
    }

    /// Sends a create to a live node chosen by chance; false if there is none.
    pub fn create(&self, chance: &mut Chance, create: Create) -> bool {
        let live: Vec<_> = self.0.lock().coordinators.values().cloned().collect();
        chance.pick(&live).is_some_and(|node| node.send(create).is_ok())
    }

    /// A dispatcher can be reached until what this returns is dropped.
    pub fn open_dispatcher(&self, session: Session) -> Open {
        let (alive, lives) = watch::channel(());
        let name = session.me.node.clone();
        self.0.lock().dispatchers.insert(name.clone(), DispatcherDoor { session, lives });
        Open { truth: self.clone(), name, _alive: Some(alive) }
    }

    /// A node's coordinator can be reached until what this returns is dropped.
    pub fn open_coordinator(&self, name: &str, door: mpsc::UnboundedSender<Create>) -> Open {
        self.0.lock().coordinators.insert(name.to_owned(), door);
        Open { truth: self.clone(), name: name.to_owned(), _alive: None }
    }
}

/// A process that can be reached.
pub struct Open {
    truth: Truth,
    name: String,
    _alive: Option<watch::Sender<()>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.truth.0.lock();
        state.dispatchers.remove(&self.name);
        state.coordinators.remove(&self.name);
    }
}

/// main() of a job while it runs. It ends when this is dropped, with its node or before it.
pub struct Main {
    env: Env,
    event: JobEvent,
}

impl Main {
    /// Starts main().
    pub fn start(
        env: &Env,
        node: &NodeRef,
        trigger: &str,
        job: &records::JobId,
        attempt: u32,
        epoch: i64,
    ) -> Self {
        let event = JobEvent {
            at: env.clock.now(),
            node: node.node.clone(),
            trigger: trigger.to_owned(),
            job: job.to_string(),
            attempt,
            epoch,
            kind: JobEventKind::Started,
        };
        env.recorder.job(event.clone());
        Self { env: env.clone(), event }
    }

    /// It counts as a job from now on.
    pub fn created(&self) {
        let at = self.env.clock.now();
        self.env.recorder.job(JobEvent { at, kind: JobEventKind::Created, ..self.event.clone() });
    }
}

impl Drop for Main {
    fn drop(&mut self) {
        let at = self.env.clock.now();
        self.env.recorder.job(JobEvent { at, kind: JobEventKind::Ended, ..self.event.clone() });
    }
}
