//! What a seed decides before it runs: the cluster, its timings, and which faults come when.
//!
//! Faults that touch the same thing do not overlap (one disk fault a replica, one pace of its clock), so that each
//! can be lifted by itself; network faults and crashes overlap as they come. Damage is limited to what can be
//! recovered: checkpoints are damaged on one replica of a seed only.

use std::time::Duration;

use super::chance::Chance;
use super::fault::{Fault, Kind};

/// The cluster of a seed.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Names of the replicas.
    pub names: Vec<String>,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// Shortest and longest election timeout.
    pub election: (Duration, Duration),
    /// What a message takes.
    pub latency: (Duration, Duration),
    /// What a disk operation takes.
    pub disk: (Duration, Duration),
    /// Log after which a checkpoint is due.
    pub checkpoint_bytes: u64,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// The step of the simulation.
    pub tick: Duration,
}

/// A fault at its time.
#[derive(Debug, Clone)]
pub struct Planned {
    /// When, since faults began.
    pub at: Duration,
    /// How long; ignored by what takes no time.
    pub lasts: Duration,
    /// What it counts as.
    pub kind: Kind,
    /// What.
    pub fault: Fault,
}

/// Everything a seed decides.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cluster.
    pub setting: Setting,
    /// The faults, by time.
    pub faults: Vec<Planned>,
    /// Whether packages, runs and jobs are there too.
    pub domain: bool,
    /// How long faults come.
    pub safety: Duration,
}

/// Heartbeat, election, in milliseconds: the default three times, quicker ones, slow ones.
const TIMINGS: [(u64, u64, u64); 5] =
    [(100, 500, 800), (100, 500, 800), (100, 500, 800), (30, 150, 300), (150, 800, 1500)];

impl Plan {
    /// The plan of a seed.
    pub fn of(chance: &Chance) -> Self {
        let replicas = if chance.one_in(3) { 5 } else { 3 };
        let ms = Duration::from_millis;
        let (heartbeat, election_min, election_max) = *chance.pick(&TIMINGS);
        let latency_max = *chance.pick(&[2, 5, 20]);
        let disk_max = *chance.pick(&[1, 3, 10]);
        let setting = Setting {
            names: (1..=replicas).map(|number| format!("r{number}")).collect(),
            heartbeat: ms(heartbeat),
            election: (ms(election_min), ms(election_max)),
            latency: (ms(0), ms(latency_max)),
            disk: (Duration::from_micros(100), ms(disk_max)),
            checkpoint_bytes: *chance.pick(&[2 << 10, 4 << 10, 16 << 10]),
            segment_bytes: *chance.pick(&[8 << 10, 32 << 10]),
            tick: ms(2),
        };
        let safety = chance.millis(5_000, 14_000);
        let faults = faults(chance, replicas as usize, safety);
        Self { setting, faults, domain: chance.one_in(2), safety }
    }
}

/// Until when each thing is under a fault.
struct Busy {
    disk: Vec<Duration>,
    clock: Vec<Duration>,
    loss: Duration,
}

fn faults(chance: &Chance, replicas: usize, safety: Duration) -> Vec<Planned> {
    let unlucky = chance.below(replicas as u64) as usize;
    let mut busy = Busy {
        disk: vec![Duration::ZERO; replicas],
        clock: vec![Duration::ZERO; replicas],
        loss: Duration::ZERO,
    };
    let mut faults = Vec::new();
    let mut at = chance.millis(0, 2000);
    while at < safety {
        let kind = *chance.pick(Kind::ALL);
        let lasts = length(chance, kind).min(safety.saturating_sub(at));
        let victim = chance.below(replicas as u64) as usize;
        if let Some(fault) = kind.fault(chance, victim, unlucky)
            && busy.admit(&fault, at, at + lasts)
        {
            faults.push(Planned { at, lasts, kind, fault });
            at += chance.millis(200, 3000);
        }
    }
    faults
}

fn length(chance: &Chance, kind: Kind) -> Duration {
    match kind {
        Kind::CrashLong | Kind::PowerCutLong => chance.millis(4_000, 10_000),
        Kind::Hold => chance.millis(100, 2_000),
        _ if chance.one_in(3) => chance.millis(3_000, 8_000),
        _ => chance.millis(200, 2_500),
    }
}

impl Busy {
    /// True, and noted, unless another fault has hold of the same thing.
    fn admit(&mut self, fault: &Fault, at: Duration, until: Duration) -> bool {
        let end = match fault {
            Fault::FailingSync { replica }
            | Fault::FullDisk { replica, .. }
            | Fault::SlowDisk { replica, .. }
            | Fault::PowerCutSoon { replica, .. } => &mut self.disk[*replica],
            Fault::Clock { replica, .. } => &mut self.clock[*replica],
            Fault::Loss { .. } => &mut self.loss,
            _ => return true,
        };
        if at < *end {
            return false;
        }
        *end = until;
        true
    }
}
