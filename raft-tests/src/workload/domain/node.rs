//! A server node: follows packages, claims jobs that are placed on it, owns them, and carries creates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use meta_client::{Stored, TypedKey};
use meta_types::Revision;
use parking_lot::Mutex;
use records::jobs;
use records::keys::{CopyKey, JobOwnerKey, PinKey, UnitKey, below};
use records::packages::{self, CopyReport};
use records::record::{CopyState, PackageRef, Unit, UnitOrigin, UnitState};
use records::{JobId, Scope, UnitId, View};
use tokio::sync::mpsc;

use super::coordinator::{self, Create};
use super::job;
use super::process::Session;
use super::register;
use super::truth::Truth;
use crate::workload::env::{Chance, Env};

/// How often a node looks at packages.
const TEND: Duration = Duration::from_millis(200);
/// How often it looks for jobs.
const CLAIM: Duration = Duration::from_millis(120);

/// One boot of a server node.
#[derive(Clone)]
pub struct Node {
    /// Its session.
    pub session: Session,
    /// The world outside of the store.
    pub truth: Truth,
    /// What it shares with everybody.
    pub env: Env,
    local: Arc<Mutex<Local>>,
}

/// What only the node itself knows.
#[derive(Default)]
struct Local {
    owned: BTreeMap<JobId, Owned>,
    carried: BTreeSet<String>,
    purged: BTreeSet<PackageRef>,
}

struct Owned {
    packages: Vec<PackageRef>,
    killed: bool,
}

impl Node {
    /// A node that has just registered.
    pub fn new(session: Session, truth: Truth, env: Env) -> Self {
        Self { session, truth, env, local: Arc::default() }
    }

    /// Does what a node does, until it is dropped.
    pub async fn work(self) {
        let boot = self.session.me.node.bytes().fold(self.session.me.incarnation as u64, |mixed, byte| {
            mixed.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        let mut chance = self.env.chance(boot);
        let [tends, claims, owns, creates] = std::array::from_fn(|_| self.env.chance(chance.bits() as u64));
        let (owning, to_own) = mpsc::unbounded_channel();
        let (door, to_create) = mpsc::unbounded_channel();
        let _open = self.truth.open_coordinator(&self.session.me.node, door);
        tokio::join!(
            Box::pin(self.tend(tends)),
            Box::pin(self.claim(claims, owning)),
            Box::pin(self.own(owns, to_own)),
            Box::pin(self.carry_creates(creates, to_create)),
        );
    }

    /// Whether main() may run on the package here: its files are there, or were taken by force.
    pub fn may_run_on(&self, package: &PackageRef) -> bool {
        self.truth.on_disk(&self.session.me.node, package).is_some()
            || self.local.lock().purged.contains(package)
    }

    /// True if main() of the job has to go because its package was removed by force.
    pub fn is_killed(&self, job: &JobId) -> bool {
        self.local.lock().owned.get(job).is_some_and(|owned| owned.killed)
    }

    async fn carry_creates(&self, mut chance: Chance, mut wishes: mpsc::UnboundedReceiver<Create>) {
        let mut under_way: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(wish) = wishes.recv() => {
                    let mine = self.env.chance(chance.bits() as u64);
                    under_way.push(Box::pin(async move {
                        let op = wish.op.clone();
                        self.local.lock().carried.insert(op.clone());
                        coordinator::create(&self.session, &self.truth, mine, wish).await;
                        self.local.lock().carried.remove(&op);
                    }));
                }
                Some(()) = under_way.next() => {}
                else => return,
            }
        }
    }

