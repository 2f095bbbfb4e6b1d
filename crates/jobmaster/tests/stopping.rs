//! Jobs leave a node: it stops, is drained, cannot start them, or is cut off. Each case is about what may run where,
//! and for how long; a script stands in for java.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::flaky::FlakyKv;
use common::{BOUND, Cluster, TestNode, deploy, spec, until_guard_is_gone};
use futures_util::StreamExt;
use jobmaster::NodeOptions;
use jobmaster::guard::spec::{AttemptDir, Cause, ExitRecord};
use jobmaster::limits::RELEASE_PAUSE;
use meta_client::record::from_bytes;
use meta_client::{Kv, TypedKey, WatchRequest};
use meta_types::KeyRange;
use records::JobId;
use records::keys::JobKey;
use records::record::{Job, JobState, RestartStrategy};

/// The node that jobs go to as long as it takes any.
async fn roomy(cluster: &Cluster) -> TestNode {
    cluster.node_with(NodeOptions { slots: 8, ..cluster.options("a") }).await
}

fn first_attempt(node: &TestNode, job: &JobId) -> AttemptDir {
    AttemptDir::at(node.work_dir.canonicalize().unwrap().join("jobs").join(job.as_str()).join("1"))
}

fn exit_of(dir: &AttemptDir) -> ExitRecord {
    let exit = dir.read_exit().unwrap().expect("the attempt is over");
    assert!(dir.lock().is_ok(), "its guard is gone");
    exit
}

async fn until_second_attempt(cluster: &Cluster, job: &JobId) -> Job {
    let is = |job: &Job| job.attempt == 2 && job.state == JobState::Running;
    cluster.until_job(job, "the second attempt", is).await
}

/// Every version of a job's record from now on.
async fn history(cluster: &Cluster, job: &JobId) -> impl FnMut() -> Vec<Job> {
    let range = KeyRange::one(JobKey::new(job).encode());
    let request = WatchRequest { range, ..WatchRequest::default() };
    let mut watcher = cluster.kv.watch(request).await.unwrap();
    move || {
        let mut seen = Vec::new();
        while let Some(Some(Ok(batch))) = futures_util::FutureExt::now_or_never(watcher.batches.next()) {
            seen.extend(batch.events.iter().map(|event| from_bytes::<Job>(&event.kv.value).unwrap()));
        }
        seen
    }
}

/// Its place is never on the node that it leaves, though that one is still registered and has most slots; and its
/// successor does not wait for a clock that nobody counts by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_nodes_jobs_start_elsewhere_at_once() {
    let cluster = Cluster::new().await;
    let mut shortest = Duration::MAX;
    let b = cluster.node("b").await;
    // Once is enough; a busy machine gets more tries.
    for _ in 0..5 {
        let mut options = NodeOptions { slots: 8, ..cluster.options("a") };
        options.host.stop_timeout = Duration::from_millis(1500);
        let a = cluster.node_with(options).await;
        let program = deploy(&cluster, &a, "app", "nodes=all").await;
        let job = cluster.admit(spec(&program, "forever", &[])).await;
        // Keeps the node for a while.
        let stubborn = cluster.admit(spec(&program, "stubborn", &[])).await;
        for job in [&job, &stubborn] {
            assert_eq!(cluster.until_running(job).await.attempts[0].owner.node, "a");
        }
        let mut versions = history(&cluster, &job).await;
        a.stop().await;
        let moved = cluster.until_job(&job, "the second start", |job| job.attempt == 2).await;
        assert_eq!(moved.attempts[1].owner.node, "b");
        let places = versions().into_iter().filter_map(|job| job.placed).map(|placed| placed.node);
        assert_eq!(places.collect::<Vec<_>>().iter().find(|place| *place == "a"), None);
        let left_at = exit_of(&first_attempt(&a, &job)).ended_at_ms;
        let pause = Duration::from_millis(moved.attempts[1].started_at_ms.saturating_sub(left_at));
        shortest = shortest.min(pause);
        let stayed_until = exit_of(&first_attempt(&a, &stubborn)).ended_at_ms;
        assert!(moved.attempts[1].started_at_ms < stayed_until, "it did not wait for the end of the node");
        for job in [&job, &stubborn] {
            cluster.cancel(job).await;
            cluster.until_over(job).await;
        }
        if shortest < Duration::from_secs(1) {
            break;
        }
    }
    assert!(shortest < Duration::from_secs(1), "the successor waited {shortest:?}");
    b.stop().await;
}

