//! What a guard that is killed leaves comes to the process of its JobMaster, which kills and reaps it, and nothing
//! else. A program of its own, because being a subreaper is a matter of the whole process.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{BOUND, Cluster, deploy, spec};
use jobmaster::NodeOptions;
use jobmaster::adoption::adopt_orphans;
use jobmaster::guard::spec::{AttemptDir, Isolation};
use jobmaster::guard::tree::{children, descendants};
use records::record::{JobState, RestartStrategy};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::time::{Instant, sleep};

async fn pid_in(file: &Path) -> Pid {
    let give_up = Instant::now() + BOUND;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
            return pid;
        }
        assert!(Instant::now() < give_up, "the program starts nothing");
        sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Does not outlive its test.
struct Stray(Child);

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nothing of it outlives the test, even if nobody else kills it.
struct Tree(Vec<Pid>);

impl Drop for Tree {
    fn drop(&mut self) {
        // Numbers of children of this process: they are not given to others before somebody here reaps them.
        for pid in children(getpid()).into_iter().filter(|pid| self.0.contains(pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn is_there(pid: Pid) -> bool {
    Path::new(&format!("/proc/{}", pid.as_raw_pid())).exists()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_guard_leaves_is_killed_and_reaped_and_nothing_else() {
    let mut from_before = Command::new("/bin/sleep");
    let from_before = from_before.arg("1000").stdout(Stdio::null()).stderr(Stdio::null());
    let mut from_before = Stray(from_before.spawn().unwrap());
    adopt_orphans().unwrap();
    let cluster = Cluster::new().await;
    let isolation = Isolation::Subreaper;
    let a = cluster.node_with(NodeOptions { slots: 8, isolation, ..cluster.options("a") }).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let (go, left) = (cluster.dir.path().join("go"), cluster.dir.path().join("left"));
    let mut neighbour = spec(&program, "until", &[&go.to_string_lossy()]);
    neighbour.restart = RestartStrategy::None;
    let neighbour = cluster.admit(neighbour).await;
    let job = cluster.admit(spec(&program, "sheds", &[&left.to_string_lossy()])).await;
    for job in [&neighbour, &job] {
        cluster.until_running(job).await;
    }

    let dir = AttemptDir::at(a.work_dir.join("jobs").join(job.as_str()).join("1"));
    let guard = Pid::from_raw(dir.holder().unwrap()).unwrap();
    let shed = pid_in(&left).await;
    let tree = Tree(descendants(guard));
    assert!(tree.0.contains(&shed) && tree.0.len() >= 3, "init, the program and what it shed: {:?}", tree.0);
    kill_process(guard, Signal::KILL).unwrap();
    cluster.until_job(&job, "the second attempt", |job| job.attempt == 2).await;
    let still: Vec<_> = tree.0.iter().filter(|pid| is_there(**pid)).collect();
    assert!(still.is_empty(), "alive, or not reaped, when the next attempt may start: {still:?}");

    // A guard that was not killed is left alone, and how it ended goes to who waits for it.
    std::fs::write(&go, "").unwrap();
    let (state, exit, record) = cluster.until_over(&neighbour).await;
    assert_eq!((state, exit.code, record.attempt), (JobState::Finished, Some(0), 1), "{exit:?}");
    assert_eq!(from_before.0.try_wait().unwrap(), None, "a child that this process had before lives");
    a.stop().await;
}
