//! One random step, and the calm after the storm in which everything must come to an end.

use records::keys::{
    CopyKey, JobCancelKey, JobKey, JobOwnerKey, PinKey, RunKey, RunOwnerKey, UnitKey, UseKey,
};
use records::record::{Phase, UnitState};
use records::{Plan, Refusal, View};

use crate::sim::{DISPATCHERS, Effect, SERVERS, Sim};
use crate::world::Proc;

/// Steps after which nothing may be left to do, once everybody lives and nothing is lost any more.
const CALM_STEPS: usize = 4_000;

impl Sim {
    pub fn step(&mut self) {
        match self.roll(40) {
            0 | 1 | 12 => self.create(),
            2..=5 => self.submit(),
            6 => self.delete_or_cancel(),
            7 if self.roll(2) == 0 => self.remove_package(),
            7 => self.submit(),
            8 => {
                let name = SERVERS[self.roll(3)];
                if self.roll(3) == 0 { self.crash(name) } else { self.boot_if_down(name) }
            }
            9 => {
                let name = DISPATCHERS[self.roll(2)];
                if self.roll(3) == 0 { self.crash(name) } else { self.boot_if_down(name) }
            }
            10 => self.pass(),
            11 | 13 => self.arrive(),
            _ => self.work_step(),
        }
        self.reap();
    }

    fn delete_or_cancel(&mut self) {
        if self.roll(2) == 0 { self.delete_run() } else { self.cancel_job() }
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

    /// Everybody lives, nothing is lost: all that is in progress comes to an end.
    pub fn calm_down(&mut self) {
        self.calm = true;
        for name in SERVERS.iter().chain(&DISPATCHERS) {
            self.pass();
            self.pass();
            self.boot_if_down(name);
        }
        for _ in 0..20 {
            self.arrive();
        }
        for step in 0..CALM_STEPS {
            self.work_step();
            if step % 16 == 0 && unsettled(&self.world.view()).is_empty() {
                return;
            }
        }
        panic!("still going on: {:#?}\n{:#?}", unsettled(&self.world.view()), self.log);
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
