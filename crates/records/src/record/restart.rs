//! What happens to a job whose container is lost, or whose main() fails after it had made it a job.

use serde::{Deserialize, Serialize};

/// A job's restart strategy. A lost container is never a failure of the job: it moves, whatever its budget, unless
/// main() may start once only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartStrategy {
    /// The job moves to another container; a main() that fails ends it.
    #[default]
    OnContainerLoss,
    /// main() is started at most once.
    None,
    /// A main() that fails is started again, so many times, after the same pause each time.
    FixedDelay {
        /// Restarts over the whole life of the job.
        attempts: u32,
        /// Pause before each.
        delay_ms: u64,
    },
    /// A main() that fails is started again after a pause that grows with each failure in a row.
    ExponentialDelay(Backoff),
}

/// What becomes of an attempt whose node cannot renew its lease, because the store or the way to it is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLostStore {
    /// It is killed before the lease runs out, and the job moves.
    #[default]
    Kill,
    /// It runs on, and the job moves only when it is known that nothing of it runs any more: see [`crate::jobs::resume`].
    Keep,
}

impl OnLostStore {
    /// As users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Keep => "keep",
        }
    }
}

/// How the pauses of [`RestartStrategy::ExponentialDelay`] grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The first pause.
    pub initial_ms: u64,
    /// The longest.
    pub max_ms: u64,
    /// Each is so many thousandths of the one before.
    pub multiplier_permille: u32,
    /// An attempt that ran so long was well: the failures before it do not count any more.
    pub reset_ms: u64,
    /// A pause is longer or shorter by up to so many thousandths of it.
    pub jitter_permille: u32,
    /// Restarts in a row before the job fails; none = without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// What a failure of main() leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restart {
    /// Which failure it is: all of them count with a fixed delay, those in a row with a growing one.
    pub failures: u32,
    /// The pause before main() is started again.
    pub pause_ms: u64,
}

impl RestartStrategy {
    /// Flink's name, or ours where Flink has none.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::OnContainerLoss => "on-container-loss",
            Self::None => "none",
            Self::FixedDelay { .. } => "fixed-delay",
            Self::ExponentialDelay(_) => "exponential-delay",
        }
    }

    /// Failures that lead to a restart; none = without end.
    pub fn budget(&self) -> Option<u32> {
        match self {
            Self::OnContainerLoss | Self::None => Some(0),
            Self::FixedDelay { attempts, .. } => Some(*attempts),
            Self::ExponentialDelay(backoff) => backoff.attempts,
        }
    }

    /// The restart after another failure of an attempt that ran for `ran_ms`; none = the budget is used up.
    /// `dice` is drawn evenly from all numbers.
    pub fn after_failure(&self, failures: u32, ran_ms: u64, dice: u32) -> Option<Restart> {
        let before = match self {
            Self::ExponentialDelay(backoff) if ran_ms >= backoff.reset_ms => 0,
            _ => failures,
        };
        let failures = before.saturating_add(1);
        if self.budget().is_some_and(|budget| failures > budget) {
            return None;
        }
        let pause_ms = match self {
            Self::OnContainerLoss | Self::None => return None,
            Self::FixedDelay { delay_ms, .. } => *delay_ms,
            Self::ExponentialDelay(backoff) => backoff.pause_ms(failures, dice),
        };
        Some(Restart { failures, pause_ms })
    }
}

impl Backoff {
    fn pause_ms(&self, failures: u32, dice: u32) -> u64 {
        let factor = f64::from(self.multiplier_permille) / 1000.0;
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let longest = self.max_ms as f64;
        let pause = (self.initial_ms as f64 * factor.powi(exponent)).min(longest);
        let from_minus_one_to_one = f64::from(dice) / f64::from(u32::MAX) * 2.0 - 1.0;
        let jitter = pause * f64::from(self.jitter_permille) / 1000.0 * from_minus_one_to_one;
        (pause + jitter).clamp(0.0, longest) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: u32 = u32::MAX / 2;

    fn backoff() -> Backoff {
        Backoff {
            initial_ms: 1000,
            max_ms: 10_000,
            multiplier_permille: 2000,
            reset_ms: 60_000,
            jitter_permille: 0,
            attempts: None,
        }
    }

    #[test]
    fn a_fixed_delay_counts_every_failure_of_the_jobs_life() {
        let strategy = RestartStrategy::FixedDelay { attempts: 2, delay_ms: 7 };
        assert_eq!(strategy.after_failure(0, 0, 0), Some(Restart { failures: 1, pause_ms: 7 }));
        assert_eq!(strategy.after_failure(1, u64::MAX, 0), Some(Restart { failures: 2, pause_ms: 7 }));
        assert_eq!(strategy.after_failure(2, u64::MAX, 0), None);
        assert_eq!(RestartStrategy::OnContainerLoss.after_failure(0, 0, 0), None);
        assert_eq!(RestartStrategy::None.after_failure(0, 0, 0), None);
    }

    #[test]
    fn a_growing_delay_grows_to_its_end_and_starts_anew_after_a_good_run() {
        let strategy = RestartStrategy::ExponentialDelay(backoff());
        let pause = |failures, ran| strategy.after_failure(failures, ran, MIDDLE).unwrap();
        let pauses: Vec<u64> = [0, 1, 2, 3, 4, 100_000, u32::MAX].map(|n| pause(n, 0).pause_ms).into();
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
        assert_eq!(pause(3, 60_000), Restart { failures: 1, pause_ms: 1000 });
        let few = RestartStrategy::ExponentialDelay(Backoff { attempts: Some(2), ..backoff() });
        assert_eq!(few.after_failure(2, 59_999, 0), None);
        assert_eq!(few.after_failure(2, 60_000, MIDDLE).unwrap().failures, 1);
        // A multiplier that rounding would swallow.
        let slow = Backoff { initial_ms: 1, multiplier_permille: 1100, ..backoff() };
        assert_eq!(slow.pause_ms(60, MIDDLE), 276);
    }

    #[test]
    fn jitter_stays_within_its_share_and_the_longest_pause() {
        let backoff = Backoff { jitter_permille: 100, ..backoff() };
        let pauses = [0, MIDDLE, u32::MAX].map(|dice| backoff.pause_ms(1, dice));
        assert_eq!(pauses, [900, 999, 1100]);
        assert_eq!(backoff.pause_ms(9, u32::MAX), 10_000);
    }

    #[test]
    fn records_of_before_are_read_and_new_ones_come_back_the_same() {
        for (text, strategy) in [
            ("\"on-container-loss\"", RestartStrategy::OnContainerLoss),
            ("\"none\"", RestartStrategy::None),
            (
                "{\"fixed-delay\":{\"attempts\":3,\"delay_ms\":10}}",
                RestartStrategy::FixedDelay { attempts: 3, delay_ms: 10 },
            ),
        ] {
            assert_eq!(serde_json::from_str::<RestartStrategy>(text).unwrap(), strategy);
            assert_eq!(serde_json::to_string(&strategy).unwrap(), text);
        }
        let growing = RestartStrategy::ExponentialDelay(backoff());
        let text = serde_json::to_string(&growing).unwrap();
        assert_eq!(serde_json::from_str::<RestartStrategy>(&text).unwrap(), growing);
    }
}
