//! The simulated cluster: hosts, network, time. One step at a time; after each, everything that must hold is
//! checked.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use turmoil::Sim;

use super::chance::Chance;
use super::fault::Kind;
use super::links::Links;
use super::node::{Node, Process};
use super::observer::Observer;
use super::plan::Plan;
use super::trace::Trace;
use crate::invariants::{Invariants, Violation};

/// See the module.
pub struct World {
    pub(super) sim: Sim<'static>,
    pub(super) nodes: Vec<Rc<Node>>,
    pub(super) links: Links,
    pub(super) chance: Chance,
    pub(super) observer: Observer,
    pub(super) trace: Trace,
    /// When the process of a replica comes back.
    pub(super) restarts: BTreeMap<usize, Duration>,
    /// What slow clocks and disks may add to the life of a lease, all together.
    pub(super) lease_delay: Duration,
    /// Faults that took effect.
    pub(super) injected: BTreeMap<Kind, u64>,
    pub(super) invariants: Invariants,
    /// What must not be, and was.
    pub violations: Vec<Violation>,
    /// Steps so far.
    pub steps: u64,
    /// Told the virtual time after each step.
    tell_time: fn(Duration),
}

impl World {
    /// A cluster of replicas that are about to start for the first time, and hosts for clients.
    pub fn new(
        plan: &Plan,
        clients: &[String],
        chance: &Chance,
        trace: Trace,
        tell_time: fn(Duration),
    ) -> Self {
        let setting = Rc::new(plan.setting.clone());
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(chance.fork("turmoil").below(u64::MAX))
            .epoch(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
            .simulation_duration(Duration::from_secs(3600))
            .tick_duration(setting.tick)
            .min_message_latency(setting.latency.0)
            .max_message_latency(setting.latency.1)
            .tcp_capacity(4096)
            .enable_random_order();
        let mut sim = builder.build();
        let nodes: Vec<Rc<Node>> = setting
            .names
            .iter()
            .map(|name| Rc::new(Node::new(name.clone(), setting.clone(), &chance.fork("nodes"))))
            .collect();
        for node in &nodes {
            let node = node.clone();
            sim.host(node.name.clone(), move || {
                let node = node.clone();
                async move {
                    node.run().await;
                    // The process is gone; its host is told so by a crash.
                    std::future::pending().await
                }
            });
        }
        let hosts = setting.names.iter().chain(clients).cloned().collect();
        Self {
            sim,
            links: Links::new(hosts, nodes.len()),
            observer: Observer::new(nodes.len()),
            nodes,
            chance: chance.fork("world"),
            trace,
            restarts: BTreeMap::new(),
            lease_delay: Duration::ZERO,
            injected: BTreeMap::new(),
            invariants: Invariants::new(),
            violations: Vec::new(),
            steps: 0,
            tell_time,
        }
    }

    /// Puts software on a client's host.
    pub fn client<F>(&mut self, name: &str, software: F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.sim.client(name.to_owned(), async move {
            software.await;
            Ok(())
        });
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    /// One step of time; what ended by itself is cleared away, what is due comes back, and everything is checked.
    pub fn step(&mut self) {
        if let Err(error) = self.sim.step() {
            self.violation("simulation", error.to_string());
        }
        self.steps += 1;
        let now = self.now();
        (self.tell_time)(now);
        let view = self.observer.look(now, &self.nodes, &mut self.trace);
        self.violations.extend(self.invariants.check(&view));
        for number in 0..self.nodes.len() {
            match self.nodes[number].process() {
                Process::Ended(why) => {
                    self.trace.note(now, format_args!("{} ended: {why}", self.nodes[number].name));
                    let off = self.nodes[number].disk().is_off();
                    let after = self.chance.millis(200, 1500);
                    self.crash(number, off, after);
                }
                Process::Starting | Process::Running if self.nodes[number].disk().is_off() => {
                    let after = self.chance.millis(200, 1500);
                    self.crash(number, true, after);
                }
                Process::Starting | Process::Running | Process::Down => {}
            }
        }
        let due: Vec<usize> =
            self.restarts.iter().filter(|(_, at)| **at <= now).map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.restart(number));
    }

    /// Ends a replica's process, with its machine's power or without, and plans its return.
    pub(super) fn crash(&mut self, number: usize, power_cut: bool, down: Duration) {
        let node = self.nodes[number].clone();
        self.trace.note(self.now(), format_args!("{} down, power cut {power_cut}", node.name));
        self.sim.crash(node.name.as_str());
        node.went_down(power_cut.then(|| self.chance.below(u64::MAX)));
        self.restarts.insert(number, self.now() + down);
    }

    /// Starts a replica's process again.
    pub(super) fn restart(&mut self, number: usize) {
        self.restarts.remove(&number);
        let node = self.nodes[number].clone();
        self.trace.note(self.now(), format_args!("{} up", node.name));
        self.sim.bounce(node.name.as_str());
    }

    /// Notes something that must not be.
    pub fn violation(&mut self, name: &'static str, text: String) {
        let at = self.now();
        self.violations.push(Violation { name, at, text });
    }

    /// The number of the replica that leads, if one does.
    pub fn leader(&self) -> Option<usize> {
        let inspections = self.nodes.iter().enumerate().filter_map(|(number, node)| {
            let inspection = node.handle()?.inspect();
            inspection.leads.then_some((inspection.term, number))
        });
        inspections.max().map(|(_, number)| number)
    }

    /// Steps until `done`, for at most `limit` of virtual time; false if it was not.
    pub fn step_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now() + limit;
        while !done(self) {
            if self.now() >= end || !self.violations.is_empty() {
                return false;
            }
            self.step();
        }
        true
    }

    /// True if every replica runs, knows the same leader and has applied all that is in the leader's log.
    pub fn converged(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(leading) = self.nodes[leader].handle() else { return false };
        let last = leading.log().last().map_or(0, |last| last.index);
        let (id, hash) = (leading.inspect().member_id, leading.core().read().state_hash());
        self.nodes.iter().all(|node| {
            let Some(handle) = node.handle() else { return false };
            let inspection = handle.inspect();
            let (core, serving) = (handle.core(), handle.status().borrow().serving);
            let core = core.read();
            let applied = core.applied().map_or(0, |at| at.index);
            serving && inspection.leader == Some(id) && applied == last && core.state_hash() == hash
        })
    }

    /// True if every replica runs and shows its state.
    pub fn nodes_up(&self) -> bool {
        self.nodes.iter().all(|node| node.handle().is_some_and(|handle| handle.status().borrow().serving))
    }

    /// Every replica in a few words, for whoever reads why nothing goes on.
    pub fn describe(&self) -> String {
        let one = |node: &Rc<Node>| match node.handle() {
            None => format!("{} {:?}", node.name, node.process()),
            Some(handle) => {
                let status = handle.status().borrow().clone();
                format!(
                    "{} term {} leader {:?} committed {} applied {} log {} serving {}",
                    node.name,
                    status.term,
                    status.leader,
                    status.committed,
                    status.applied,
                    status.last_log,
                    status.serving
                )
            }
        };
        self.nodes.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}
