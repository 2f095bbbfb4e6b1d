//! What lies on the nodes' disks in a package's place, how it gets there and away, and what must be true of it.

use meta_client::Stored;
use records::keys::{CopyKey, UnitKey};
use records::packages::{self, CopyReport, drains};
use records::record::{CopyState, Unit, UnitOrigin, UnitState};
use records::{JobId, UnitId, View, nodes};

use crate::sim::{Effect, SERVERS, Sim};
use crate::world::Proc;

/// What lies where a package belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The operation whose mark it carries; none = files of a user.
    pub op: Option<String>,
    pub content: String,
    /// Files of a user that a register took over.
    pub adopted: bool,
    /// The records said READY: what was adopted is the package's for good.
    pub confirmed: bool,
    pub damaged: bool,
}

impl Place {
    pub fn of_user(content: &str) -> Self {
        Self { op: None, content: content.into(), adopted: false, confirmed: false, damaged: false }
    }
}

/// The content that a digest stands for.
pub fn content_of(digest: &str) -> String {
    digest.trim_start_matches("digest-").to_owned()
}

impl Sim {
    pub fn place(&self, node: &str, unit: &UnitId) -> Option<&Place> {
        self.disk.get(&(node.to_owned(), unit.clone()))
    }

    /// Whether the node has the operation's files, whole.
    pub fn holds(&self, node: &str, unit: &UnitId, op: &str) -> bool {
        self.place(node, unit).is_some_and(|place| place.op.as_deref() == Some(op) && !place.damaged)
    }

    pub fn publish(&mut self, node: &str, unit: &UnitId, op: &str, content: &str) {
        let place = Place { op: Some(op.into()), ..Place::of_user(content) };
        self.disk.insert((node.to_owned(), unit.clone()), place);
    }

    pub fn adopt(&mut self, node: &str, unit: &UnitId, op: &str) {
        if let Some(place) = self.disk.get_mut(&(node.to_owned(), unit.clone())) {
            *place = Place { op: Some(op.into()), adopted: true, ..place.clone() };
        }
    }

    pub fn confirm(&mut self, node: &str, unit: &UnitId, op: &str) {
        let place = self.disk.get_mut(&(node.to_owned(), unit.clone()));
        if let Some(place) = place.filter(|place| place.op.as_deref() == Some(op)) {
            place.confirmed = true;
        }
    }

    pub fn runs_on(&self, node: &Proc, unit: &UnitId, op: &str) -> bool {
        self.mains.values().any(|main| {
            main.node == node.me
                && main.over.is_none()
                && main.packages.iter().any(|package| package.unit == *unit && package.op == op)
        })
    }

    /// The node gives the operation's files up: deletes them, or hands them back to their user.
    /// P4: not under a running main(), unless by force. A user's files are deleted only if the package was READY.
    pub fn give_up(&mut self, node: &Proc, unit: &UnitId, op: &str) {
        let at = (node.me.node.clone(), unit.clone());
        let Some(place) = self.disk.get(&at).filter(|place| place.op.as_deref() == Some(op)) else { return };
        let forced = self.is_forced(op);
        assert!(
            forced || !self.runs_on(node, unit, op),
            "{unit} {op} deleted under a main() {:#?}",
            self.log
        );
        if place.adopted && !place.confirmed {
            let back = Place::of_user(&place.content);
            self.disk.insert(at, back);
            return;
        }
        assert!(
            !place.adopted || self.was_ready.contains(op),
            "{op}: a user's files deleted {:#?}",
            self.log
        );
        self.disk.remove(&at);
    }

    /// Removed by force: what runs on it loses it.
    pub fn is_forced(&self, op: &str) -> bool {
        self.purged.contains(op)
    }

