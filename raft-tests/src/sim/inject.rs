//! Faults come and go: how each is done to the cluster, and undone.

use std::time::Duration;

use super::clock::RIGHT;
use super::fault::{Fault, Split};
use super::node::{Process, Trouble};
use super::plan::Planned;
use super::world::World;

/// How a fault goes away.
enum Lift {
    /// Ways open again.
    Open(Vec<(usize, usize)>),
    /// What was held comes.
    Release(Vec<(usize, usize)>),
    /// A link is as the others again.
    Quick((usize, usize)),
    /// Nothing is lost any more.
    NoLoss,
    /// A disk is well again: once it refused something, and counted that many refusals before.
    HealDisk(usize, u64),
    /// A disk is as quick as before.
    QuickDisk(usize),
    /// A clock is right again.
    RightClock(usize),
}

/// The faults of a run: what is to come, and what is on.
pub struct Faults {
    to_come: Vec<Planned>,
    on: Vec<(Duration, Planned, Lift)>,
    disk: (Duration, Duration),
    latency: Duration,
}

impl Faults {
    /// The planned faults, at times since `from`.
    pub fn new(world: &World, planned: &[Planned], setting: &super::plan::Setting) -> Self {
        let from = world.now();
        let to_come = planned.iter().map(|one| Planned { at: from + one.at, ..one.clone() });
        Self { to_come: to_come.collect(), on: Vec::new(), disk: setting.disk, latency: setting.latency.1 }
    }

    /// Does what is due. What cannot be done yet (there is no leader to crash) waits for its moment.
    pub fn drive(&mut self, world: &mut World) {
        let now = world.now();
        for (end, planned, lift) in std::mem::take(&mut self.on) {
            if end > now {
                self.on.push((end, planned, lift));
            } else if !took_effect(world, &lift) {
                tighten(world, &planned.fault);
                self.on.push((end, planned, lift));
            } else {
                self.lift(world, &planned, lift);
            }
        }
        let mut waiting = Vec::new();
        for planned in std::mem::take(&mut self.to_come) {
            if planned.at > now || !self.begin(world, &planned) {
                waiting.push(planned);
            }
        }
        self.to_come = waiting;
    }

    /// What was planned and did not come to be, or had no effect yet.
    pub fn pending(&self) -> Vec<String> {
        let to_come = self.to_come.iter().map(|planned| format!("{:?}", planned.fault));
        let on = self.on.iter().map(|(_, planned, _)| format!("{:?}", planned.fault));
        to_come.chain(on).collect()
    }

    /// True if something is still to come or is on.
    pub fn any(&self) -> bool {
        !self.to_come.is_empty() || !self.on.is_empty()
    }

    /// Ends everything, for good.
    pub fn end(&mut self, world: &mut World) {
        self.to_come.clear();
        for (_, planned, lift) in std::mem::take(&mut self.on) {
            self.lift(world, &planned, lift);
        }
        let down: Vec<usize> = world.restarts.keys().copied().collect();
        down.into_iter().for_each(|number| world.restart(number));
    }

    fn begin(&mut self, world: &mut World, planned: &Planned) -> bool {
        let Some(lift) = self.inject(world, planned) else { return false };
        world.trace.note(world.now(), format_args!("fault {:?} for {:?}", planned.fault, planned.lasts));
        match lift {
            Done::Over => *world.injected.entry(planned.kind).or_default() += 1,
            Done::Until(lift) => self.on.push((world.now() + planned.lasts, planned.clone(), lift)),
        }
        true
    }

