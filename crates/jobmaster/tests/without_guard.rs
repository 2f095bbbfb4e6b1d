//! Positive controls of P5: the same faults once with the guard, and once with a program in its place that guards
//! nothing. With the guard no attempt overlaps with the one before; without it the overlap is noticed, so the check
//! can fail. What happens to whole processes is in `raft-tests/tests/frozen.rs`.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::flaky::FlakyKv;
use common::{BOUND, Cluster, TestNode, deploy, fake_java, spec};
use jobmaster::NodeOptions;
use jobmaster::guard::control::Boottime;
use jobmaster::guard::spec::{ATTEMPT_VERSION, AttemptDir, Isolation, Limits, Spec};
use jobmaster::guard::tree::{JOB_MARK, MARK, children, descendants};
use records::JobId;
use records::record::{JobState, RestartStrategy};
use rustix::process::{Pid, Signal, kill_process};

const LEASE: Duration = Duration::from_secs(3);
/// A guard that thaws too late kills within so long.
const THAW_BOUND: Duration = Duration::from_secs(5);

/// What is started in the place of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Real,
    StandIn,
}

impl Guard {
    fn command(self) -> Vec<OsString> {
        match self {
            Self::Real => vec![env!("CARGO_BIN_EXE_jobmaster-guard").into()],
            Self::StandIn => {
                vec!["/bin/sh".into(), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-in.sh").into()]
            }
        }
    }
}

/// The lock that every attempt takes, and what they wrote about it.
struct Lock {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Lock {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { path: dir.path().canonicalize().unwrap().join("lock"), _dir: dir }
    }

    fn lines(&self, of: &str) -> usize {
        let at = self.path.with_file_name(format!("lock.{of}"));
        fs::read_to_string(at).unwrap_or_default().lines().count()
    }

    fn is_overlapped(&self) -> bool {
        self.lines("overlaps") > 0
    }

    fn started(&self, times: usize) {
        until("the start", || self.lines("starts") >= times);
        assert_eq!(self.lines("starts"), times);
    }

    fn holders(&self) -> Vec<Pid> {
        let holds = |pid: &Pid| {
            let fds = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid())).into_iter().flatten().flatten();
            fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|file| file == self.path)
        };
        pids().filter(holds).collect()
    }
}

