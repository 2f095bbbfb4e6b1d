//! Stopping: one token that everything watches, a bounded wait, and the names of whoever is late.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long a stopping process waits for its tasks before it names the late ones and exits anyway.
pub const GRACE: Duration = Duration::from_secs(10);

/// A handle on the end of the process; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    running: Arc<Running>,
}

#[derive(Debug, Default)]
struct Running {
    names: Mutex<BTreeMap<u64, &'static str>>,
    next: AtomicU64,
    changed: Notify,
}

/// Held by a task that must be done before the process ends.
#[derive(Debug)]
pub struct TaskGuard {
    id: u64,
    running: Arc<Running>,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.running.names.lock().remove(&self.id);
        self.running.changed.notify_waiters();
    }
}

impl Shutdown {
    /// A shutdown that only [`Shutdown::begin`] starts.
    pub fn new() -> Self {
        Self::default()
    }

    /// A shutdown that SIGTERM or SIGINT starts. A second signal ends the process at once with code 1.
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let shutdown = Self::default();
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let begun = shutdown.clone();
        tokio::spawn(async move {
            let name = tokio::select! { _ = term.recv() => "SIGTERM", _ = int.recv() => "SIGINT" };
            tracing::info!(signal = name, "stopping");
            begun.begin();
            tokio::select! { _ = term.recv() => (), _ = int.recv() => () }
            tracing::warn!("second signal: leaving at once");
            std::process::exit(1);
        });
        Ok(shutdown)
    }

    /// Starts the end.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// The token that tasks select on.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Returns when the end has begun.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// Registers a task by name; the process waits for the guard to drop.
    pub fn guard(&self, name: &'static str) -> TaskGuard {
        let id = self.running.next.fetch_add(1, Ordering::Relaxed);
        self.running.names.lock().insert(id, name);
        TaskGuard { id, running: self.running.clone() }
    }

    /// Runs `task` with a guard held.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let guard = self.guard(name);
        tokio::spawn(async move {
            let out = task.await;
            drop(guard);
            out
        })
    }

    /// Begins the end and waits at most `grace` for every guard. Returns the names of those that are late, logged.
    pub async fn finish(&self, grace: Duration) -> Vec<&'static str> {
        self.begin();
        let _ = tokio::time::timeout(grace, self.all_done()).await;
        let late: Vec<_> = self.running.names.lock().values().copied().collect();
        if !late.is_empty() {
            tracing::warn!(
                late = late.join(", "),
                grace_s = grace.as_secs_f64(),
                "gave up waiting for tasks"
            );
        }
        late
    }

    async fn all_done(&self) {
        loop {
            let changed = self.running.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that a guard dropped in between is not missed.
            changed.as_mut().enable();
            if self.running.names.lock().is_empty() {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn finish_names_who_is_late_and_waits_for_the_rest() {
        let shutdown = Shutdown::new();
        let token = shutdown.token();
        shutdown.spawn("polite", async move { token.cancelled().await });
        shutdown.spawn("stubborn", std::future::pending::<()>());
        assert_eq!(shutdown.finish(Duration::from_secs(1)).await, vec!["stubborn"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_running_ends_at_once() {
        let shutdown = Shutdown::new();
        let start = tokio::time::Instant::now();
        assert!(shutdown.finish(Duration::from_secs(60)).await.is_empty());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
