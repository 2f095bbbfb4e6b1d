//! What users, coordinators and nodes do about registers, one random step at a time.

use meta_client::Stored;
use records::keys::{CopyKey, UnitKey};
use records::packages::{self, CopyReport, Targets};
use records::record::{CopyState, Policy, Unit, UnitOrigin, UnitState};
use records::{UnitId, View};

use crate::sim::{Effect, SERVERS, Sim};
use crate::sim_disk::Place;
use crate::world::{Proc, content, reserve, unit};

impl Sim {
    /// A user lays files where a package belongs, or takes them away again.
    pub fn lay_files(&mut self, id: &str) {
        let id = unit(id);
        let equal = self.roll(5) > 0;
        for node in SERVERS {
            let at = (node.to_owned(), id.clone());
            let content = if equal || self.roll(2) == 0 { "c0" } else { "c1" };
            let there = self.disk.get(&at).map(|place| place.op.is_none());
            if there == Some(true) && self.roll(4) == 0 {
                self.disk.remove(&at);
            } else if there != Some(false) {
                self.disk.insert(at, Place::of_user(content));
            }
        }
    }

    pub fn register(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        let view = self.view();
        self.next += 1;
        let id = self.units[self.roll(self.units.len())];
        if view.get(&UnitKey::new(&unit(id))).unwrap().is_none() && self.roll(4) > 0 {
            self.lay_files(id);
        }
        let mut wish = reserve(id, &format!("r{}", self.next), &node);
        wish.origin = UnitOrigin::Register;
        wish.manifest = None;
        wish.policy = Policy::All;
        wish.targets =
            if self.roll(3) == 0 { Targets::Named(vec!["n1".into(), "n2".into()]) } else { Targets::Live };
        let carried = Effect::Carry(wish.op.clone(), String::new());
        self.send("register", &node, packages::reserve(&view, &wish), carried);
    }

    /// The coordinator compares what the nodes found.
    pub fn compare_found(&mut self, view: &View, node: &Proc, unit: &UnitId, found: &Stored<Unit>) {
        let (op, epoch) = (&found.op, found.epoch);
        let Ok(said) = packages::inspections(view, unit, op) else { return };
        let late = !self.calm && self.roll(20) == 0;
        if !said.waiting.is_empty() && !late {
            return;
        }
        let first = said.found.first().map(|(_, digest)| digest.clone());
        match first
            .filter(|first| said.failed.is_empty() && said.found.iter().all(|(_, digest)| digest == first))
        {
            Some(digest) if said.waiting.is_empty() => {
                let (_, manifest) = content(digest.trim_start_matches("digest-"));
                let plan = packages::announce(view, unit, op, epoch, &digest, &manifest);
                self.send("announce_found", node, plan, Effect::None);
            }
            _ => {
                let plan = packages::abort(view, unit, op, epoch, "not equal");
                self.send("abort_register", node, plan, Effect::None);
            }
        }
    }

    /// A target's next step. It looks at the records anew before it touches a file.
    pub fn take_part(&mut self, node: &Proc, unit: &UnitId, op: &str) {
        let now = self.world.view();
        let found = now.get(&UnitKey::new(unit)).unwrap();
        let Some(found) = found.filter(|found| found.op == op && found.state == UnitState::Creating) else {
            return;
        };
        let row = now.get(&CopyKey::new(unit, &node.me.node)).unwrap();
        let row = row.filter(|row| row.op == op && row.incarnation == node.me.incarnation);
        let report = CopyReport { unit: unit.clone(), op: op.into(), me: node.me.clone(), for_job: None };
        if let Some(Place { op: Some(other), .. }) = self.place(&node.me.node, unit).cloned()
            && other != op
        {
            self.give_up(node, unit, &other);
        }
        let Some(place) = self.place(&node.me.node, unit).cloned() else {
            let due = row.is_none_or(|row| row.state == CopyState::Fetching);
            let plan = packages::failed(&now, &report, "MISSING");
            return if due {
                self.send("failed", node, plan, Effect::None)
            };
        };
        let (digest, _) = content(&place.content);
        match row.map(|row| (row.state, row.digest.clone())) {
            None | Some((CopyState::Fetching, None)) => {
                self.send("inspected", node, packages::inspected(&now, &report, &digest, 3), Effect::None);
            }
            Some((CopyState::Fetching, Some(_))) if found.manifest.is_none() => {}
            Some((CopyState::Fetching, Some(_))) if found.manifest.as_ref() == Some(&digest) => {
                self.adopt(&node.me.node, unit, op);
                if self.calm || self.roll(3) > 0 {
                    self.send("adopted", node, packages::adopted(&now, &report, &digest, 3), Effect::None);
                }
            }
            Some((CopyState::Fetching, Some(_))) => {
                self.send("failed", node, packages::failed(&now, &report, "changed"), Effect::None);
            }
            Some(_) => {}
        }
    }
}
