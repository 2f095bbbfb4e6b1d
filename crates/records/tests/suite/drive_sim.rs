//! One random step, and the calm after the storm in which everything must come to an end.

use records::keys::{
    CopyKey, JobCancelKey, JobKey, JobOwnerKey, PinKey, RunKey, RunOwnerKey, UnitKey, UseKey,
};
use records::record::{CopyState, OnLostStore, Phase, UnitState};
use records::{Plan, Refusal, View};

use crate::sim::{DISPATCHERS, Effect, SERVERS, Sim};
use crate::world::Proc;

/// Rounds after which nothing may be left to do, once everybody lives and nothing is lost any more.
const CALM_ROUNDS: usize = 60;

impl Sim {
    pub fn step(&mut self) {
        match self.roll(40) {
            0 | 1 | 12 => self.create(),
            2..=5 => self.submit(),
            6 => self.delete_or_cancel(),
            7 => match self.roll(4) {
                0 => self.remove_package(),
                1 | 2 => self.drain_node(),
                _ => self.stop_node(),
            },
            8 => {
                let name = self.some_server();
                self.server_down_or_up(name);
            }
            9 => {
                let name = DISPATCHERS[self.roll(2)];
                if self.roll(3) == 0 { self.crash(name) } else { self.boot_if_down(name) }
            }
            10 => self.pass(),
            11 | 13 => self.arrive(),
            14 => {
                let name = self.some_server();
                self.server_down_or_up(name);
            }
            _ => self.work_step(),
        }
        self.reap();
    }

    fn delete_or_cancel(&mut self) {
        match self.roll(3) {
            0 => self.delete_run(),
            1 => self.cancel_job(),
            _ => self.cancel_waiting(),
        }
    }

    /// A node that runs what is kept is away until its lease ran out; some jobs are not waited for.
    fn cut_off_kept(&mut self) {
        let name = self.some_server();
        self.cut_off(name);
        self.pass();
        self.pass();
        if self.roll(4) == 0 {
            self.cancel_waiting();
        }
        self.boot_if_down(name);
    }

