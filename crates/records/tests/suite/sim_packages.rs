//! What coordinators, nodes and reconcilers do about packages, one random step at a time. A node decides on what it
//! saw last; before it touches its disk it looks anew, as the real one does.

use meta_client::{Stored, TypedKey};
use records::keys::{CopyKey, PinKey, UnitKey, below};
use records::packages::{self, CopyReport, Progress, Remove, Targets};
use records::record::{CopyState, Policy, Unit, UnitOrigin, UnitState};
use records::{UnitId, View, nodes};

use crate::sim::{DISPATCHERS, Effect, SERVERS, Sim};
use crate::sim_disk::content_of;
use crate::world::{Proc, content, reserve, unit};

impl Sim {
    pub fn create(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        let view = self.view();
        self.next += 1;
        let id = self.units[self.roll(self.units.len())];
        let mut wish = reserve(id, &format!("{}", self.next), &node);
        let files = format!("c{}", self.roll(2));
        wish.manifest = Some(content(&files)).filter(|_| self.roll(2) == 0);
        wish.uploading = wish.manifest.is_some() && self.roll(2) == 0;
        wish.targets =
            [Targets::Live, Targets::Some(2), Targets::Named(vec!["n1".into()])][self.roll(3)].clone();
        wish.policy = [Policy::All, Policy::Majority, Policy::Copies(1)][self.roll(3)];
        wish.origin = if self.roll(4) == 0 { UnitOrigin::Private } else { UnitOrigin::Icp };
        wish.request = Some((format!("r{}", self.roll(30)), 0)).filter(|_| self.roll(2) == 0);
        let plan = match self.literal.create {
            true => Ok(crate::sim_literal::create(&view, wish.clone(), &files)),
            false => packages::reserve(&view, &wish).map(|plan| plan.map(drop)),
        };
        self.send("reserve", &node, plan, Effect::Carry(wish.op, files));
    }

    fn some_unit(&mut self) -> Option<(View, UnitId, Stored<Unit>)> {
        let view = self.view();
        let (key, found) = self.pick(&view.all::<UnitKey>().unwrap())?;
        Some((view, key.unit, found))
    }

    pub fn coordinate(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        let Some((view, unit, found)) = self.some_unit() else { return };
        self.coordinate_one(&view, &node, &unit, &found);
    }

    /// The coordinator of a create goes on with it; a node that has all of it takes a lost one's over.
    pub fn coordinate_one(&mut self, view: &View, node: &Proc, unit: &UnitId, found: &Stored<Unit>) {
        if found.state != UnitState::Creating {
            return;
        }
        let (op, epoch) = (found.op.clone(), found.epoch);
        if found.coordinator != node.me {
            let holds = self.holds(&node.me.node, unit, &op) && found.origin != UnitOrigin::Register;
            if let (true, Ok(plan)) = (holds, packages::take_over(view, unit, &op, &node.me)) {
                let files = found.manifest.as_deref().map(content_of).unwrap_or_default();
                self.send("take_over", node, Ok(plan), Effect::Carry(op, files));
            }
            return;
        }
        let Some((_, files)) = self.creates.get(&op).cloned() else {
            let stranded = packages::is_stranded(found, &node.me, |op| self.creates.contains_key(op));
            assert!(stranded, "{found:?}");
            return self.send(
                "stranded",
                node,
                packages::abort(view, unit, &op, epoch, "nobody carries it"),
                Effect::None,
            );
        };
        match (&found.manifest, found.origin) {
            (None, UnitOrigin::Register) => self.compare_found(view, node, unit, found),
            (Some(_), _) if !found.uploading => self.wait_for_targets(view, node, unit, found),
            _ => self.announce(view, node, unit, found, &files),
        }
    }

