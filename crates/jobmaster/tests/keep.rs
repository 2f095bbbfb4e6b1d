//! A job that is kept lives through an outage of the store that kills the others, with its process, its attempt and its
//! epoch; and is not waited for by who cancels it by force. The store is in memory, guards and programs are processes.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::flaky::FlakyKv;
use common::{BOUND, Cluster, TestNode, deploy, spec, until_guard_is_gone};
use jobmaster::NodeOptions;
use jobmaster::guard::spec::{AttemptDir, Cause};
use records::jobs::{Cancel, cancel_by_force};
use records::keys::{JobOwnerKey, NodeKey};
use records::record::{JobState, OnLostStore};
use records::{JobId, Scope, carry_out};

/// The shortest lease that fits its renewals.
const LEASE: Duration = Duration::from_millis(1500);
const LOOK: Duration = Duration::from_millis(5);

fn options(cluster: &Cluster, name: &str, slots: u32) -> NodeOptions {
    let mut options = NodeOptions { slots, lease: LEASE, ..cluster.options(name) };
    options.host.keep_alive = Duration::from_millis(300);
    options.host.lease_margin = Duration::from_millis(300);
    options
}

/// A node that reaches the store through a way that can be cut, another that jobs could go to, and two jobs on the
/// first: one that is kept, and one that is not. Both end once a file appears.
struct Scene {
    cluster: Cluster,
    kv: Arc<FlakyKv>,
    a: TestNode,
    _b: TestNode,
    keep: JobId,
    kill: JobId,
    go: PathBuf,
}

impl Scene {
    async fn start() -> Self {
        let cluster = Cluster::new().await;
        let kv = Arc::new(FlakyKv::new(cluster.kv.clone()));
        let a = cluster.node_over(kv.clone(), options(&cluster, "a", 8)).await;
        let b = cluster.node_with(options(&cluster, "b", 2)).await;
        let program = deploy(&cluster, &a, "app", "nodes=all").await;
        let go = cluster.dir.path().join("go");
        let mut jobs = Vec::new();
        for on_lost_store in [OnLostStore::Keep, OnLostStore::Kill] {
            let mut spec = spec(&program, "until", &[&go.to_string_lossy()]);
            spec.on_lost_store = on_lost_store;
            let job = cluster.admit(spec).await;
            assert_eq!(cluster.until_running(&job).await.attempts[0].owner.node, "a");
            jobs.push(job);
        }
        let (kill, keep) = (jobs.pop().unwrap(), jobs.pop().unwrap());
        Self { cluster, kv, a, _b: b, keep, kill, go }
    }

    fn attempt(&self, job: &JobId) -> AttemptDir {
        let jobs = self.a.work_dir.canonicalize().unwrap().join("jobs");
        AttemptDir::at(jobs.join(job.as_str()).join("1"))
    }

    fn lives(&self, job: &JobId) -> bool {
        self.attempt(job).lock().is_err()
    }

    fn guard(&self, job: &JobId) -> i32 {
        self.attempt(job).holder().expect("a guard has its lock")
    }

    /// Nothing gets through until what is not kept is dead, by its own clock, and then the lease runs out.
    async fn cut_off(&self) {
        let lease = self.a.node.session().borrow().clone().expect("registered").lease;
        self.kv.blind.store(true, Ordering::SeqCst);
        self.kv.down.store(true, Ordering::SeqCst);
        until_guard_is_gone(&self.attempt(&self.kill)).await;
        self.cluster.kv.revoke(lease);
    }

    fn reach(&self) {
        self.kv.blind.store(false, Ordering::SeqCst);
        self.kv.down.store(false, Ordering::SeqCst);
    }

    /// Until the job's owner is a boot of `a` that lives.
    async fn until_owned_again(&self) {
        let (owner, node) = (JobOwnerKey::new(&self.keep), NodeKey { node: "a".into() });
        let scope = Scope::nodes().and_job(&self.keep);
        self.cluster
            .until("the next boot goes on with it", scope, |view| {
                let node = view.get(&node).unwrap()?;
                let owner = view.get(&owner).unwrap()?;
                (owner.incarnation == node.create_revision).then_some(())
            })
            .await;
    }

