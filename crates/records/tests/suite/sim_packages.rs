//! What coordinators, nodes and reconcilers do about packages, one random step at a time.

use meta_client::Stored;
use records::keys::UnitKey;
use records::packages::{self, CopyReport, Progress, Remove, Targets};
use records::record::{Policy, Unit, UnitOrigin, UnitState};
use records::{UnitId, View};

use crate::sim::{DISPATCHERS, Effect, SERVERS, Sim};
use crate::world::{Proc, reserve, unit};

const UNITS: [&str; 4] = ["a:1", "a:2", "A:3", "b:1"];

impl Sim {
    pub fn create(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        let view = self.view();
        self.next += 1;
        let id = UNITS[self.roll(UNITS.len())];
        let mut wish = reserve(id, &format!("{}", self.next), &node);
        let content = crate::world::content(&format!("c{}", self.roll(2)));
        wish.manifest = Some(content).filter(|_| self.roll(2) == 0);
        wish.targets =
            [Targets::Live, Targets::Some(2), Targets::Named(vec!["n1".into()])][self.roll(3)].clone();
        wish.policy = [Policy::All, Policy::Majority, Policy::Copies(1)][self.roll(3)];
        wish.origin = if self.roll(4) == 0 { UnitOrigin::Private } else { UnitOrigin::Icp };
        wish.request = Some((format!("r{}", self.roll(30)), 0)).filter(|_| self.roll(2) == 0);
        self.send("reserve", &node, packages::reserve(&view, &wish), Effect::None);
    }

    fn some_unit(&mut self) -> Option<(View, UnitId, Stored<Unit>)> {
        let view = self.view();
        let (key, found) = self.pick(&view.all::<UnitKey>().unwrap())?;
        Some((view, key.unit, found))
    }

    /// The coordinator of a create goes on with it; a reconciler takes over or undoes a lost one.
    pub fn coordinate(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        let Some((view, unit, found)) = self.some_unit() else { return };
        if found.state != UnitState::Creating {
            return;
        }
        if found.coordinator != node.me {
            let take_over = packages::take_over(&view, &unit, &found.op, &node.me);
            if take_over.is_ok() && self.roll(2) == 0 {
                return self.send("take_over", &node, take_over, Effect::None);
            }
            let plan = packages::coordinator_lost(&view, &unit, &found.op);
            return self.send("coordinator_lost", &node, plan, Effect::None);
        }
        let (op, epoch) = (found.op.clone(), found.epoch);
        if found.manifest.is_none() {
            let (digest, manifest) = crate::world::content(&format!("c{}", self.roll(2)));
            let plan = packages::announce(&view, &unit, &op, epoch, &digest, &manifest);
            return self.send("announce", &node, plan, Effect::None);
        }
        match packages::progress(&view, &unit, &op) {
            Ok(Progress::Enough) => {
                self.send("ready", &node, packages::ready(&view, &unit, &op, epoch), Effect::None);
            }
            Ok(Progress::Failed { reason }) => {
                self.send("abort", &node, packages::abort(&view, &unit, &op, epoch, &reason), Effect::None);
            }
            Ok(Progress::NobodyLeft) => {
                self.send("abort", &node, packages::abort(&view, &unit, &op, epoch, "nobody"), Effect::None);
            }
            Ok(Progress::Waiting { .. }) | Err(_) => {}
        }
    }

    /// A node follows a package: fetches, drains, drops.
    pub fn tend(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        let Some((view, unit, found)) = self.some_unit() else { return };
        self.tend_one(&view, &node, &unit, &found);
    }

    pub fn tend_one(&mut self, view: &View, node: &Proc, unit: &UnitId, found: &Stored<Unit>) {
        let op = found.op.clone();
        let report = CopyReport { unit: unit.clone(), op: op.clone(), me: node.me.clone(), for_job: None };
        let copy = (node.me.node.clone(), unit.clone(), op.clone());
        match found.state {
            UnitState::Creating | UnitState::Ready => {
                let luck = if self.calm { 9 } else { self.roll(10) };
                let target = found.targets.contains(&node.me.node);
                if found.manifest.is_none() || !(target || luck < 2) {
                    return;
                }
                if luck == 3 && found.state == UnitState::Creating {
                    return self.send(
                        "failed",
                        node,
                        packages::failed(view, &report, "disk full"),
                        Effect::None,
                    );
                }
                if packages::fetching(view, &report, 0).is_ok() {
                    self.disk.insert(copy);
                }
                self.send("present", node, packages::present(view, &report, 3), Effect::None);
            }
            UnitState::Removing | UnitState::Purging => {
                if found.state == UnitState::Purging {
                    self.kill_mains(node, unit, &op);
                }
                if self.roll(3) == 0 {
                    self.send("draining", node, packages::draining(view, &report, 0), Effect::None);
                } else {
                    let plan = packages::dropped(view, &report);
                    self.send("dropped", node, plan, Effect::Delete(unit.clone(), op));
                }
            }
        }
    }

    /// Forced: whatever runs on it is killed.
    fn kill_mains(&mut self, node: &Proc, unit: &UnitId, op: &str) {
        for main in self.mains.values_mut().filter(|main| main.node == node.me) {
            if main.packages.iter().any(|package| package.unit == *unit && package.op == op) {
                main.over = main.over.or(Some(records::record::JobState::Failed));
            }
        }
    }

    pub fn remove_package(&mut self) {
        let Some(dispatcher) = self.alive(&DISPATCHERS) else { return };
        let view = self.view();
        let wish = Remove { unit: unit(UNITS[self.roll(UNITS.len())]), op: None, reason: "removed".into() };
        if self.roll(4) == 0 {
            self.send("force_remove", &dispatcher, packages::force_remove(&view, &wish), Effect::None);
        } else {
            self.send("remove", &dispatcher, packages::remove(&view, &wish), Effect::None);
        }
    }

    /// Any process reconciles: dead rows, the last step of a removal, private packages nobody came for.
    pub fn reconcile(&mut self) {
        let Some(proc) = self.alive(&["n1", "n2", "n3", "d1", "d2"]) else { return };
        let Some((view, unit, found)) = self.some_unit() else { return };
        for node in SERVERS {
            let plan = packages::dead_copy(&view, &unit, node);
            self.send("dead_copy", &proc, plan, Effect::None);
        }
        self.send("finish", &proc, packages::finish(&view, &unit, &found.op), Effect::None);
        if self.calm || self.roll(4) == 0 {
            self.send("sweep_private", &proc, packages::sweep_private(&view, &unit), Effect::None);
        }
    }
}