/// k8s#115844: what leaves may take its time, and no longer than the stop-timeout; its successor starts after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_will_not_leave_is_killed_at_the_stop_timeout_and_overlaps_with_nothing() {
    let cluster = Cluster::new().await;
    let mut options = NodeOptions { slots: 8, ..cluster.options("a") };
    options.host.stop_timeout = Duration::from_millis(1500);
    let a = cluster.node_with(options).await;
    let b = cluster.node("b").await;
    let program = deploy(&cluster, &a, "app", "nodes=all").await;
    let stubborn = cluster.admit(spec(&program, "stubborn", &[])).await;
    let polite = cluster.admit(spec(&program, "forever", &[])).await;
    for job in [&stubborn, &polite] {
        assert_eq!(cluster.until_running(job).await.attempts[0].owner.node, "a");
    }
    let stopped_at = Instant::now();
    a.stop().await;
    assert!(stopped_at.elapsed() >= Duration::from_millis(1500), "the stubborn one had its time");
    for job in [&stubborn, &polite] {
        let second = until_second_attempt(&cluster, job).await;
        let exit = exit_of(&first_attempt(&a, job));
        assert_eq!(exit.cause, Cause::Cancelled);
        assert_eq!(exit.signal == Some(9), job == &stubborn, "{exit:?}");
        assert!(second.attempts[1].started_at_ms >= exit.ended_at_ms, "{second:?} overlaps with {exit:?}");
    }
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_node_gives_back_what_may_start_again_and_waits_for_the_rest() {
    let cluster = Cluster::new().await;
    let a = roomy(&cluster).await;
    let b = cluster.node("b").await;
    let program = deploy(&cluster, &a, "app", "nodes=all").await;
    let file = cluster.dir.path().join("go");
    let moving = cluster.admit(spec(&program, "forever", &[])).await;
    let mut once = spec(&program, "until", &[&file.to_string_lossy()]);
    once.restart = RestartStrategy::None;
    let once = cluster.admit(once).await;
    for job in [&moving, &once] {
        assert_eq!(cluster.until_running(job).await.attempts[0].owner.node, "a");
    }
    cluster.drain("a").await;
    let moved = until_second_attempt(&cluster, &moving).await;
    assert_eq!((moved.attempts[1].owner.node.as_str(), moved.failures), ("b", 0));
    assert_eq!(exit_of(&first_attempt(&a, &moving)).cause, Cause::Cancelled);
    // A new one does not go there either.
    let new = cluster.admit(spec(&program, "forever", &[])).await;
    assert_eq!(cluster.until_running(&new).await.attempts[0].owner.node, "b");
    assert_eq!(cluster.job(&once).await.state, JobState::Running);
    std::fs::write(&file, "").unwrap();
    let (state, _, record) = cluster.until_over(&once).await;
    assert_eq!((state, record.attempt), (JobState::Finished, 1));
    a.stop().await;
    b.stop().await;
}