    /// Does it; none if it cannot be done now.
    fn inject(&mut self, world: &mut World, planned: &Planned) -> Option<Done> {
        let until = |lift| Some(Done::Until(lift));
        match planned.fault {
            Fault::Crash { .. } | Fault::PowerCutAll | Fault::DamagedCheckpoint { .. } => {
                crash(world, &planned.fault, planned.lasts).then_some(Done::Over)
            }
            Fault::LeaderMove { to } => {
                let leader = world.leader()?;
                let to = if to == leader { (to + 1) % world.nodes.len() } else { to };
                let to = world.nodes[to].handle()?.inspect().member_id;
                world.nodes[leader].move_leader(to);
                Some(Done::Over)
            }
            Fault::PowerCutSoon { replica, operations } => {
                until(trouble(world, replica, Trouble::PowerOff { after: operations }))
            }
            Fault::FailingSync { replica } => until(trouble(world, replica, Trouble::FailingSync)),
            Fault::FullDisk { replica, room } => until(trouble(world, replica, Trouble::Full { room })),
            Fault::SlowDisk { replica, max_ms } => {
                let max = Duration::from_millis(max_ms);
                world.nodes[replica].speed.set(max / 4, max);
                // A stamp that shows a lease to be due, and the entry that ends it, wait for the disk each.
                world.lease_delay += 2 * max;
                until(Lift::QuickDisk(replica))
            }
            Fault::Split(ref split) => {
                let leader = world.leader();
                if *split == Split::Leader && leader.is_none() {
                    return None;
                }
                let ways = world.links.ways(split, leader);
                world.links.block(&mut world.sim, &ways, true);
                until(Lift::Open(ways))
            }
            Fault::Hold { replica } => {
                let ways = world.links.all_of(replica);
                world.links.hold(&mut world.sim, &ways, true);
                until(Lift::Release(ways))
            }
            Fault::Latency { from, to, ms } => {
                let way = (from, (from + to) % world.nodes.len());
                world.links.slow(&world.sim, way, Duration::from_millis(ms));
                until(Lift::Quick(way))
            }
            Fault::Loss { one_in } => {
                world.links.lose(&mut world.sim, Some(one_in));
                until(Lift::NoLoss)
            }
            Fault::Clock { replica, per_mille } => {
                world.nodes[replica].clock.set_pace(world.now(), per_mille);
                world.lease_delay += planned.lasts * RIGHT.saturating_sub(per_mille) / RIGHT;
                until(Lift::RightClock(replica))
            }
        }
    }

    fn lift(&self, world: &mut World, planned: &Planned, lift: Lift) {
        world.trace.note(world.now(), format_args!("lifted {:?}", planned.fault));
        *world.injected.entry(planned.kind).or_default() += 1;
        match lift {
            Lift::Open(ways) => world.links.block(&mut world.sim, &ways, false),
            Lift::Release(ways) => world.links.hold(&mut world.sim, &ways, false),
            Lift::Quick(way) => world.links.slow(&world.sim, way, self.latency),
            Lift::NoLoss => world.links.lose(&mut world.sim, None),
            Lift::HealDisk(replica, _) => world.nodes[replica].set_trouble(Trouble::None),
            Lift::QuickDisk(replica) => world.nodes[replica].speed.set(self.disk.0, self.disk.1),
            Lift::RightClock(replica) => world.nodes[replica].clock.set_pace(world.now(), RIGHT),
        }
    }
}

/// What an injection leaves to do.
enum Done {
    Over,
    Until(Lift),
}

fn trouble(world: &World, replica: usize, trouble: Trouble) -> Lift {
    let before = world.nodes[replica].disk().refusals();
    world.nodes[replica].set_trouble(trouble);
    Lift::HealDisk(replica, before)
}

/// A disk is healed only after its trouble was felt.
fn took_effect(world: &World, lift: &Lift) -> bool {
    match lift {
        Lift::HealDisk(replica, before) => world.nodes[*replica].disk().refusals() > *before,
        _ => true,
    }
}

/// A disk that was to be full, and of which more was freed than written since: now it is full.
fn tighten(world: &World, fault: &Fault) {
    if let Fault::FullDisk { replica, .. } = *fault {
        world.nodes[replica].set_trouble(Trouble::Full { room: 0 });
    }
}

fn is_up(world: &World, number: usize) -> bool {
    matches!(world.nodes[number].process(), Process::Starting | Process::Running)
}

fn crash(world: &mut World, fault: &Fault, down: Duration) -> bool {
    match *fault {
        Fault::Crash { replica, power_cut } => {
            let Some(number) = replica.or_else(|| world.leader()) else { return false };
            let up = is_up(world, number);
            if up {
                world.crash(number, power_cut, down);
            }
            up
        }
        Fault::PowerCutAll => {
            if !(0..world.nodes.len()).any(|number| is_up(world, number)) {
                return false;
            }
            for number in 0..world.nodes.len() {
                // Machines come back one by one.
                let after = world.chance.millis(0, 1000);
                world.crash(number, true, down + after);
            }
            true
        }
        Fault::DamagedCheckpoint { replica, newest, lost } => {
            if !is_up(world, replica) || !world.nodes[replica].has_checkpoint() {
                return false;
            }
            world.crash(replica, true, down);
            world.nodes[replica].damage_checkpoint(newest, lost)
        }
        _ => false,
    }
}
