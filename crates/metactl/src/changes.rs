//! Waiting for records to change: a watch from the revision that was read, so that nothing is missed and nobody asks
//! again and again.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, StreamExt as _, future::select_all};
use meta_client::{EtcdKv, EtcdOptions, Kv as _, WatchRequest};
use meta_types::{KeyRange, Revision};
use records::{Scope, View};
use tokio::time::{sleep, timeout};

use crate::{
    cli::Globals,
    exit::{Failure, UNAVAILABLE},
    view,
};

/// A watch that was silent for so long is not trusted: the records are read again.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// Pause before a store that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long a command that waits bears with a store that does not answer.
const STORE_PATIENCE: Duration = Duration::from_secs(60);

/// Changes in the store.
pub struct Changes {
    kv: EtcdKv,
}

impl Changes {
    /// Of the store that the flags name.
    pub fn new(globals: &Globals) -> Result<Self, Failure> {
        Ok(Self { kv: kv(globals)? })
    }

    /// Returns when something in the scope changed after this revision, or may have.
    pub async fn after(&self, scope: &Scope, revision: Revision) {
        let watches = scope.ranges().iter().map(|range| self.changed(range, revision + 1).boxed());
        // Silence is no error: the caller looks again either way.
        let _ = timeout(MAX_SILENCE, select_all(watches)).await;
    }

    async fn changed(&self, range: &KeyRange, start_revision: Revision) {
        let request = WatchRequest { range: range.clone(), start_revision, prev_kv: false };
        if let Ok(mut watcher) = self.kv.watch(request).await {
            while let Some(Ok(batch)) = watcher.batches.next().await {
                if !batch.events.is_empty() {
                    return;
                }
            }
        }
        // Compacted away, or refused: the caller reads what there is now.
        sleep(ASK_AGAIN).await;
    }
}

/// The store as planners write to it.
pub fn kv(globals: &Globals) -> Result<EtcdKv, Failure> {
    let options = EtcdOptions { call_timeout: globals.command_timeout, ..EtcdOptions::default() };
    EtcdKv::connect(&globals.endpoints, options).map_err(|error| Failure::usage(error.to_string()))
}

/// Reads a scope, and bears for a while with a store that does not answer.
pub async fn load_patiently(globals: &Globals, scope: &Scope) -> Result<View, Failure> {
    let start = Instant::now();
    loop {
        match view::load(globals, scope.clone()).await {
            Err(failure) if failure.code == UNAVAILABLE && start.elapsed() < STORE_PATIENCE => {
                sleep(ASK_AGAIN).await;
            }
            other => return other,
        }
    }
}

/// Looks at a scope now and after each change until `look` breaks with an answer; `None` when the time is up. A store
/// that does not answer at first is an error at once.
pub async fn until<T>(
    globals: &Globals,
    scope: &Scope,
    time: Option<Duration>,
    mut look: impl FnMut(&View) -> Result<ControlFlow<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let changes = Changes::new(globals)?;
    let mut seen = view::load(globals, scope.clone()).await?;
    let waiting = async {
        loop {
            if let ControlFlow::Break(answer) = look(&seen)? {
                return Ok(answer);
            }
            changes.after(scope, seen.revision()).await;
            seen = load_patiently(globals, scope).await?;
        }
    };
    match time {
        None => waiting.await.map(Some),
        Some(time) => timeout(time, waiting).await.ok().transpose(),
    }
}

#[cfg(test)]
#[path = "../tests/lone/mod.rs"]
mod lone;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use meta_types::PutRequest;
    use records::keys::JobKey;

    use super::*;

    /// Nobody looks again while nothing changes, or while something else does.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_look_is_taken_at_first_and_after_each_change() {
        let (_dir, replica) = lone::replica().await;
        let globals = Globals {
            endpoints: vec![replica.client_addr().to_string()],
            output: None,
            command_timeout: Duration::from_secs(5),
        };
        let key = JobKey::new(&records::JobId::from_random(1));
        let scope = Scope::default().and_key(&key).and_all::<records::keys::RunKey>();
        let looks = AtomicUsize::new(0);
        let look = |view: &View| {
            looks.fetch_add(1, Ordering::Relaxed);
            let text = meta_client::TypedKey::encode(&key);
            Ok(if view.snapshot().get(text.as_bytes()).is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        };
        let time = Some(Duration::from_millis(700));
        assert_eq!(until(&globals, &scope, time, look).await.unwrap(), None);
        assert_eq!(looks.load(Ordering::Relaxed), 1, "nothing changed");

        let put = |key: String| async {
            let put = PutRequest { key: key.into(), value: "{}".into(), ..PutRequest::default() };
            kv(&globals).unwrap().put(put).await.unwrap()
        };
        let writer = async {
            put("/elsewhere".into()).await;
            put("/run/x".into()).await;
            while looks.load(Ordering::Relaxed) < 3 {
                sleep(Duration::from_millis(5)).await;
            }
            put(meta_client::TypedKey::encode(&key)).await;
        };
        let waiting = until(&globals, &scope, Some(Duration::from_secs(30)), look);
        let (found, ()) = tokio::join!(waiting, writer);
        assert_eq!(found.unwrap(), Some(()));
        assert_eq!(looks.load(Ordering::Relaxed), 4, "at first, after /run/x, after the job");
        replica.shutdown().await;
    }
}