    /// Any, or one that runs something that is kept.
    fn some_server(&mut self) -> &'static str {
        let any = SERVERS[self.roll(3)];
        let view = self.world.view();
        let job = |job| view.get(&JobKey::new(job)).unwrap();
        let is_kept = |id| job(id).is_some_and(|job| job.spec.on_lost_store == OnLostStore::Keep);
        let kept = self.mains.iter().find(|(id, main)| main.over.is_none() && is_kept(id));
        let keeps = kept.and_then(|(_, main)| SERVERS.into_iter().find(|name| *name == main.node.node));
        keeps.unwrap_or(any)
    }

    fn server_down_or_up(&mut self, name: &'static str) {
        match self.roll(6) {
            0 => self.crash(name),
            1 => self.cut_off(name),
            _ => return self.boot_if_down(name),
        }
        // Some are back as soon as their lease ran out, and some are not waited for.
        match self.roll(3) {
            0 => {
                self.pass();
                self.pass();
                self.cancel_waiting();
                self.boot_if_down(name);
            }
            1 => {
                self.pass();
                self.pass();
                self.boot_if_down(name);
            }
            _ => {}
        }
    }

    fn boot_if_down(&mut self, name: &'static str) {
        if self.procs[name].is_none() {
            self.boot(name);
        }
    }

    fn work_step(&mut self) {
        match self.roll(9) {
            0 => self.coordinate(),
            1 | 2 => self.tend(),
            3 => self.reconcile(),
            4 => self.drive_run(),
            5 => self.drive_job(),
            6 => self.claim(),
            _ => self.work(),
        }
        self.reap();
    }

    /// Sends a plan at once and knows its outcome.
    pub fn send_now<T>(&mut self, what: &'static str, from: &Proc, plan: Result<Plan<T>, Refusal>) {
        let calm = std::mem::replace(&mut self.calm, true);
        self.send(what, from, plan, Effect::None);
        self.calm = calm;
    }

    /// Packages above all: every operation on them, crashes of everybody, and the jobs that run on them.
    pub fn package_step(&mut self) {
        match self.roll(48) {
            0 | 1 => self.create(),
            2 => self.register(),
            3 if self.roll(8) == 0 => self.lay_files("b:1"),
            3 | 4 if self.roll(2) == 0 => self.create(),
            3..=5 => self.remove_package(),
            6..=8 => self.submit(),
            9 => self.delete_or_cancel(),
            10..=12 => {
                let name = self.some_server();
                self.server_down_or_up(name);
            }
            13 if self.roll(2) == 0 => {
                let name = DISPATCHERS[self.roll(2)];
                if self.roll(3) == 0 { self.crash(name) } else { self.boot_if_down(name) }
            }
            13 | 14 => self.pass(),
            15 | 16 => self.arrive(),
            17 => self.damage(),
            18..=23 => self.coordinate(),
            24..=33 => self.tend(),
            34..=36 => self.reconcile(),
            37 => self.drive_run(),
            38 | 39 => self.drive_job(),
            40 | 41 => self.claim(),
            _ => self.work(),
        }
        self.reap();
        if (self.world.kv.revision(), &self.disk) != (self.checked.0, &self.checked.1) {
            self.check_copies();
            self.checked = (self.world.kv.revision(), self.disk.clone());
        }
    }

    /// Everybody lives, nothing is lost: all that is in progress comes to an end, and nothing is left behind.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.end_drains();
        for name in SERVERS {
            let me = self.procs[name].clone().map(|proc| proc.me);
            if me.is_some_and(|me| records::nodes::is_leaving(&self.world.view(), &me).unwrap()) {
                self.crash(name);
            }
        }
        for name in SERVERS.iter().chain(&DISPATCHERS) {
            self.pass();
            self.pass();
            self.boot_if_down(name);
        }
        while !self.flights.is_empty() {
            self.arrive();
        }
        // One that was under way.
        self.end_drains();
        self.world.sparse = 7;
        for round in 0..CALM_ROUNDS {
            // Users move away what is in the way of a package.
            if round == CALM_ROUNDS / 3 {
                self.disk.retain(|_, place| place.op.is_some());
            }
            if round < CALM_ROUNDS / 3 && self.roll(4) == 0 {
                self.cut_off_kept();
            }
            self.round();
            if unsettled(&self.world.view()).is_empty() && self.left_over().is_empty() {
                let wrong = records::invariants(&self.world.view());
                assert!(wrong.is_empty(), "{wrong:#?}\n{:#?}", self.log);
                return;
            }
        }
        let left = (unsettled(&self.world.view()), self.left_over());
        panic!("still going on: {left:#?}\n{:#?}", self.log);
    }

    /// Everybody does what there is to do.
    fn round(&mut self) {
        for name in SERVERS {
            let node = self.procs[name].clone().expect("everybody lives");
            self.forget(&node);
            for (key, _) in self.world.view().all::<UnitKey>().unwrap() {
                for step in [Self::tend_one, Self::coordinate_one, Self::reconcile_one] {
                    let view = self.world.view();
                    if let Some(found) = view.get(&key).unwrap() {
                        step(self, &view, &node, &key.unit, &found);
                    }
                }
            }
            self.work_of(&node);
            self.reap();
        }
        // The run of a job may be deleted already.
        let (runs, jobs) = (self.world.view().all::<RunKey>(), self.world.view().all::<JobKey>());
        for _ in 0..runs.unwrap().len().max(jobs.unwrap().len()) {
            self.drive_run();
            self.drive_job();
            self.claim();
        }
        self.check_copies();
    }

    /// What is on disk and belongs to nothing, and what is not where it is to be.
    fn left_over(&self) -> Vec<String> {
        let view = self.world.view();
        let units = view.all::<UnitKey>().unwrap();
        let known =
            |at: &records::UnitId, op| units.iter().find(|(key, unit)| key.unit == *at && unit.op == op);
        let mut left = Vec::new();
        for ((node, unit), place) in &self.disk {
            let Some(op) = &place.op else { continue };
            if known(unit, op.as_str()).is_none() || place.damaged || (place.adopted && !place.confirmed) {
                left.push(format!("{unit} on {node}: {place:?}"));
            }
        }
        for (key, found) in &units {
            for node in &found.targets {
                let says = view.get(&CopyKey::new(&key.unit, node)).unwrap();
                let in_the_way = self.place(node, &key.unit).is_some_and(|place| place.op.is_none());
                if says.is_none_or(|row| row.state != CopyState::Present) && !in_the_way {
                    left.push(format!("{} is not on {node}: {:?}", key.unit, self.place(node, &key.unit)));
                }
            }
            if self.true_copies(&key.unit, found) == 0 {
                left.push(format!("{} is nowhere", key.unit));
            }
        }
        left
    }
}

/// What is in progress.
fn unsettled(view: &View) -> Vec<String> {
    let mut left = Vec::new();
    for (key, run) in view.all::<RunKey>().unwrap() {
        if run.phase != Phase::Completed {
            left.push(format!("{key:?} {run:?}"));
        }
    }
    for (key, job) in view.all::<JobKey>().unwrap() {
        if !job.state.is_terminal() {
            left.push(format!("{key:?} {job:?}"));
        }
    }
    for (key, unit) in view.all::<UnitKey>().unwrap() {
        if unit.state != UnitState::Ready {
            left.push(format!("{key:?} {unit:?}"));
        }
    }
    fn keys<K: meta_client::TypedKey>(view: &View, left: &mut Vec<String>) {
        left.extend(view.all::<K>().unwrap().into_iter().map(|(key, _)| format!("{key:?}")));
    }
    keys::<PinKey>(view, &mut left);
    keys::<UseKey>(view, &mut left);
    keys::<JobOwnerKey>(view, &mut left);
    keys::<JobCancelKey>(view, &mut left);
    keys::<RunOwnerKey>(view, &mut left);
    let copies = view.all::<CopyKey>().unwrap();
    left.extend(
        copies
            .iter()
            .filter(|(key, _)| view.get(&UnitKey::new(&key.unit)).unwrap().is_none())
            .map(|(key, _)| format!("{key:?}")),
    );
    left
}
