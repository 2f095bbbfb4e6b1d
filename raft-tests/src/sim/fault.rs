//! The faults there are, and how one of a kind is drawn.

use super::chance::Chance;
use super::clock::RIGHT;

/// Kinds of faults, as the table counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A process is killed and comes back soon.
    CrashShort,
    /// It stays away for long: others purge what it needs.
    CrashLong,
    /// The machine loses power, and what was not synced with it.
    PowerCutShort,
    /// The same, for long.
    PowerCutLong,
    /// Power goes in the middle of one of the next writes.
    PowerCutInWrite,
    /// Every machine loses power at once.
    PowerCutAll,
    /// The leader is killed.
    CrashLeader,
    /// A sync fails, and all after it.
    FailingSync,
    /// No room on a disk.
    FullDisk,
    /// A disk takes its time.
    SlowDisk,
    /// Two groups that do not hear each other.
    SplitHalves,
    /// One replica alone.
    SplitSingle,
    /// The leader in the minority.
    SplitLeader,
    /// One direction of one link.
    SplitOneWay,
    /// One replica hears both groups, which do not hear each other.
    SplitBridge,
    /// Each replica hears a majority, and each another one.
    SplitRing,
    /// Clients do not reach a replica.
    SplitClients,
    /// Messages stand still on a replica's links, and then come all at once.
    Hold,
    /// A link is slow.
    Latency,
    /// Messages get lost, and with each its connection.
    Loss,
    /// A clock is slow, stands still, or is a little fast.
    Clock,
    /// The leadership is handed to another.
    LeaderMove,
    /// Power goes, and a checkpoint is damaged or lost.
    DamagedCheckpoint,
}

/// One of them, with what it does it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A process ends, maybe with its machine.
    Crash {
        /// Whose; none for the leader's.
        replica: Option<usize>,
        /// With what was not synced.
        power_cut: bool,
    },
    /// Power goes in one of the next writes.
    PowerCutSoon {
        /// Whose.
        replica: usize,
        /// After so many writing operations.
        operations: u64,
    },
    /// Every machine loses power.
    PowerCutAll,
    /// Syncs fail from the next one on.
    FailingSync {
        /// Whose.
        replica: usize,
    },
    /// No room.
    FullDisk {
        /// Whose.
        replica: usize,
        /// Bytes that still fit.
        room: u64,
    },
    /// Slow.
    SlowDisk {
        /// Whose.
        replica: usize,
        /// An operation takes up to so many milliseconds.
        max_ms: u64,
    },
    /// Links that carry nothing.
    Split(Split),
    /// Links that stand still.
    Hold {
        /// All of whose.
        replica: usize,
    },
    /// A slow link.
    Latency {
        /// Between this one
        from: usize,
        /// and that one.
        to: usize,
        /// A message takes so many milliseconds.
        ms: u64,
    },
    /// Lost messages.
    Loss {
        /// One in so many.
        one_in: u64,
    },
    /// A clock.
    Clock {
        /// Whose.
        replica: usize,
        /// Thousandths of the pace of time.
        per_mille: u32,
    },
    /// Leadership goes to another.
    LeaderMove {
        /// To whom, if it does not lead already.
        to: usize,
    },
    /// A power cut, and a checkpoint that is not what was written.
    DamagedCheckpoint {
        /// Whose.
        replica: usize,
        /// The newest or the one before.
        newest: bool,
        /// Gone altogether.
        lost: bool,
    },
}

/// Which links carry nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Split {
    /// Between the first so many of an order and the rest.
    Halves {
        /// Turns the order.
        turn: usize,
    },
    /// Between one and all others.
    Single(usize),
    /// Between the leader, with some company if there is, and the majority.
    Leader,
    /// From one to another, not back.
    OneWay(usize, usize),
    /// Between two groups; this one hears both.
    Bridge(usize),
    /// Each hears the next ones around a ring, as many as make a majority.
    Ring,
    /// Between a replica and the clients.
    Clients(usize),
}

impl Kind {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::CrashShort,
        Self::CrashLong,
        Self::PowerCutShort,
        Self::PowerCutLong,
        Self::PowerCutInWrite,
        Self::PowerCutAll,
        Self::CrashLeader,
        Self::FailingSync,
        Self::FullDisk,
        Self::SlowDisk,
        Self::SplitHalves,
        Self::SplitSingle,
        Self::SplitLeader,
        Self::SplitOneWay,
        Self::SplitBridge,
        Self::SplitRing,
        Self::SplitClients,
        Self::Hold,
        Self::Latency,
        Self::Loss,
        Self::Clock,
        Self::LeaderMove,
        Self::DamagedCheckpoint,
    ];

    /// One of this kind; none if it does not fit. `unlucky` is the only one whose checkpoints may be damaged.
    pub fn fault(self, chance: &Chance, victim: usize, unlucky: usize) -> Option<Fault> {
        let crash = |power_cut| Fault::Crash { replica: Some(victim), power_cut };
        Some(match self {
            Self::CrashShort | Self::CrashLong => crash(false),
            Self::PowerCutShort | Self::PowerCutLong => crash(true),
            Self::PowerCutInWrite => {
                Fault::PowerCutSoon { replica: victim, operations: chance.within(1, 12) }
            }
            Self::PowerCutAll => Fault::PowerCutAll,
            Self::CrashLeader => Fault::Crash { replica: None, power_cut: chance.one_in(2) },
            Self::FailingSync => Fault::FailingSync { replica: victim },
            Self::FullDisk => Fault::FullDisk { replica: victim, room: chance.within(0, 8 << 10) },
            // A follower that falls far behind while it hears its leader has to take a checkpoint at work.
            Self::SlowDisk if chance.one_in(2) => {
                Fault::SlowDisk { replica: victim, max_ms: chance.within(600, 2500) }
            }
            Self::SlowDisk => Fault::SlowDisk { replica: victim, max_ms: chance.within(50, 600) },
            Self::SplitHalves => Fault::Split(Split::Halves { turn: victim }),
            Self::SplitSingle => Fault::Split(Split::Single(victim)),
            Self::SplitLeader => Fault::Split(Split::Leader),
            Self::SplitOneWay => Fault::Split(Split::OneWay(victim, chance.within(1, 2) as usize)),
            Self::SplitBridge => Fault::Split(Split::Bridge(victim)),
            Self::SplitRing => Fault::Split(Split::Ring),
            Self::SplitClients => Fault::Split(Split::Clients(victim)),
            Self::Hold => Fault::Hold { replica: victim },
            Self::Latency => {
                let to = chance.within(1, 2) as usize;
                Fault::Latency { from: victim, to, ms: chance.within(20, 400) }
            }
            Self::Loss => Fault::Loss { one_in: chance.within(50, 1000) },
            Self::Clock => {
                Fault::Clock { replica: victim, per_mille: *chance.pick(&[0, 200, 900, RIGHT + 9]) }
            }
            Self::LeaderMove => Fault::LeaderMove { to: victim },
            Self::DamagedCheckpoint if victim == unlucky => {
                Fault::DamagedCheckpoint { replica: victim, newest: chance.one_in(2), lost: chance.one_in(3) }
            }
            Self::DamagedCheckpoint => return None,
        })
    }
}
