//! The simulated cluster: processes that plan on fresh or stale views, transactions that are applied at once, late,
//! twice or never, answers that get lost, processes that die with transactions still on their way.
//!
//! Beside the records it keeps what the records are about: which node has which files, and which main() runs where.
//! A violated promise is a start on files that are not there, files deleted under a running main(), two of one job at
//! a time, a package that is READY without its copies, or one that was READY and goes though nobody removed it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use meta_client::Stored;
use meta_types::Txn;
use records::nodes::{Register, register};
use records::record::{JobState, NodeRef, OnLostStore, PackageRef, Policy, Role, Unit, UnitState};
use records::{JobId, Plan, Refusal, TriggerId, UnitId, View, keys, nodes};

use crate::sim_disk::Place;
use crate::sim_literal::Literal;
use crate::world::{Proc, World, node};

pub const SERVERS: [&str; 3] = ["n1", "n2", "n3"];
pub const DISPATCHERS: [&str; 2] = ["d1", "d2"];
const TTL: Duration = Duration::from_secs(15);

/// What happens outside of the store once a transaction is known to have taken place.
#[derive(Debug, Clone)]
pub enum Effect {
    None,
    /// The coordinator carries the create of this operation with these files.
    Carry(String, String),
    /// The node starts main().
    Start(JobId, i64),
}

pub struct Flight {
    txn: Txn,
    effect: Effect,
    from: Proc,
    what: &'static str,
}

/// main() as it runs on a node.
#[derive(Debug, Clone)]
pub struct Main {
    pub node: NodeRef,
    pub packages: Vec<PackageRef>,
    pub epoch: i64,
    /// How the process ended, if it did and the store was not told yet.
    pub over: Option<JobState>,
}

/// Packages of the whole domain: few, so that operations meet; two names differ in case.
const UNITS: [&str; 4] = ["a:1", "a:2", "A:3", "b:1"];
/// What may end a package that was READY.
const REMOVALS: [&str; 3] = ["remove", "force_remove", "sweep_private"];

pub struct Sim {
    pub world: World,
    pub procs: BTreeMap<&'static str, Option<Proc>>,
    /// What lies in a package's place on a node.
    pub disk: BTreeMap<(String, UnitId), Place>,
    /// Files of creates that a live coordinator carries, by operation.
    pub creates: BTreeMap<String, (NodeRef, String)>,
    /// Operations that were READY at some time.
    pub was_ready: BTreeSet<String>,
    /// Operations that were being purged at some time.
    pub purged: BTreeSet<String>,
    /// Packages that are READY and were not removed: operation and digest.
    promised: BTreeMap<UnitId, (String, Option<String>)>,
    /// Revision and disks that the truth of the copies was last checked at.
    pub checked: (i64, BTreeMap<(String, UnitId), Place>),
    pub units: &'static [&'static str],
    pub literal: Literal,
    pub mains: BTreeMap<JobId, Main>,
    /// Epochs whose owner decided to end or release: it starts nothing under them any more.
    pub given_up: BTreeSet<(JobId, i64)>,
    pub jobs_of: BTreeMap<TriggerId, BTreeSet<JobId>>,
    views: Vec<View>,
    pub flights: Vec<Flight>,
    random: u64,
    pub next: u128,
    pub calm: bool,
    pub log: Vec<String>,
    pub carried: BTreeMap<&'static str, u32>,
}

impl Sim {
    /// The whole domain, with two packages to begin with.
    pub fn new(seed: u64) -> Self {
        let mut sim = Self { units: &UNITS, ..Self::bare(seed) };
        sim.begin_with("base:1", "base");
        sim.begin_with("b:1", "first");
        sim
    }

    /// A package that is READY on the first node.
    pub fn begin_with(&mut self, id: &str, files: &str) {
        let node = self.procs["n1"].clone().expect("just booted");
        let package = self.world.package(id, &node, files);
        self.publish("n1", &package.unit, &package.op, files);
        self.note_units("begin");
    }

    /// Live processes, and nothing else.
    pub fn bare(seed: u64) -> Self {
        let mut sim = Self {
            world: World::default(),
            procs: SERVERS.iter().chain(&DISPATCHERS).map(|name| (*name, None)).collect(),
            disk: BTreeMap::new(),
            creates: BTreeMap::new(),
            was_ready: BTreeSet::new(),
            purged: BTreeSet::new(),
            promised: BTreeMap::new(),
            checked: Default::default(),
            units: &["a:1", "b:1"],
            literal: Literal::default(),
            mains: BTreeMap::new(),
            given_up: BTreeSet::new(),
            jobs_of: BTreeMap::new(),
            views: vec![],
            flights: vec![],
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next: 1,
            calm: false,
            log: vec![],
            carried: BTreeMap::new(),
        };
        for name in SERVERS.iter().chain(&DISPATCHERS) {
            sim.boot(name);
        }
        sim
    }

