//! What a replica does on the side: look at the quota, sweep what compactions left, and, leading, compact.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use meta_types::{Command, Revision};
use tokio::time::MissedTickBehavior;

use crate::context::Context;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Events swept in one look, while nobody writes.
const SWEEP_EVENTS: usize = 1_000;
/// Parts of the retention time at which the revision is noted: etcd's resolution.
const MARKS: u32 = 10;
/// How often all but the newest revisions are compacted, as etcd.
const BY_COUNT_EVERY: Duration = Duration::from_secs(300);
/// How long a compaction may take before it is tried again.
const PATIENCE: Duration = Duration::from_secs(5);

/// When history is compacted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompactionRules {
    /// Bytes of history; 0 is no bound.
    pub(crate) history_max_bytes: u64,
    /// Age of history; zero is no bound.
    pub(crate) periodic: Duration,
    /// Revisions of history; 0 is no bound.
    pub(crate) revisions: u64,
}

/// Runs until the shutdown.
pub(crate) async fn run(context: Arc<Context>, rules: CompactionRules) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut by_age = ByAge::new(rules.periodic);
    let mut last_by_count = context.clock.now();
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return,
            _ = every.tick() => {}
        }
        look(&context);
        let now = context.clock.now();
        let head = context.revision();
        let aged = by_age.due(now, head);
        if !context.status.borrow().is_leader() {
            continue;
        }
        if let Some(revision) = aged {
            compact(&context, revision, "auto-compaction.periodic").await;
        }
        if rules.revisions > 0 && now.saturating_sub(last_by_count) >= BY_COUNT_EVERY {
            last_by_count = now;
            let keep = Revision::try_from(rules.revisions).unwrap_or(Revision::MAX);
            compact(&context, head.saturating_sub(keep), "auto-compaction.revisions").await;
        }
        if rules.history_max_bytes > 0 {
            let due = context.core.read().compaction_for(rules.history_max_bytes);
            if let Some(revision) = due {
                compact(&context, revision, "history.max-bytes").await;
            }
        }
    }
}

fn look(context: &Context) {
    context.quota.look(&context.core.read());
    // Nothing to do is found out in no time; a long sweep goes on at the next look.
    context.core.write().sweep(SWEEP_EVENTS);
}

async fn compact(context: &Context, revision: Revision, rule: &'static str) {
    if revision <= context.core.read().compact_revision() || revision <= 1 {
        return;
    }
    match context.consensus.propose(Command::Compact(revision), PATIENCE).await {
        Ok(outcome) if outcome.result.is_ok() => {
            context.metrics.compactions.inc();
            tracing::info!(revision, rule, "compacted");
        }
        // Somebody else was quicker.
        Ok(_) => {}
        Err(error) => tracing::warn!(revision, rule, %error, "compaction not done, will be tried again"),
    }
}

/// Remembers which revision was the newest when, as a leader to be: every replica does.
struct ByAge {
    retention: Duration,
    marks: VecDeque<(Duration, Revision)>,
}

impl ByAge {
    fn new(retention: Duration) -> Self {
        Self { retention, marks: VecDeque::new() }
    }

    /// The revision that was the newest one retention time ago, once for each mark.
    fn due(&mut self, now: Duration, head: Revision) -> Option<Revision> {
        if self.retention.is_zero() {
            return None;
        }
        let step = self.retention / MARKS;
        if self.marks.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= step) {
            self.marks.push_back((now, head));
        }
        let (at, revision) = *self.marks.front()?;
        if now.saturating_sub(at) < self.retention {
            return None;
        }
        self.marks.pop_front();
        Some(revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_retention_is_due() {
        let mut by_age = ByAge::new(Duration::from_secs(100));
        let mut due = Vec::new();
        for second in 0..=125 {
            let head = 1000 + second as Revision;
            due.extend(by_age.due(Duration::from_secs(second), head).map(|revision| (second, revision)));
        }
        assert_eq!(due, [(100, 1000), (110, 1010), (120, 1020)]);
    }

    #[test]
    fn off_is_off() {
        let mut by_age = ByAge::new(Duration::ZERO);
        assert_eq!(by_age.due(Duration::from_secs(1_000_000), 9), None);
    }
}