    async fn own(&self, mut chance: Chance, mut claimed: mpsc::UnboundedReceiver<(JobId, Revision)>) {
        let mut under_way: FuturesUnordered<BoxFuture<'_, JobId>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some((job, epoch)) = claimed.recv() => {
                    let mine = self.env.chance(chance.bits() as u64);
                    under_way.push(Box::pin(async move {
                        job::own(self, mine, job.clone(), epoch).await;
                        job
                    }));
                }
                Some(job) = under_way.next() => drop(self.local.lock().owned.remove(&job)),
                else => return,
            }
        }
    }

    /// Claims one job at a time; also finds those whose claim was not answered.
    async fn claim(&self, mut chance: Chance, owning: mpsc::UnboundedSender<(JobId, Revision)>) {
        let me = &self.session.me;
        loop {
            tokio::time::sleep(chance.between(CLAIM / 2, CLAIM * 2)).await;
            let view = self.session.see(Scope::jobs()).await;
            for (key, owner) in view.all::<JobOwnerKey>().unwrap_or_default() {
                if owner.node == me.node && owner.incarnation == me.incarnation {
                    self.take(&view, key.job, owner.create_revision, &owning);
                }
            }
            let claimable = jobs::claimable(&view, me).unwrap_or_default();
            let Some((job, _)) = chance.pick(&claimable) else { continue };
            let scope = Scope::claim(job);
            let lease = self.session.lease;
            let claimed = self.session.carry("job claimed", &scope, |view| jobs::claim(view, job, me, lease));
            if let Ok(epoch) = claimed.await {
                self.take(&view, job.clone(), epoch, &owning);
            }
        }
    }

    fn take(
        &self,
        view: &View,
        job: JobId,
        epoch: Revision,
        owning: &mpsc::UnboundedSender<(JobId, Revision)>,
    ) {
        let found = jobs::job(view, &job).ok().flatten();
        let packages = found.map(|found| found.job.packages().cloned().collect()).unwrap_or_default();
        let mut local = self.local.lock();
        if !local.owned.contains_key(&job) {
            local.owned.insert(job.clone(), Owned { packages, killed: false });
            // The other end lives as long as this node.
            let _ = owning.send((job, epoch));
        }
    }

    /// Follows packages: what it is to hold it fetches, what is removed it lets go.
    async fn tend(&self, mut chance: Chance) {
        loop {
            tokio::time::sleep(chance.between(TEND / 2, TEND * 3 / 2)).await;
            let view = self.session.see(Scope::packages()).await;
            for (key, unit) in view.all::<UnitKey>().unwrap_or_default() {
                match unit.state {
                    UnitState::Creating if unit.origin == UnitOrigin::Register => {
                        register::take_part(&self.session, &self.truth, &view, &key.unit, &unit).await;
                    }
                    UnitState::Creating | UnitState::Ready => {
                        self.hold(&view, &mut chance, &key.unit, &unit).await;
                        self.take_over(&view, &mut chance, &key.unit, &unit).await;
                    }
                    UnitState::Removing | UnitState::Purging => {
                        self.let_go(&view, &mut chance, &key.unit, &unit).await;
                    }
                }
            }
            self.undo_stranded(&view).await;
            self.sweep_disk().await;
        }
    }

    fn report(&self, unit: &UnitId, op: &str) -> CopyReport {
        CopyReport { unit: unit.clone(), op: op.to_owned(), me: self.session.me.clone(), for_job: None }
    }

    async fn hold(&self, view: &View, chance: &mut Chance, unit: &UnitId, found: &Stored<Unit>) {
        let me = &self.session.me;
        let is_target = found.targets.contains(&me.node);
        let is_there = view.get(&CopyKey::new(unit, &me.node)).ok().flatten().is_some_and(|row| {
            row.op == found.op && row.state == CopyState::Present && row.incarnation == me.incarnation
        });
        if !is_target || is_there || found.manifest.is_none() || found.uploading {
            return;
        }
        let package = PackageRef { unit: unit.clone(), op: found.op.clone() };
        let report = self.report(unit, &found.op);
        if self.truth.on_disk(&me.node, &package).is_none() {
            let fetching = packages::fetching(view, &report, 0);
            if self.session.act("copy fetching", view, fetching).await.is_none() {
                return;
            }
            tokio::time::sleep(chance.between(job::FETCH.0, job::FETCH.1)).await;
            let holders = self.truth.holders(unit, &found.op);
            let fails = chance.one_in(8);
            let Some((_, digest)) = chance.pick(&holders).filter(|_| !fails) else {
                let plan = |view: &View| packages::failed(view, &report, "no source");
                // Refused: the package is going, or this boot is over.
                let _ = self.session.carry("copy failed", &Scope::package(unit), plan).await;
                return;
            };
            self.truth.publish(&me.node, &package, digest);
        }
        let scope = Scope::package(unit);
        // Refused: the package is going, or this boot is over.
        let _ = self.session.carry("copy present", &scope, |view| packages::present(view, &report, 3)).await;
    }

    /// Carries a create on whose coordinator is lost.
    async fn take_over(&self, view: &View, chance: &mut Chance, unit: &UnitId, found: &Stored<Unit>) {
        let package = PackageRef { unit: unit.clone(), op: found.op.clone() };
        if found.state != UnitState::Creating || found.coordinator == self.session.me || chance.one_in(4) {
            return;
        }
        let plan = packages::take_over(view, unit, &found.op, &self.session.me);
        let Some(epoch) = self.session.act("create taken over", view, plan).await else { return };
        self.local.lock().carried.insert(found.op.clone());
        coordinator::bring_about(&self.session, &self.truth, chance, &package, epoch).await;
        self.local.lock().carried.remove(&found.op);
    }

    async fn let_go(&self, view: &View, chance: &mut Chance, unit: &UnitId, found: &Stored<Unit>) {
        let package = PackageRef { unit: unit.clone(), op: found.op.clone() };
        let forced = found.state == UnitState::Purging;
        let running = self.running_on(&package, forced);
        let report = self.report(unit, &found.op);
        if running > 0 && forced {
            return;
        }
        if running > 0 || chance.one_in(3) {
            let plan = packages::draining(view, &report, running as u64);
            self.session.act("copy draining", view, plan).await;
            return;
        }
        let pins = view.under::<PinKey>(&below(PinKey::PREFIX, unit)).unwrap_or_default();
        let row = view.get(&CopyKey::new(unit, &self.session.me.node)).ok().flatten();
        let here = self.truth.on_disk(&self.session.me.node, &package).is_some();
        if let Some((pin, _)) = pins.first().filter(|_| here && row.is_none() && !forced) {
            let keep = CopyReport { for_job: Some(pin.job.clone()), ..report };
            self.session.act("copy kept", view, packages::present(view, &keep, 3)).await;
            return;
        }
        let plan = packages::dropped(view, &report);
        if self.session.act("copy dropped", view, plan).await.is_some() {
            if self.running_on(&package, false) > 0 && !forced {
                self.truth.found(format!("{package:?} deleted under a job on {}", self.session.me.node));
            }
            self.truth.delete(&self.session.me.node, &package);
        }
    }

    /// Jobs here on the package; by force they are killed.
    fn running_on(&self, package: &PackageRef, kill: bool) -> usize {
        let mut local = self.local.lock();
        if kill {
            local.purged.insert(package.clone());
        }
        let on_it = local.owned.values_mut().filter(|owned| owned.packages.contains(package));
        on_it.map(|owned| owned.killed |= kill).count()
    }

    /// Creates of this boot that nobody carries are undone.
    async fn undo_stranded(&self, view: &View) {
        let carried = self.local.lock().carried.clone();
        let stranded = packages::stranded(view, &self.session.me, |op| carried.contains(op));
        for (unit, op, epoch) in stranded.unwrap_or_default() {
            let plan = packages::abort(view, &unit, &op, epoch, "nobody carries it");
            self.session.act("stranded create undone", view, plan).await;
        }
    }

    /// Files of operations that are over, once nothing here runs on them. What is on the disk before the look was
    /// reserved before it too, so what is not in it is over.
    async fn sweep_disk(&self) {
        let carried = self.local.lock().carried.clone();
        let on_disk = self.truth.disk_of(&self.session.me.node);
        let view = self.session.see(Scope::packages()).await;
        for package in on_disk {
            let found = view.get(&UnitKey::new(&package.unit)).ok().flatten();
            let stands = found.is_some_and(|unit| unit.op == package.op);
            if !stands && !carried.contains(&package.op) && self.running_on(&package, false) == 0 {
                self.truth.delete(&self.session.me.node, &package);
            }
        }
    }
}