    async fn force(&self) {
        let wish = Cancel { job: self.keep.clone(), reason: "cancelled".into(), retention: 0, now_ms: 0 };
        let scope = Scope::default().and_job(&self.keep).and_nodes();
        carry_out(&*self.cluster.kv, &scope, |view| cancel_by_force(view, &wish)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_outlives_two_outages_and_ends_under_its_first_attempt() {
    let s = Scene::start().await;
    let (guard, job) = (s.guard(&s.keep), s.cluster.job(&s.keep).await);
    for round in 0..2 {
        s.cut_off().await;
        if round == 0 {
            // The other one died by its deadline, before the lease was over, and is started elsewhere.
            let exit = s.attempt(&s.kill).read_exit().unwrap().expect("dead before its lease");
            assert_eq!(exit.cause, Cause::Deadline);
            let moved = s.cluster.until_job(&s.kill, "the move", |job| job.attempt == 2).await;
            assert_eq!(moved.attempts[1].owner.node, "b");
        }
        assert!(s.lives(&s.keep), "killed by the outage");
        s.reach();
        s.until_owned_again().await;
        let now = s.cluster.job(&s.keep).await;
        assert_eq!((now.attempt, now.state, s.guard(&s.keep)), (1, JobState::Running, guard));
        assert!(s.lives(&s.keep), "killed when its node was back");
    }
    std::fs::write(&s.go, "").unwrap();
    let (state, _, done) = s.cluster.until_over(&s.keep).await;
    assert_eq!((state, done.attempt), (JobState::Finished, 1));
    assert_eq!(done.attempts, job.attempts);
    s.cluster.until_over(&s.kill).await;
    s.a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_while_the_store_is_away_and_that_is_told_later() {
    let s = Scene::start().await;
    s.kv.down.store(true, Ordering::SeqCst);
    std::fs::write(&s.go, "").unwrap();
    s.cut_off().await;
    let give_up = Instant::now() + BOUND;
    while s.lives(&s.keep) {
        assert!(Instant::now() < give_up, "it does not end");
        tokio::time::sleep(LOOK).await;
    }
    s.reach();
    let (state, exit, done) = s.cluster.until_over(&s.keep).await;
    assert_eq!((state, exit.code, done.attempt), (JobState::Finished, Some(0), 1));
    s.a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_by_force_it_is_over_at_once_and_killed_when_its_node_is_back() {
    let s = Scene::start().await;
    s.cut_off().await;
    s.force().await;
    let (state, exit, _) = s.cluster.until_over(&s.keep).await;
    assert_eq!(state, JobState::Canceled);
    assert!(exit.text.contains("node a was away"), "{}", exit.text);
    assert!(s.lives(&s.keep), "nobody can have told it");
    let back = Instant::now();
    s.reach();
    while s.lives(&s.keep) {
        assert!(back.elapsed() < BOUND, "it lives on");
        tokio::time::sleep(LOOK).await;
    }
    println!("dead {:?} after the store was back", back.elapsed());
    assert!(back.elapsed() < Duration::from_secs(3), "dead only after {:?}", back.elapsed());
    s.a.stop().await;
}

/// Its process is started again on the same work directory: nothing of it is left, and it moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_process_ends_in_an_outage_and_the_next_one_says_that_it_is_gone() {
    let s = Scene::start().await;
    s.cut_off().await;
    s.a.stop().await;
    assert!(!s.lives(&s.keep), "it ends with its process");
    let waits = s.cluster.job(&s.keep).await;
    assert_eq!((waits.attempt, waits.state), (1, JobState::Running), "nobody else starts it");
    s.reach();
    let again = s.cluster.node_with(options(&s.cluster, "a", 8)).await;
    let moved = s.cluster.until_job(&s.keep, "the next start", |job| job.attempt == 2).await;
    assert_eq!(moved.failures, 0);
    std::fs::write(&s.go, "").unwrap();
    let (state, _, done) = s.cluster.until_over(&s.keep).await;
    assert_eq!((state, done.attempt), (JobState::Finished, 2));
    again.stop().await;
}