    /// Makes sure of a copy, as far as one step goes: what is on disk already, the word FETCHING, the bytes.
    pub fn ensure(&mut self, node: &Proc, unit: &UnitId, op: &str, for_job: Option<JobId>) {
        let now = self.world.view();
        let Some(found) = now.get(&UnitKey::new(unit)).unwrap().filter(|found| found.op == op) else {
            return;
        };
        let report = CopyReport { unit: unit.clone(), op: op.into(), me: node.me.clone(), for_job };
        let row = now.get(&CopyKey::new(unit, &node.me.node)).unwrap().filter(|row| row.op == op);
        let mine = row.filter(|row| row.incarnation == node.me.incarnation).map(|row| row.state);
        match self.place(&node.me.node, unit).cloned() {
            Some(place) if place.op.as_deref() == Some(op) && !place.damaged => {
                let usable = mine.is_some_and(|state| {
                    state == CopyState::Present || (drains(state) && report.for_job.is_some())
                });
                if !usable {
                    self.send("present", node, packages::present(&now, &report, 3), Effect::None);
                }
                return;
            }
            Some(place) if place.op.as_deref() == Some(op) => {
                if mine != Some(CopyState::Corrupt) && mine != Some(CopyState::Fetching) {
                    return self.send(
                        "corrupt",
                        node,
                        packages::corrupt(&now, &report, "app.jar CORRUPT"),
                        Effect::None,
                    );
                }
                if self.runs_on(node, unit, op) {
                    return;
                }
            }
            Some(Place { op: Some(other), .. }) => self.give_up(node, unit, &other),
            Some(Place { op: None, .. }) | None => {}
        }
        if mine != Some(CopyState::Fetching) {
            self.send("fetching", node, packages::fetching(&now, &report, 0), Effect::None);
            let now = self.world.view().get(&CopyKey::new(unit, &node.me.node)).unwrap();
            let said = now.is_some_and(|row| {
                row.state == CopyState::Fetching && row.incarnation == node.me.incarnation
            });
            if !said || (!self.calm && self.roll(2) == 0) {
                return;
            }
        }
        self.fetch(node, unit, &found, &report);
    }

    /// The bytes, or the word why not.
    fn fetch(&mut self, node: &Proc, unit: &UnitId, found: &Stored<Unit>, report: &CopyReport) {
        let now = self.world.view();
        let wanted = content_of(found.manifest.as_deref().expect("announced"));
        let full = !self.calm && self.roll(12) == 0;
        let in_the_way = self.place(&node.me.node, unit).filter(|place| place.op.is_none()).cloned();
        let why = match &in_the_way {
            _ if full => "no space left on device",
            Some(place) if may_adopt_late(node, found) && place.content == wanted => {
                self.adopt(&node.me.node, unit, &found.op);
                return self.send("present", node, packages::present(&now, report, 3), Effect::None);
            }
            Some(_) => "files lie where it belongs",
            None if !self.has_source(&now, unit, found) => "no source",
            None => {
                self.publish(&node.me.node, unit, &found.op, &wanted);
                return self.send("present", node, packages::present(&now, report, 3), Effect::None);
            }
        };
        self.send("failed", node, packages::failed(&now, report, why), Effect::None);
    }

    /// A live process says that it has the package, and has; or its coordinator still has what it received.
    fn has_source(&self, view: &View, unit: &UnitId, found: &Stored<Unit>) -> bool {
        let lives = |node: &str| self.procs[node].is_some();
        SERVERS.iter().any(|server| {
            let row = view.get(&CopyKey::new(unit, &(*server).to_owned())).unwrap();
            let says = row.is_some_and(|row| drains(row.state) && row.op == found.op);
            let is_coordinator = found.state == UnitState::Creating && found.coordinator.node == *server;
            let staged = is_coordinator && self.creates.contains_key(&found.op);
            lives(server) && (says && self.holds(server, unit, &found.op) || staged)
        })
    }

    /// P4: what a live boot says it has is there, whole and of the announced content.
    pub fn check_copies(&self) {
        let view = self.world.view();
        for (key, row) in view.all::<CopyKey>().unwrap() {
            let unit = view.get(&UnitKey::new(&key.unit)).unwrap();
            let now = nodes::current(&view, &key.node).unwrap();
            let Some(unit) = unit.filter(|unit| unit.op == row.op && unit.state <= UnitState::Ready) else {
                continue;
            };
            if row.state != CopyState::Present || now.is_none_or(|now| now.incarnation != row.incarnation) {
                continue;
            }
            let place = self.place(&key.node, &key.unit);
            let true_copy = place.is_some_and(|place| {
                place.op.as_ref() == Some(&row.op)
                    && unit.manifest.as_deref().map(content_of).as_ref() == Some(&place.content)
            });
            assert!(true_copy, "{key:?} says {row:?}, on disk is {place:?} {:#?}", self.log);
        }
    }

    /// Copies of a package that are what was announced, on nodes that live.
    pub fn true_copies(&self, unit: &UnitId, found: &Unit) -> usize {
        let view = self.world.view();
        let is_copy = |node: &&&str| {
            let lives = nodes::current(&view, node).unwrap().is_some();
            let content = self.place(node, unit).map(|place| &place.content);
            lives
                && self.holds(node, unit, &found.op)
                && content == found.manifest.as_deref().map(content_of).as_ref()
        };
        SERVERS.iter().filter(is_copy).count()
    }
}

fn may_adopt_late(node: &Proc, found: &Unit) -> bool {
    found.origin == UnitOrigin::Register
        && found.targets.contains(&node.me.node)
        && packages::was_ready(found)
}
