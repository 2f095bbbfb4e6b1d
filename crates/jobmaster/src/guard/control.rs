//! What a JobMaster process tells a guard: one short line each, over the guard's stdin.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on CLOCK_BOOTTIME, which counts while the host is suspended and never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boottime(u64);

impl Boottime {
    /// No deadline at all, for jobs that are kept when the store is lost.
    pub const NEVER: Self = Self(u64::MAX);

    /// Now.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Self(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// From nanoseconds.
    pub fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// In nanoseconds.
    pub fn as_ns(self) -> u64 {
        self.0
    }

    /// So much later.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long until then; zero if it is past.
    pub fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }
}

/// An order to a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The attempt may run until then.
    Deadline(Boottime),
    /// SIGTERM to the program.
    Terminate,
    /// Kill everything now.
    Kill,
}

impl Order {
    /// The line, with its end. Short enough for a pipe to take whole or not at all.
    pub fn line(self) -> String {
        match self {
            Self::Deadline(at) => format!("D {}\n", at.as_ns()),
            Self::Terminate => "T\n".into(),
            Self::Kill => "K\n".into(),
        }
    }

    /// Reads a line without its end.
    pub fn parse(line: &str) -> Option<Self> {
        match line {
            "T" => Some(Self::Terminate),
            "K" => Some(Self::Kill),
            _ => line.strip_prefix("D ")?.parse().ok().map(|ns| Self::Deadline(Boottime::from_ns(ns))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_round_trip_and_nonsense_is_none() {
        for order in [Order::Terminate, Order::Kill, Order::Deadline(Boottime::NEVER)] {
            assert_eq!(Order::parse(order.line().trim_end()), Some(order));
        }
        for nonsense in ["", "D", "D -1", "D 1 2", "t", "X"] {
            assert_eq!(Order::parse(nonsense), None);
        }
    }
}