    /// What was received is published here and announced; or the client went away.
    fn announce(&mut self, view: &View, node: &Proc, unit: &UnitId, found: &Stored<Unit>, files: &str) {
        let (op, epoch) = (&found.op, found.epoch);
        if !self.calm && self.roll(10) == 0 {
            return self.send(
                "abort",
                node,
                packages::abort(view, unit, op, epoch, "broken off"),
                Effect::None,
            );
        }
        if found.targets.contains(&node.me.node) && self.place(&node.me.node, unit).is_none() {
            self.publish(&node.me.node, unit, op, files);
        }
        let (digest, manifest) = content(files);
        let plan = packages::announce(view, unit, op, epoch, &digest, &manifest);
        self.send(if found.uploading { "uploaded" } else { "announce" }, node, plan, Effect::None);
    }

    fn wait_for_targets(&mut self, view: &View, node: &Proc, unit: &UnitId, found: &Stored<Unit>) {
        let (op, epoch) = (&found.op, found.epoch);
        let give_up = |reason: &str| packages::abort(view, unit, op, epoch, reason);
        match packages::progress(view, unit, op) {
            Ok(Progress::Enough) if self.literal.create => {
                self.send("ready", node, Ok(crate::sim_literal::ready(view, unit)), Effect::None);
            }
            Ok(Progress::Enough) => {
                self.send("ready", node, packages::ready(view, unit, op, epoch), Effect::None);
            }
            Ok(Progress::Failed { .. } | Progress::NobodyLeft) if self.literal.create => {
                self.send(
                    "removed by its create",
                    node,
                    Ok(crate::sim_literal::forget(view, unit)),
                    Effect::None,
                );
            }
            Ok(Progress::Failed { reason, .. }) => self.send("abort", node, give_up(&reason), Effect::None),
            Ok(Progress::NobodyLeft) => self.send("abort", node, give_up("nobody"), Effect::None),
            Ok(Progress::Waiting { .. }) | Err(_) => {}
        }
    }

    /// A node follows a package.
    pub fn tend(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        if self.roll(8) == 0 {
            return self.forget(&node);
        }
        let Some((view, unit, found)) = self.some_unit() else { return };
        self.tend_one(&view, &node, &unit, &found);
    }

    pub fn tend_one(&mut self, view: &View, node: &Proc, unit: &UnitId, found: &Stored<Unit>) {
        let op = &found.op;
        let target = found.targets.contains(&node.me.node);
        let row = view.get(&CopyKey::new(unit, &node.me.node)).unwrap().filter(|row| row.op == *op);
        let mine = row.as_ref().filter(|row| row.incarnation == node.me.incarnation).map(|row| row.state);
        let here = self.place(&node.me.node, unit).filter(|place| place.op.as_ref() == Some(op)).cloned();
        match found.state {
            UnitState::Creating if found.origin == UnitOrigin::Register && target => {
                self.take_part(node, unit, op)
            }
            UnitState::Creating => {
                let known = found.manifest.is_some() && !found.uploading;
                if known && target && mine.is_none_or(|state| state == CopyState::Fetching) {
                    self.ensure(node, unit, op, None);
                }
            }
            UnitState::Ready if mine == Some(CopyState::Present) => match here {
                Some(place) if place.adopted && !place.confirmed => self.confirm(&node.me.node, unit, op),
                Some(place) if place.damaged => self.ensure(node, unit, op, None),
                _ => {}
            },
            UnitState::Ready => {
                let substitute = || packages::substitutes(view, unit, found).unwrap().contains(&node.me.node);
                if row.is_some() || here.is_some() || target || substitute() {
                    self.ensure(node, unit, op, None);
                }
            }
            UnitState::Removing | UnitState::Purging => {
                let forced = found.state == UnitState::Purging;
                let pins = view.under::<PinKey>(&below(PinKey::PREFIX, unit)).unwrap();
                if forced {
                    self.kill_mains(node, unit, op);
                }
                // The proposal counts what runs, and knows no pins.
                match pins.first().filter(|_| !forced && !self.literal.remove) {
                    Some((pin, _)) if here.is_some() && mine.is_none() => {
                        self.ensure(node, unit, op, Some(pin.job.clone()));
                    }
                    None if (self.literal.remove || !self.runs_on(node, unit, op))
                        && (self.calm || self.roll(3) > 0) =>
                    {
                        self.let_go(node, unit, op);
                    }
                    _ => {
                        let plan = packages::draining(view, &report(node, unit, op), 0);
                        self.send("draining", node, plan, Effect::None);
                    }
                }
            }
        }
    }