    /// A number below `bound`.
    pub fn roll(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % bound.max(1)
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.roll(from.len())].clone()) }
    }

    /// What an actor sees: mostly now, sometimes a while ago.
    pub fn view(&mut self) -> View {
        let now = self.world.view();
        self.views.push(now.clone());
        if self.views.len() > 30 {
            self.views.remove(0);
        }
        if self.calm || self.roll(10) < 7 {
            return now;
        }
        let stale = self.views.clone();
        self.pick(&stale).unwrap_or(now)
    }

    /// A live process of these names.
    pub fn alive(&mut self, names: &[&'static str]) -> Option<Proc> {
        let alive: Vec<Proc> = names.iter().filter_map(|name| self.procs[name].clone()).collect();
        self.pick(&alive)
    }

    pub fn boot(&mut self, name: &'static str) {
        let lease = self.world.kv.grant(TTL).id;
        let roles: &[Role] = if name.starts_with('n') { &[Role::Jobmaster] } else { &[Role::Dispatcher] };
        let node = node(roles, 3, &format!("{name}-{lease}"));
        let wish = Register { name: name.into(), node, lease };
        match register(&self.world.view(), &wish) {
            Ok(plan) => {
                let me = self.world.commit(plan).expect("planned on the newest view");
                self.log.push(format!("boot {me:?}"));
                // What it kept while it was cut off.
                let kept = self.mains.values_mut().filter(|main| main.node.node == name);
                kept.for_each(|main| main.node = me.clone());
                self.procs.insert(name, Some(Proc { me, lease }));
            }
            // Its predecessor's lease has not run out.
            Err(_) => drop(self.world.kv.revoke(lease)),
        }
    }

    /// The process dies, and what it ran with it; its lease and what it sent live on for a while.
    pub fn crash(&mut self, name: &'static str) {
        if let Some(proc) = self.procs.insert(name, None).flatten() {
            self.log.push(format!("crash {:?}", proc.me));
            self.mains.retain(|_, main| main.node != proc.me);
            // What was received lies in staging, which the next boot empties.
            self.creates.retain(|_, (by, _)| *by != proc.me);
        }
    }

    /// The node is cut off until its lease ran out and it registers anew: the process lives, and with it what is kept.
    pub fn cut_off(&mut self, name: &'static str) {
        let Some(proc) = self.procs.insert(name, None).flatten() else { return };
        self.log.push(format!("cut off {:?}", proc.me));
        let view = self.world.view();
        let keeps = |job: &JobId| {
            let found = view.get(&keys::JobKey::new(job)).unwrap();
            found.is_some_and(|found| found.spec.on_lost_store == OnLostStore::Keep)
        };
        self.mains.retain(|job, main| main.node != proc.me || keeps(job));
    }

    /// Time passes: the living renew, the leases of the dead run out.
    pub fn pass(&mut self) {
        for proc in self.procs.values().flatten() {
            assert!(self.world.kv.keep_alive(proc.lease), "{proc:?} lost its lease");
        }
        let before = self.world.kv.revision();
        self.world.kv.advance(TTL / 2);
        if self.world.kv.revision() == before {
            return;
        }
        let wrong = records::invariants(&self.world.view());
        assert!(wrong.is_empty(), "{wrong:#?}\n{:#?}", self.log);
    }

    /// Sends a plan: now, later, or never; sometimes its answer is lost.
    pub fn send<T>(
        &mut self,
        what: &'static str,
        from: &Proc,
        plan: Result<Plan<T>, Refusal>,
        effect: Effect,
    ) {
        let Ok(plan) = plan else { return };
        if plan.is_empty() {
            self.happen(from, effect);
            return;
        }
        let flight = Flight { txn: plan.txn().clone(), effect, from: from.clone(), what };
        match if self.calm { 9 } else { self.roll(10) } {
            0 => {}
            1 | 2 => self.flights.push(flight),
            3 => drop(self.apply(flight, false)),
            _ => drop(self.apply(flight, true)),
        }
    }

    /// One of the late ones arrives.
    pub fn arrive(&mut self) {
        if !self.flights.is_empty() {
            let at = self.roll(self.flights.len());
            let flight = self.flights.swap_remove(at);
            self.apply(flight, true);
        }
    }

    fn apply(&mut self, flight: Flight, answered: bool) -> bool {
        let done = match self.world.try_apply(&flight.txn) {
            Ok(done) => done,
            Err(wrong) => panic!("{} of {:?}: {wrong}\n{:#?}", flight.what, flight.from, self.log),
        };
        if done.is_none() {
            return false;
        }
        *self.carried.entry(flight.what).or_default() += 1;
        self.log.push(format!("{} {} by {:?}", self.world.view().revision(), flight.what, flight.from.me));
        self.note_jobs();
        self.note_units(flight.what);
        let lives = self.procs.values().flatten().any(|proc| proc.me == flight.from.me);
        if answered && lives {
            self.happen(&flight.from, flight.effect);
        }
        true
    }

    /// P3: no trigger ever makes a second job (tokens do not end here).
    fn note_jobs(&mut self) {
        let jobs = self.world.view().all::<keys::JobKey>().unwrap();
        for (key, job) in jobs {
            self.jobs_of.entry(job.trigger.clone()).or_default().insert(key.job);
        }
        let twice = self.jobs_of.iter().find(|(_, jobs)| jobs.len() > 1);
        assert!(twice.is_none(), "{twice:?} {:#?}", self.log);
    }

    /// P4: a package becomes READY only on as many true copies as its policy asks for, and what was READY stays, with
    /// its content, until somebody removes it.
    fn note_units(&mut self, what: &str) {
        let units = self.world.view().all::<keys::UnitKey>().unwrap();
        let purging = units.iter().filter(|(_, found)| found.state == UnitState::Purging);
        self.purged.extend(purging.map(|(_, found)| found.op.clone()));
        let is_ready = |unit: &UnitId, op: &str| {
            units
                .iter()
                .any(|(key, found)| key.unit == *unit && found.op == op && found.state == UnitState::Ready)
        };
        let gone = self.promised.iter().find(|(unit, (op, _))| !is_ready(unit, op));
        assert!(gone.is_none() || REMOVALS.contains(&what), "{what} ended {gone:?} {:#?}", self.log);
        self.promised.retain(|unit, (op, _)| is_ready(unit, op));
        for (keys::UnitKey { unit }, found) in
            units.iter().filter(|(_, found)| found.state == UnitState::Ready)
        {
            let Some((_, digest)) = self.promised.get(unit) else {
                let (there, needed) = (self.true_copies(unit, found), self.needed(found));
                let log = &self.log;
                assert!(
                    there >= needed,
                    "{unit} is READY on {there} of {needed} by {what} {:#?} {log:#?}",
                    self.disk
                );
                self.promised.insert(unit.clone(), (found.op.clone(), found.manifest.clone()));
                self.was_ready.insert(found.op.clone());
                continue;
            };
            assert!(*digest == found.manifest, "{what}: {unit} has other content {:#?}", self.log);
        }
    }

    /// Copies that a package's policy asks for, of its targets that lived all the time since it was reserved: one that
    /// was away meanwhile is dropped.
    fn needed(&self, found: &Stored<Unit>) -> usize {
        let view = self.world.view();
        let lived = |node: &&String| {
            nodes::current(&view, node).unwrap().is_some_and(|now| now.incarnation < found.create_revision)
        };
        let live = found.targets.iter().filter(lived).count();
        match found.policy {
            Policy::All => live.max(1),
            Policy::Majority => live / 2 + 1,
            Policy::Copies(copies) => live.min(copies as usize).max(1),
        }
    }

    fn happen(&mut self, from: &Proc, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Carry(op, files) => drop(self.creates.insert(op, (from.me.clone(), files))),
            Effect::Start(job, epoch) => self.start_main(from, job, epoch),
        }
    }

    /// P5: one main() of a job at a time. P4: only on files that are there.
    fn start_main(&mut self, from: &Proc, job: JobId, epoch: i64) {
        let runs = self.mains.get(&job).is_some_and(|main| main.node == from.me && main.epoch == epoch);
        if runs || self.given_up.contains(&(job.clone(), epoch)) {
            return;
        }
        let found = self.world.view().get(&keys::JobKey::new(&job)).unwrap().unwrap();
        assert!(!self.mains.contains_key(&job), "{job} runs twice {:#?}", self.log);
        let packages: Vec<PackageRef> = found.packages().cloned().collect();
        for PackageRef { unit, op } in &packages {
            let there = self.place(&from.me.node, unit).is_some_and(|place| place.op.as_ref() == Some(op));
            assert!(there || self.is_forced(op), "{unit} {op} is not on {from:?} {:#?}", self.log);
        }
        self.mains.insert(job, Main { node: from.me.clone(), packages, epoch, over: None });
    }
}
