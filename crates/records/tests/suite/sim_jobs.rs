//! What dispatchers and nodes do about runs and jobs, one random step at a time.

use records::jobs::{self, Cancel, Ending};
use records::keys::{CopyKey, JobKey, JobOwnerKey, RunKey, UnitKey, UseKey};
use records::nodes;
use records::packages::{self, BeginUse, CopyReport};
use records::record::{Backoff, CopyState, JobState, OnLostStore, PackageRef, RestartStrategy};
use records::runs::{self, Advance, Delete};
use records::{JobId, View};

use crate::sim::{DISPATCHERS, Effect, Main, SERVERS, Sim};
use crate::world::{Proc, admit_wish, begin, job, spec, stated, trigger};

/// Strategies of the jobs: few restarts, so that budgets are used up.
const STRATEGIES: [RestartStrategy; 4] = [
    RestartStrategy::None,
    RestartStrategy::OnContainerLoss,
    RestartStrategy::FixedDelay { attempts: 1, delay_ms: PAUSE_MS },
    RestartStrategy::ExponentialDelay(Backoff {
        initial_ms: PAUSE_MS,
        max_ms: 2 * PAUSE_MS,
        multiplier_permille: 2000,
        reset_ms: 10,
        jitter_permille: 100,
        attempts: Some(2),
    }),
];
const PAUSE_MS: u64 = 1000;
/// How a main() ended that its node stopped to give the job back.
const GIVEN_BACK: JobState = JobState::Restarting;

impl Sim {
    /// An operator drains a node, or takes that back.
    pub fn drain_node(&mut self) {
        let (Some(by), name) = (self.alive(&DISPATCHERS), SERVERS[self.roll(3)]) else { return };
        let view = self.view();
        let is_drained = nodes::is_draining(&view, name).unwrap();
        if is_drained || self.calm {
            self.send("cancel_drain", &by, nodes::cancel_drain(&view, name), Effect::None);
        } else {
            self.send("drain", &by, nodes::drain(&view, name, 0), Effect::None);
        }
    }

    /// Nobody drains any more.
    pub fn end_drains(&mut self) {
        for name in SERVERS {
            let plan = nodes::cancel_drain(&self.world.view(), name).unwrap();
            self.world.commit(plan).expect("nobody else writes");
        }
    }

    /// A node begins to stop: it says so, and gives back what it runs. It is gone when it crashes.
    pub fn stop_node(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        let plan = nodes::say_stopping(&self.world.view(), &node.me);
        self.send_now("say_stopping", &node, plan);
        let running = self.mains.values_mut().filter(|main| main.node == node.me && main.over.is_none());
        running.for_each(|main| main.over = Some(GIVEN_BACK));
    }

    /// A client submits: few triggers, so that they meet; sometimes a different request.
    pub fn submit(&mut self) {
        let Some(dispatcher) = self.alive(&DISPATCHERS) else { return };
        let view = self.view();
        let ready: Vec<_> = packages::packages(&view)
            .unwrap()
            .into_iter()
            .filter_map(|status| records::UnitId::new(&status.name, &status.version).ok())
            .filter_map(|unit| packages::ready_package(&view, &unit).ok())
            .collect();
        let Some(program) = self.pick(&ready) else { return };
        let id = format!("t{}", self.roll(40));
        self.next += 1;
        let mut wish = admit_wish(&id, self.next, &program, &dispatcher);
        let restart = STRATEGIES[self.roll(STRATEGIES.len())];
        wish.spec = spec(&program, 1 + self.roll(2) as u32, restart);
        wish.spec.on_lost_store = if self.roll(3) == 0 { OnLostStore::Keep } else { OnLostStore::Kill };
        if self.roll(8) == 0 {
            wish.stated = stated("other");
        }
        if self.roll(8) == 0 {
            wish.job = job(1);
        }
        self.send("admit", &dispatcher, runs::admit(&view, &wish), Effect::None);
    }

    pub fn delete_run(&mut self) {
        let Some(dispatcher) = self.alive(&DISPATCHERS) else { return };
        let view = self.view();
        let trigger = trigger(&format!("t{}", self.roll(40)));
        let wish = Delete { trigger, token_retention: 0, job_retention: 0, now_ms: 0 };
        self.send("delete", &dispatcher, runs::delete(&view, &wish), Effect::None);
    }