    /// N3: asks the records, takes the files out of sight, deletes the row; it may die in between.
    fn let_go(&mut self, node: &Proc, unit: &UnitId, op: &str) {
        let now = self.world.view();
        let report = report(node, unit, op);
        let plan = match self.literal.remove {
            true => crate::sim_literal::dropped(&now, &report),
            false => packages::dropped(&now, &report),
        };
        let Ok(plan) = plan else { return };
        let found = now.get(&UnitKey::new(unit)).unwrap().filter(|found| found.op == op);
        if found.is_some_and(|found| packages::was_ready(&found)) {
            self.confirm(&node.me.node, unit, op);
        }
        self.give_up(node, unit, op);
        if self.calm || self.roll(4) > 0 {
            self.send("dropped", node, Ok(plan), Effect::None);
        }
    }

    /// What the records do not know any more is given up.
    pub fn forget(&mut self, node: &Proc) {
        let now = self.world.view();
        let mine = self.disk.iter().filter(|((on, _), _)| *on == node.me.node);
        let marked: Vec<_> =
            mine.filter_map(|((_, unit), place)| Some((unit.clone(), place.op.clone()?))).collect();
        for (unit, op) in marked {
            let known = now.get(&UnitKey::new(&unit)).unwrap().is_some_and(|found| found.op == op);
            if !known && !self.runs_on(node, &unit, &op) {
                self.give_up(node, &unit, &op);
            }
        }
    }

    /// A copy goes bad. Not the last good one: nobody promised anything for that.
    pub fn damage(&mut self) {
        let view = self.world.view();
        let Some((key, found)) = self.pick(&view.all::<UnitKey>().unwrap()) else { return };
        if found.state != UnitState::Ready || self.true_copies(&key.unit, &found) < 2 {
            return;
        }
        let node = SERVERS[self.roll(3)];
        if self.holds(node, &key.unit, &found.op) && self.procs[node].is_some() {
            self.disk.get_mut(&(node.to_owned(), key.unit)).expect("held").damaged = true;
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
        let id = self.units[self.roll(self.units.len())];
        let wish = Remove { unit: unit(id), op: None, reason: "removed".into() };
        if self.roll(4) == 0 {
            self.send("force_remove", &dispatcher, packages::force_remove(&view, &wish), Effect::None);
        } else {
            self.send("remove", &dispatcher, packages::remove(&view, &wish), Effect::None);
        }
    }

    pub fn reconcile(&mut self) {
        let Some(proc) = self.alive(&["n1", "n2", "n3", "d1", "d2"]) else { return };
        let Some((view, unit, found)) = self.some_unit() else { return };
        self.reconcile_one(&view, &proc, &unit, &found);
    }

    /// Any process reconciles: lost coordinators, dead rows, the last step of a removal, private packages nobody came
    /// for. A node that has all of a create may be about to take it over: sometimes it is given the time.
    pub fn reconcile_one(&mut self, view: &View, proc: &Proc, unit: &UnitId, found: &Stored<Unit>) {
        if self.roll(2) == 0 {
            let plan = packages::coordinator_lost(view, unit, &found.op);
            self.send("coordinator_lost", proc, plan, Effect::None);
        }
        for node in SERVERS {
            let dead = nodes::current(view, node).unwrap().is_none();
            if dead {
                self.send("dead_copy", proc, packages::dead_copy(view, unit, node), Effect::None);
            }
        }
        self.send("finish", proc, packages::finish(view, unit, &found.op), Effect::None);
        if self.calm || self.roll(4) == 0 {
            self.send("sweep_private", proc, packages::sweep_private(view, unit), Effect::None);
        }
    }
}

fn report(node: &Proc, unit: &UnitId, op: &str) -> CopyReport {
    CopyReport { unit: unit.clone(), op: op.into(), me: node.me.clone(), for_job: None }
}
