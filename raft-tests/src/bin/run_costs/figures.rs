//! What was measured: lengths of time, and what processes took.

use std::time::Duration;

/// Lengths of time of one kind.
#[derive(Debug, Default)]
pub struct Lengths(Vec<Duration>);

impl Lengths {
    /// One more.
    pub fn push(&mut self, length: Duration) {
        self.0.push(length);
    }

    /// The length that so many percent do not exceed; zero if there is none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    /// `p50 1.2 ms, p99 3.4 ms (of 100)`.
    pub fn told(&self) -> String {
        format!("p50 {}, p99 {} (of {})", ms(self.percentile(50)), ms(self.percentile(99)), self.0.len())
    }
}

impl Extend<Duration> for Lengths {
    fn extend<T: IntoIterator<Item = Duration>>(&mut self, lengths: T) {
        self.0.extend(lengths);
    }
}

/// Milliseconds with one digit.
pub fn ms(length: Duration) -> String {
    format!("{:.1} ms", length.as_secs_f64() * 1e3)
}

/// How many times as long.
pub fn ratio(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64().max(1e-9)
}

/// CPU that a process has taken, its ended children not counted; zero if it is gone.
pub fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may have spaces in it; utime and stime are the 14th and 15th field of the line.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Memory that a process holds, in MiB: private and shared, as `ps` shows it.
pub fn rss_mib(pid: u32) -> f64 {
    field_kib(pid, "status", "VmRSS:") / 1024.0
}

/// Memory that a process alone is the reason for, in MiB: what it shares is divided among those who share it.
pub fn pss_mib(pid: u32) -> f64 {
    field_kib(pid, "smaps_rollup", "Pss:") / 1024.0
}

fn field_kib(pid: u32, file: &str, field: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.percentile(99), Duration::ZERO);
        lengths.extend((1..=200).rev().map(Duration::from_millis));
        let of = |percent| lengths.percentile(percent).as_millis();
        assert_eq!((of(50), of(99), of(100)), (100, 198, 200));
    }

    #[test]
    fn this_process_takes_memory_and_time() {
        let me = std::process::id();
        assert!(rss_mib(me) > 1.0 && pss_mib(me) > 0.1);
        assert_eq!(cpu(0), Duration::ZERO);
    }
}