    pub fn cancel_job(&mut self) {
        let Some(dispatcher) = self.alive(&DISPATCHERS) else { return };
        let view = self.view();
        // Mostly jobs that somebody runs.
        let owned =
            view.all::<JobOwnerKey>().unwrap().into_iter().map(|(key, _)| key.job).collect::<Vec<_>>();
        let all = view.all::<JobKey>().unwrap().into_iter().map(|(key, _)| key.job).collect::<Vec<_>>();
        let any = self.roll(4) == 0;
        let Some(job) = self.pick(if any { &all } else { &owned }) else { return };
        let wish = Cancel { job, reason: "cancel".into(), retention: 0, now_ms: 0 };
        self.send("cancel", &dispatcher, jobs::request_cancel(&view, &wish), Effect::None);
    }

    /// An operator does not wait for a node that is away.
    pub fn cancel_waiting(&mut self) {
        let Some(dispatcher) = self.alive(&DISPATCHERS) else { return };
        let view = self.view();
        let all = jobs::jobs(&view).unwrap();
        let waiting = all.into_iter().filter(|job| jobs::lost_host(&view, job).unwrap().is_some());
        let waiting: Vec<_> = waiting.map(|found| found.id).collect();
        let Some(job) = self.pick(&waiting) else { return };
        let wish = Cancel { job, reason: "cancel".into(), retention: 0, now_ms: 0 };
        self.send("cancel_by_force", &dispatcher, jobs::cancel_by_force(&view, &wish), Effect::None);
    }

    /// A boot answers for what earlier ones kept: main() goes on, its end is told, or nothing of it is left.
    fn answer_for(&mut self, view: &View, node: &Proc) {
        // What was cancelled by force meanwhile is killed: its epoch is over.
        let now = self.world.view();
        let epoch = |job: &JobId| now.get(&JobOwnerKey::new(job)).unwrap().map(|owner| owner.create_revision);
        self.mains.retain(|job, main| {
            main.node != node.me || main.over.is_some() || epoch(job) == Some(main.epoch)
        });
        for (key, owner) in view.all::<JobOwnerKey>().unwrap() {
            if owner.node != node.me.node
                || owner.incarnation == node.me.incarnation
                || !jobs::is_kept(&owner)
            {
                continue;
            }
            let (job, epoch) = (key.job, owner.create_revision);
            let main = self.mains.get(&job).filter(|main| main.node == node.me && main.epoch == epoch);
            match main.cloned() {
                Some(main) if main.over.is_none() => self.go_on(view, node, &job, &main),
                Some(_) => self.watch_main(view, node, &job, epoch),
                // What the process knows is not old: nothing of it runs here, or it was given back already.
                None => {
                    self.given_up.insert((job.clone(), epoch));
                    self.send("give back", node, jobs::release(view, &job, epoch, "gone"), Effect::None);
                }
            }
        }
    }

    fn go_on(&mut self, view: &View, node: &Proc, job: &JobId, main: &Main) {
        for package in &main.packages {
            self.ensure(node, &package.unit, &package.op, Some(job.clone()));
            let wish = BeginUse { epoch: Some(main.epoch), ..begin(package, job, node) };
            let begun = packages::begin_use(&self.world.view(), &wish);
            if begun.as_ref().is_err_and(|refusal| refusal.class == records::Class::UnitNotReady) {
                self.end_main(job, JobState::Failed);
                return;
            }
            self.send("begin_use", node, begun, Effect::None);
        }
        let view = if self.roll(2) == 0 { view.clone() } else { self.world.view() };
        let resumed = jobs::resume(&view, job, main.epoch, &node.me);
        self.send("resume", node, resumed, Effect::None);
    }

    /// A dispatcher adopts an orphan, or takes one of its runs a step on.
    pub fn drive_run(&mut self) {
        let Some(dispatcher) = self.alive(&DISPATCHERS) else { return };
        let view = self.view();
        let orphans = runs::orphans(&view).unwrap();
        if let Some(trigger) = self.pick(&orphans) {
            let plan = runs::adopt(&view, &trigger, &dispatcher.me, dispatcher.lease);
            self.send("adopt", &dispatcher, plan, Effect::None);
        }
        let Some((key, _)) = self.pick(&view.all::<RunKey>().unwrap()) else { return };
        let found = runs::run(&view, &key.trigger).unwrap().unwrap();
        let Some(epoch) = found.epoch.filter(|_| found.owner == Some(dispatcher.me.clone())) else { return };
        let step = Advance { trigger: key.trigger, epoch, run_retention: 0, token_retention: 0, now_ms: 0 };
        self.send("advance", &dispatcher, runs::advance(&view, &step), Effect::None);
    }