/// What nobody guards ends with its test.
impl Drop for Lock {
    fn drop(&mut self) {
        let give_up = Instant::now() + BOUND;
        while Instant::now() < give_up {
            let holders = self.holders();
            if holders.is_empty() {
                return;
            }
            for pid in holders {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn pids() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw)
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < give_up, "waited {BOUND:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that was started as the guard of an attempt.
fn guard_of(dir: &Path) -> Pid {
    let names_it = |pid: &Pid| {
        let command = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|arg| arg == dir.as_os_str().as_encoded_bytes())
    };
    // Its copies, made by forks, name the attempt as well: the guard is the one that is not below another.
    let all: Vec<Pid> = pids().filter(names_it).collect();
    let below: Vec<Pid> = all.iter().flat_map(|pid| descendants(*pid)).collect();
    *all.iter().find(|pid| !below.contains(pid)).expect("a guard")
}

fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Processes that are stopped, and go on whatever becomes of the test.
struct Frozen(Vec<Pid>);

impl Frozen {
    /// The guard and everything below it, until nothing of that runs that could start more.
    fn all_of(guard: Pid) -> Self {
        let mut frozen = Self(Vec::new());
        loop {
            let all = descendants(guard).into_iter().chain([guard]);
            let new: Vec<Pid> = all.filter(|pid| lives(*pid) && !frozen.0.contains(pid)).collect();
            if new.is_empty() {
                return frozen;
            }
            for pid in new {
                // It may have ended since.
                let _ = kill_process(pid, Signal::STOP);
                frozen.0.push(pid);
            }
        }
    }

    fn thaw(mut self) -> Vec<Pid> {
        self.go_on();
        std::mem::take(&mut self.0)
    }

    fn go_on(&self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.go_on();
    }
}

/// A job on node `a`, which can be cut off from the store; node `b` would take it over.
struct Scene {
    cluster: Cluster,
    kv: Arc<FlakyKv>,
    a: TestNode,
    _b: TestNode,
    job: JobId,
}

impl Scene {
    async fn start(guard: Guard, lock: &Lock, class: &str) -> Self {
        let cluster = Cluster::new().await;
        let kv = Arc::new(FlakyKv::new(cluster.kv.clone()));
        let options = |name: &str, slots| {
            let mut options = NodeOptions { slots, guard: guard.command(), ..cluster.options(name) };
            options.lease = LEASE;
            options.host.keep_alive = Duration::from_millis(200);
            options.host.lease_margin = Duration::from_millis(500);
            options
        };
        let a = cluster.node_over(kv.clone(), options("a", 8)).await;
        let b = cluster.node_with(options("b", 4)).await;
        let program = deploy(&cluster, &a, "app", "nodes=all").await;
        let mut wish = spec(&program, class, &[&lock.path.to_string_lossy()]);
        if class == "leaves" {
            wish.restart = RestartStrategy::FixedDelay { attempts: 1, delay_ms: 50 };
        }
        let job = cluster.admit(wish).await;
        assert_eq!(cluster.until_running(&job).await.attempts[0].owner.node, "a");
        Self { cluster, kv, a, _b: b, job }
    }

    fn guard(&self) -> Pid {
        let jobs = self.a.work_dir.canonicalize().unwrap().join("jobs");
        guard_of(&jobs.join(self.job.as_str()).join("1"))
    }

    /// To the store a process that is stopped and one that is cut off are the same, to its guards as well: nobody
    /// renews, nobody orders, no pipe ends. Returns when the lease has run out and the job is on node `b`.
    async fn process_stops(&self) {
        let lease = self.a.node.session().borrow().as_ref().unwrap().lease;
        self.kv.down.store(true, Ordering::SeqCst);
        let over = Boottime::now().plus(LEASE);
        tokio::time::sleep(over.left()).await;
        self.cluster.kv.revoke(lease);
        self.until_second().await;
    }

    async fn until_second(&self) {
        let is = |job: &records::record::Job| job.attempt >= 2 && job.state == JobState::Running;
        self.cluster.until_job(&self.job, "the second attempt", is).await;
    }
}

/// Runs a scene to its end, where nothing starts anything any more. True if it saw attempts overlap.
fn breach(scene: impl AsyncFnOnce(&Lock) -> bool) -> bool {
    let lock = Lock::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let seen = catch_unwind(AssertUnwindSafe(|| runtime.block_on(scene(&lock))));
    runtime.shutdown_timeout(BOUND);
    seen.unwrap_or_else(|panic| resume_unwind(panic))
}

#[test]
fn a_process_that_is_stopped_longer_than_its_lease() {
    let scene = async |guard, lock: &Lock| {
        let scene = Scene::start(guard, lock, "locked").await;
        scene.process_stops().await;
        lock.started(2);
        lock.is_overlapped()
    };
    assert!(!breach(async |lock| scene(Guard::Real, lock).await));
    assert!(breach(async |lock| scene(Guard::StandIn, lock).await), "nobody noticed that no guard is there");
}

/// Frozen, nothing can kill it; what counts is that it does nothing any more once it thaws.
#[test]
fn a_process_that_is_frozen_with_guard_and_child_and_thaws_too_late() {
    let scene = async |guard, lock: &Lock| {
        let scene = Scene::start(guard, lock, "locked").await;
        let frozen = Frozen::all_of(scene.guard());
        assert!(frozen.0.len() >= 3, "guard, program and child: {:?}", frozen.0);
        scene.process_stops().await;
        let all = frozen.thaw();
        let give_up = Instant::now() + THAW_BOUND;
        while all.iter().any(|pid| lives(*pid)) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        all.iter().any(|pid| lives(*pid))
    };
    assert!(!breach(async |lock| scene(Guard::Real, lock).await));
    assert!(breach(async |lock| scene(Guard::StandIn, lock).await), "nobody noticed that no guard is there");
}

/// Of a main() that fails and is started again while what it left holds the lock.
#[test]
fn a_child_that_calls_setsid_and_outlives_its_program() {
    let scene = async |guard, lock: &Lock| {
        let _scene = Scene::start(guard, lock, "leaves").await;
        lock.started(2);
        lock.is_overlapped()
    };
    assert!(!breach(async |lock| scene(Guard::Real, lock).await));
    assert!(breach(async |lock| scene(Guard::StandIn, lock).await), "nobody noticed that no guard is there");
}

#[test]
fn a_guard_that_is_killed_alone() {
    let scene = async |guard, lock: &Lock| {
        let scene = Scene::start(guard, lock, "locked").await;
        kill_process(scene.guard(), Signal::KILL).unwrap();
        scene.until_second().await;
        lock.is_overlapped()
    };
    assert!(!breach(async |lock| scene(Guard::Real, lock).await));
    assert!(breach(async |lock| scene(Guard::StandIn, lock).await), "nobody noticed that no guard is there");
}

/// An attempt as a node prepares it, without a node.
fn prepare(at: &Path, lock: &Lock, attempt: u32) -> AttemptDir {
    let dir = AttemptDir::at(at.join(attempt.to_string()));
    let args = ["-cp", "none", "locked", &lock.path.to_string_lossy()].map(str::to_owned);
    let job_mark = format!("{}/", at.display());
    let spec = Spec {
        v: ATTEMPT_VERSION,
        job: "job".into(),
        attempt,
        epoch: 7,
        program: fake_java(),
        args: args.to_vec(),
        env: BTreeMap::from([(MARK.into(), dir.mark()), (JOB_MARK.into(), job_mark)]),
        current_dir: dir.current_dir(),
        stream_limit_bytes: 4000,
        limits: Limits::default(),
        isolation: Isolation::default(),
        created_file: None,
    };
    dir.prepare(&spec).unwrap();
    dir
}

/// A process that holds the only pipe to a guard, as a JobMaster process does, and the guard: both at once.
#[test]
fn a_guard_and_its_process_that_are_killed_together() {
    let scene = |guard: Guard| {
        let (lock, scratch) = (Lock::new(), tempfile::tempdir().unwrap());
        let at = scratch.path().canonicalize().unwrap();
        let start = |dir: &AttemptDir| {
            let command: Vec<String> =
                guard.command().iter().map(|arg| format!("'{}'", arg.display())).collect();
            let deadline = Boottime::now().plus(BOUND * 10).as_ns();
            let script = format!("sleep 1000 | {} '{}' {deadline}", command.join(" "), dir.path().display());
            let mut process = Command::new("/bin/sh");
            process.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
        };
        let kill = |process: &mut std::process::Child| {
            let pid = Pid::from_raw(process.id() as i32).unwrap();
            let all = [vec![pid], children(pid)].concat();
            assert_eq!(all.len(), 3, "the process, its pipe and the guard");
            all.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
            process.wait().unwrap();
        };
        let mut first = start(&prepare(&at, &lock, 1));
        lock.started(1);
        kill(&mut first);
        let mut second = start(&prepare(&at, &lock, 2));
        lock.started(2);
        kill(&mut second);
        lock.is_overlapped()
    };
    assert!(!scene(Guard::Real));
    assert!(scene(Guard::StandIn), "nobody noticed that no guard is there");
}