/// nomad#17563: with nowhere to go it waits, and is never taken for ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_the_only_node_waits_for_the_end_of_its_drain() {
    let cluster = Cluster::new().await;
    let a = roomy(&cluster).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let job = cluster.admit(spec(&program, "forever", &[])).await;
    cluster.until_running(&job).await;
    let mut versions = history(&cluster, &job).await;
    cluster.drain("a").await;
    let says = "every server node is being drained or is stopping";
    let waiting = cluster.until_job(&job, "the wait", |job| job.waiting.as_deref() == Some(says)).await;
    assert_eq!(waiting.state, JobState::Restarting);
    assert_eq!(exit_of(&first_attempt(&a, &job)).cause, Cause::Cancelled);
    cluster.cancel_drain("a").await;
    let again = until_second_attempt(&cluster, &job).await;
    assert_eq!(again.attempts[1].owner.node, "a");
    assert!(versions().iter().all(|job| !job.state.is_terminal() && job.exit.is_none()));
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_main_that_fails_starts_again_as_its_strategy_says() {
    let cluster = Cluster::new().await;
    let a = roomy(&cluster).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let with = |class: &str, args: &[&str]| {
        let mut spec = spec(&program, class, args);
        spec.restart = RestartStrategy::FixedDelay { attempts: 1, delay_ms: 50 };
        spec
    };
    let mark = cluster.dir.path().join("was-here");
    let recovers = cluster.admit(with("once", &[&mark.to_string_lossy()])).await;
    let fails = cluster.admit(with("exit", &["4", "1.3"])).await;
    let early = cluster.admit(with("exit", &["4"])).await;
    let (state, _, record) = cluster.until_over(&recovers).await;
    assert_eq!((state, record.attempt, record.failures), (JobState::Finished, 2, 1));
    let (state, exit, record) = cluster.until_over(&fails).await;
    assert_eq!((state, exit.code, record.attempt), (JobState::Failed, Some(4), 2));
    assert!(record.attempts[1].epoch > record.attempts[0].epoch);
    // Before main() made it a job its failure is the run's.
    let (state, _, record) = cluster.until_over(&early).await;
    assert_eq!((state, record.attempt, record.is_created()), (JobState::Failed, 1, false));
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_start_a_guard_hands_the_job_on_or_ends_it() {
    let cluster = Cluster::new().await;
    let guard = vec!["/no/such/guard".into()];
    let a = cluster.node_with(NodeOptions { slots: 8, guard, ..cluster.options("a") }).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let mut once = spec(&program, "finish", &[]);
    once.restart = RestartStrategy::None;
    // Nobody else can have it: it does not try for ever, and main() was never started.
    let (lost, tried) =
        (cluster.admit(once.clone()).await, cluster.admit(spec(&program, "finish", &[])).await);
    for job in [&lost, &tried] {
        let (state, exit, record) = cluster.until_over(job).await;
        assert_eq!((state, exit.class.as_deref()), (JobState::Failed, Some("CANNOT_START")));
        assert!(exit.text.contains("node a cannot start the guard"), "{}", exit.text);
        assert_eq!(record.attempt, 5);
        assert!(!record.is_created());
    }
    let b = cluster.node("b").await;
    let job = cluster.admit(once).await;
    let (state, exit, record) = cluster.until_over(&job).await;
    assert_eq!(state, JobState::Finished, "{exit:?}");
    assert_eq!((record.attempt, record.main_starts(), record.attempts[1].owner.node.as_str()), (2, 1, "b"));
    a.stop().await;
    b.stop().await;
}

/// A lost container is no failure of the job, so nothing counts these: only the pause keeps them few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_dies_at_once_is_not_started_again_at_once() {
    let cluster = Cluster::new().await;
    let guard = vec!["/bin/false".into()];
    let a = cluster.node_with(NodeOptions { slots: 8, guard, ..cluster.options("a") }).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let mut once = spec(&program, "finish", &[]);
    once.restart = RestartStrategy::None;
    let (state, exit, record) = {
        let job = cluster.admit(once).await;
        cluster.until_over(&job).await
    };
    assert_eq!((state, exit.class.as_deref(), record.attempt), (JobState::Failed, Some("OWNER_LOST"), 1));
    let job = cluster.admit(spec(&program, "finish", &[])).await;
    let record = cluster.until_job(&job, "a third attempt", |job| job.attempt == 3).await;
    let (first, third) = (record.attempts[0].started_at_ms, record.attempts[2].started_at_ms);
    let pauses = RELEASE_PAUSE.as_millis() as u64 * 2;
    assert!(third - first >= pauses, "{} ms for two starts", third - first);
    a.stop().await;
}

/// A pipe in the place of the first file of an attempt: its start goes no further until somebody reads.
struct Stuck(PathBuf);