    pub fn drive_job(&mut self) {
        let Some(dispatcher) = self.alive(&DISPATCHERS) else { return };
        let view = self.view();
        let Some((job, found)) = self.pick(&jobs::ownerless(&view).unwrap()) else { return };
        let give_up_on = found.placed.as_ref().filter(|_| self.roll(4) == 0).map(|placed| {
            records::record::NodeRef { node: placed.node.clone(), incarnation: placed.incarnation }
        });
        let waited_ms = if self.calm || self.roll(2) == 0 { 2 * PAUSE_MS } else { PAUSE_MS / 2 };
        let wish = jobs::Drive { job, waited_ms, give_up_on, retention: 0, now_ms: 0 };
        self.send("drive", &dispatcher, jobs::drive(&view, &wish), Effect::None);
    }

    pub fn claim(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        // A node claims one job at a time, on the newest view, and knows the outcome before the next.
        let view = self.world.view();
        for (job, _) in jobs::claimable(&view, &node.me).unwrap() {
            let plan = jobs::claim(&self.world.view(), &job, &node.me, node.lease);
            self.send_now("claim", &node, plan);
        }
    }

    /// A node takes one of its jobs a step on.
    pub fn work(&mut self) {
        let Some(node) = self.alive(&SERVERS) else { return };
        self.work_of(&node);
    }

    pub fn work_of(&mut self, node: &Proc) {
        let view = self.view();
        self.answer_for(&view, node);
        for (job, epoch) in owned(&view, node) {
            self.work_on(&view, node, job, epoch);
        }
    }

    fn work_on(&mut self, view: &View, node: &Proc, job: JobId, epoch: i64) {
        if self.mains.get(&job).is_some_and(|main| main.node == node.me && main.epoch == epoch) {
            self.watch_main(view, node, &job, epoch);
        } else {
            self.prepare(view, node, &job, epoch);
        }
    }

    /// Before main(): fetch, use, start; or kill, or give up, if it may not.
    fn prepare(&mut self, view: &View, node: &Proc, job: &JobId, epoch: i64) {
        let found = jobs::job(view, job).unwrap().unwrap();
        let given_up = self.given_up.contains(&(job.clone(), epoch));
        if found.cancel_wished || given_up {
            self.given_up.insert((job.clone(), epoch));
            let state = if found.cancel_wished { JobState::Canceled } else { JobState::Failed };
            let plan = jobs::ended(view, job, epoch, &ending(state, false));
            return self.send("ended", node, plan, Effect::None);
        }
        let program = found.job.spec.program.clone();
        let used = view.get(&UseKey::new(&program.unit, &node.me.node, &job.to_string())).unwrap();
        if used.is_some_and(|used| used.op == program.op && used.incarnation == node.me.incarnation) {
            // A use that is written is what the start goes by; nobody looks at the disk again.
            let plan = jobs::start_attempt(view, job, epoch, 0);
            return self.send("start_attempt", node, plan, Effect::Start(job.clone(), epoch));
        }
        if !self.holds(&node.me.node, &program.unit, &program.op) {
            let report = CopyReport {
                unit: program.unit.clone(),
                op: program.op.clone(),
                me: node.me.clone(),
                for_job: Some(job.clone()),
            };
            if packages::fetching(view, &report, 0).is_err() {
                self.given_up.insert((job.clone(), epoch));
                let plan = jobs::ended(view, job, epoch, &ending(JobState::Failed, false));
                return self.send("ended", node, plan, Effect::None);
            }
            let row = view.get(&CopyKey::new(&program.unit, &node.me.node)).unwrap();
            if row.is_some_and(|row| row.state == CopyState::Failed) && self.roll(2) == 0 {
                self.given_up.insert((job.clone(), epoch));
                return self.send("release", node, jobs::release(view, job, epoch, "not here"), Effect::None);
            }
            return self.ensure(node, &program.unit, &program.op, Some(job.clone()));
        }
        // What the disk has and the row does not say is said first, as for every start.
        let row = self.world.view().get(&CopyKey::new(&program.unit, &node.me.node)).unwrap();
        let says = row.is_some_and(|row| {
            row.op == program.op
                && row.incarnation == node.me.incarnation
                && matches!(row.state, CopyState::Present | CopyState::Draining)
        });
        if !says {
            return self.ensure(node, &program.unit, &program.op, Some(job.clone()));
        }
        if self.is_leaving(view, node) {
            self.given_up.insert((job.clone(), epoch));
            let plan = jobs::release_unstarted(view, job, epoch, "leaving");
            return self.send("release_unstarted", node, plan, Effect::None);
        }
        let begun = match self.literal.remove {
            true => crate::sim_literal::begin_use(view, &begin(&program, job, node)),
            false => {
                packages::begin_use(view, &BeginUse { epoch: Some(epoch), ..begin(&program, job, node) })
            }
        };
        if begun.is_err() || self.roll(12) == 0 {
            self.given_up.insert((job.clone(), epoch));
            let plan = jobs::release_unstarted(view, job, epoch, "not here");
            return self.send("release_unstarted", node, plan, Effect::None);
        }
        if self.roll(8) == 0 {
            self.remove_in_between(node, &program);
        }
        self.send("begin_use", node, begun, Effect::None);
        let fresh = self.view();
        let plan = jobs::start_attempt(&fresh, job, epoch, 0);
        self.send("start_attempt", node, plan, Effect::Start(job.clone(), epoch));
    }

