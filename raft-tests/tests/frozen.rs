//! P5 with real processes: whoever is stopped, killed or cut off, the first child is dead before the second one starts,
//! and what thaws later changes nothing any more. `FROZEN_ROUNDS=20 cargo test -p raft-tests --test frozen`.

use std::time::{Duration, Instant};

use raft_tests::rounds::short_leases;
use raft_tests::strike::{children, descendants, send};
use raft_tests::{JobCluster, RECOVERY, job_of, job_reaches, run_request};
use rustix::process::Signal;
use testkit::{Rest, eventually_async};

/// Times that a JobMaster process is stopped, in the normal suite.
const ROUNDS: u32 = 3;

/// A job that runs until it is cancelled, on a cluster with two JobMaster processes.
struct Scene {
    world: JobCluster,
    rest: Rest,
    trigger: String,
    job: String,
}

impl Scene {
    async fn start(class: &str) -> Self {
        let world = JobCluster::start(3, 1, 2, short_leases);
        let jar = world.upload().await;
        let rest = world.cluster.rest(0);
        let mut scene = Self { world, rest, trigger: String::new(), job: String::new() };
        scene.submit(&jar, "first", class).await;
        scene
    }

    async fn submit(&mut self, jar: &str, trigger: &str, class: &str) {
        let dir = self.world.scratch.path().display().to_string();
        let file = self.world.starts_file();
        let args = if class == "OnceForever" { vec![file.as_str()] } else { vec![dir.as_str(), "86400"] };
        let request = run_request(jar, trigger, class, &args);
        let (status, body) = self.rest.post("/run-async", &request).await.unwrap();
        assert_eq!(status, 200, "{body}");
        self.trigger = trigger.to_owned();
        self.job = job_of(&self.rest, trigger).await;
        job_reaches(&self.rest, &self.job, "RUNNING").await;
        self.started(1).await;
    }

    /// The JobMaster process that owns the job.
    async fn owner(&self) -> String {
        eventually_async(RECOVERY, "the job has an owner", || async {
            let path = format!("/run-async/{}", self.trigger);
            let (_, body) = self.rest.get(&path).await.map_err(|error| error.to_string())?;
            body["run"]["job-node"].as_str().map(str::to_owned).ok_or_else(|| body.to_string())
        })
        .await
    }

    fn pid(&self, name: &str) -> u32 {
        self.world.cluster.pids[name]
    }

    fn starts(&self) -> Vec<String> {
        self.world.starts().into_iter().filter(|line| line.starts_with(&self.job)).collect()
    }

    async fn started(&self, times: usize) {
        eventually_async(RECOVERY, &format!("start {times} of main()"), || async {
            let starts = self.starts();
            if starts.len() == times { Ok(()) } else { Err(format!("{starts:?}")) }
        })
        .await;
    }

    fn no_overlap(&self) {
        let at = self.world.scratch.path().join("overlaps");
        let overlaps = std::fs::read_to_string(at).unwrap_or_default();
        assert!(overlaps.is_empty(), "started while the first child lived: {overlaps}");
    }

    /// The second attempt runs undisturbed, and is the last.
    async fn second_stays(&self) {
        job_reaches(&self.rest, &self.job, "RUNNING").await;
        let cancelled = self.rest.patch(&format!("/jobs/{}?mode=cancel", self.job)).await.unwrap();
        assert_eq!(cancelled.0, 202, "{}", cancelled.1);
        job_reaches(&self.rest, &self.job, "CANCELED").await;
        assert_eq!(self.starts(), [format!("{} 1", self.job), format!("{} 2", self.job)]);
        self.world.cluster.ctl().ok(&["doctor"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobmaster_process_that_is_stopped_longer_than_its_lease() {
    let rounds = std::env::var("FROZEN_ROUNDS").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let mut scene = Scene::start("Locked").await;
    let jar = scene.world.upload().await;
    for round in 0..rounds {
        let (owner, first) = (scene.owner().await, format!("{} 1", scene.job));
        send(scene.pid(&owner), Signal::STOP);
        scene.started(2).await;
        scene.no_overlap();
        assert_ne!(scene.owner().await, owner, "it went on elsewhere");
        send(scene.pid(&owner), Signal::CONT);
        assert_eq!(scene.starts()[0], first);
        scene.second_stays().await;
        println!("round {round}: {} moved from {owner}", scene.job);
        scene.submit(&jar, &format!("next-{round}"), "Locked").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_frozen_with_guard_and_child_and_thaws_too_late() {
    // Frozen, the first child cannot die before the second starts; what counts is what it does afterwards: nothing.
    let scene = Scene::start("OnceForever").await;
    let owner = scene.owner().await;
    let pid = scene.pid(&owner);
    let all = [vec![pid], descendants(pid)].concat();
    assert!(all.len() >= 3, "process, guard and child: {all:?}");
    all.iter().for_each(|pid| send(*pid, Signal::STOP));
    scene.started(2).await;
    all.iter().for_each(|pid| send(*pid, Signal::CONT));
    let thawed = Instant::now();
    eventually_async(RECOVERY, "guard and child are gone", || async {
        let left: Vec<u32> = descendants(pid).into_iter().filter(|pid| all.contains(pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    println!("gone {:?} after the thaw", thawed.elapsed());
    scene.second_stays().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_killed_alone_and_with_its_process() {
    // Its grandchild has called setsid, and holds the lock as well.
    for with_process in [false, true] {
        let scene = Scene::start("LockedBySession").await;
        let owner = scene.owner().await;
        let pid = scene.pid(&owner);
        let guards = children(pid);
        assert_eq!(guards.len(), 1, "one job, one guard");
        if with_process {
            send(pid, Signal::KILL);
        }
        send(guards[0], Signal::KILL);
        scene.started(2).await;
        scene.no_overlap();
        scene.second_stays().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_for_three_leases() {
    let scene = Scene::start("Locked").await;
    let owner = scene.owner().await;
    let replicas: Vec<u32> = (1..=3).map(|number| scene.pid(&format!("replica-{number}"))).collect();
    let guard = children(scene.pid(&owner));
    replicas.iter().for_each(|pid| send(*pid, Signal::STOP));
    // Without a store nobody renews: the child is dead before the lease ends.
    eventually_async(RECOVERY, "the child dies", || async {
        let left: Vec<u32> =
            children(scene.pid(&owner)).into_iter().filter(|pid| guard.contains(pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    // The length of the fault, not a wait for something.
    tokio::time::sleep(THREE_LEASES).await;
    assert_eq!(scene.starts().len(), 1, "nothing starts without a store");
    replicas.iter().for_each(|pid| send(*pid, Signal::CONT));
    scene.started(2).await;
    scene.no_overlap();
    scene.second_stays().await;
}

/// Of [`short_leases`].
const THREE_LEASES: Duration = Duration::from_secs(6);