impl Stuck {
    fn at(node: &TestNode, job: &JobId) -> Self {
        let dir = first_attempt(node, job);
        std::fs::create_dir_all(dir.path()).unwrap();
        let path = dir.path().join("spec.json.tmp");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        Self(path)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // Reading and writing: such an open never waits. Who waits goes on and finds that this is no file; who comes
        // later finds nothing.
        let pipe = std::fs::OpenOptions::new().read(true).write(true).open(&self.0);
        let _ = std::fs::remove_file(&self.0);
        drop(pipe);
    }
}

/// Whoever hears that a job is cancelled may count on it that nothing of it comes to life afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_not_over_while_its_guard_is_being_started() {
    let cluster = Cluster::new().await;
    let a = roomy(&cluster).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let other = cluster.admit(spec(&program, "forever", &[])).await;
    cluster.until_running(&other).await;
    let job = {
        // No place for it until the pipe is laid.
        let mut spec = spec(&program, "forever", &[]);
        spec.parallelism = 8;
        cluster.admit(spec).await
    };
    let stuck = Stuck::at(&a, &job);
    cluster.cancel(&other).await;
    cluster.until_over(&other).await;
    cluster.until_job(&job, "the start", |job| job.attempt == 1).await;
    cluster.cancel(&job).await;
    // The node has seen the wish: it does as it is told afterwards about a package.
    let witness = deploy(&cluster, &a, "witness", "").await;
    cluster.remove(&witness.unit, false).await;
    cluster.until_absent(&witness.unit).await;
    assert!(!cluster.job(&job).await.state.is_terminal(), "its guard is on its way");
    drop(stuck);
    assert_eq!(cluster.until_over(&job).await.0, JobState::Canceled);
    a.stop().await;
}

/// nomad#14925: a node that was cut off comes back after its job went elsewhere. One attempt stays, the newer one, and
/// wishes reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_leaves_the_job_where_it_is() {
    let cluster = Cluster::new().await;
    let kv = Arc::new(FlakyKv::new(cluster.kv.clone()));
    let mut options = NodeOptions { slots: 8, lease: Duration::from_secs(3), ..cluster.options("a") };
    options.host.keep_alive = Duration::from_millis(200);
    options.host.lease_margin = Duration::from_millis(500);
    let a = cluster.node_over(kv.clone(), options).await;
    let b = cluster.node("b").await;
    let program = deploy(&cluster, &a, "app", "nodes=all").await;
    let job = cluster.admit(spec(&program, "forever", &[])).await;
    assert_eq!(cluster.until_running(&job).await.attempts[0].owner.node, "a");
    let session = a.node.session().borrow().clone().unwrap();
    kv.down.store(true, Ordering::SeqCst);
    let first = first_attempt(&a, &job);
    until_guard_is_gone(&first).await;
    assert_eq!(exit_of(&first).cause, Cause::Deadline);
    // The store's lease runs out after the guard's.
    cluster.kv.revoke(session.lease);
    let second = until_second_attempt(&cluster, &job).await;
    assert_eq!(second.attempts[1].owner.node, "b");
    kv.down.store(false, Ordering::SeqCst);
    let mut sessions = a.node.session();
    let again = sessions.wait_for(|s| s.as_ref().is_some_and(|s| s.me.incarnation > session.me.incarnation));
    tokio::time::timeout(BOUND, again).await.unwrap().unwrap();
    // It is back and runs other jobs; this one stays.
    let new = cluster.admit(spec(&program, "forever", &[])).await;
    assert_eq!(cluster.until_running(&new).await.attempts[0].owner.node, "a");
    let now = cluster.job(&job).await;
    assert_eq!((now.attempt, now.state), (2, JobState::Running));
    cluster.cancel(&job).await;
    let (state, _, record) = cluster.until_over(&job).await;
    assert_eq!((state, record.attempt), (JobState::Canceled, 2));
    let (_, output) = b.get(&format!("/jobs/{job}/attempts/2/stdout")).await;
    assert!(output.contains("terminated"), "{output}");
    a.stop().await;
    b.stop().await;
}