    /// The worst moment: a removal, as far as this node goes with it, between the look and the write.
    fn remove_in_between(&mut self, node: &Proc, program: &PackageRef) {
        self.remove_package();
        let now = self.world.view();
        let found = now.get(&UnitKey::new(&program.unit)).unwrap();
        if let Some(found) = found.filter(|found| found.op == program.op) {
            self.tend_one(&now, node, &program.unit, &found);
        }
    }

    /// main() runs, or ended and the store has to be told.
    fn watch_main(&mut self, view: &View, node: &Proc, job: &JobId, epoch: i64) {
        let found = jobs::job(view, job).unwrap().unwrap();
        let Some(over) = self.mains[job].over else {
            if found.cancel_wished {
                self.send("cancelling", node, jobs::cancelling(view, job, epoch), Effect::None);
                self.end_main(job, JobState::Canceled);
            } else if self.is_leaving(view, node) && found.job.spec.restart != RestartStrategy::None {
                self.end_main(job, GIVEN_BACK);
            } else if !found.job.is_created() || found.job.state == JobState::Restarting {
                self.send("created", node, jobs::created(view, job, epoch, 0), Effect::None);
            } else if self.roll(match found.job.spec.on_lost_store {
                OnLostStore::Keep => 4,
                OnLostStore::Kill if self.calm => 1,
                OnLostStore::Kill => 3,
            }) == 0
            {
                let state = if self.roll(2) == 0 { JobState::Finished } else { JobState::Failed };
                self.end_main(job, state);
            }
            return;
        };
        if over == GIVEN_BACK {
            return self.send("release", node, jobs::release(view, job, epoch, "leaving"), Effect::None);
        }
        let created = over == JobState::Finished;
        if over == JobState::Failed {
            let dice = self.roll(usize::MAX) as u32;
            let ran_ms = self.roll(20) as u64;
            let wish = jobs::MainFailed { ending: ending(over, created), ran_ms, dice };
            let plan = jobs::main_failed(view, job, epoch, &wish);
            return self.send("main_failed", node, plan, Effect::None);
        }
        self.send("ended", node, jobs::ended(view, job, epoch, &ending(over, created)), Effect::None);
    }

    /// The node is drained or stopping.
    fn is_leaving(&self, view: &View, node: &Proc) -> bool {
        nodes::is_draining(view, &node.me.node).unwrap() || nodes::is_leaving(view, &node.me).unwrap()
    }

    fn end_main(&mut self, job: &JobId, state: JobState) {
        if let Some(main) = self.mains.get_mut(job) {
            main.over = Some(state);
        }
    }

    /// Forgets mains whose end the store knows.
    pub fn reap(&mut self) {
        let view = self.world.view();
        let owner_of = |job: &JobId| view.get(&JobOwnerKey::new(job)).unwrap().map(|o| o.create_revision);
        let known = |(job, main): &(&JobId, &Main)| main.over.is_some() && owner_of(job) != Some(main.epoch);
        let ended: Vec<_> =
            self.mains.iter().filter(known).map(|(job, main)| (job.clone(), main.epoch)).collect();
        // However old the view is that an owner looks at: it knows itself what it has ended.
        for (job, epoch) in ended {
            self.mains.remove(&job);
            self.given_up.insert((job, epoch));
        }
    }
}

fn owned(view: &View, node: &Proc) -> Vec<(JobId, i64)> {
    let owners = view.all::<JobOwnerKey>().unwrap();
    let mine = owners
        .into_iter()
        .filter(|(_, owner)| owner.node == node.me.node && owner.incarnation == node.me.incarnation);
    mine.map(|(key, owner)| (key.job, owner.create_revision)).collect()
}

fn ending(state: JobState, created: bool) -> Ending {
    Ending { state, exit: Default::default(), created, retention: 0, now_ms: 0 }
}
