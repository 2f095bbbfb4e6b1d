//! A disk that is full: how a job ended is not lost to it, and what could not say how it ended does not start. On a
//! small file system in memory, which needs a mount namespace.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Cluster, TestNode, deploy, spec};
use jobmaster::NodeOptions;
use jobmaster::guard::spec::{AttemptDir, Cause};
use records::record::JobState;

/// Set for this program when it runs in a mount namespace of its own.
const INSIDE: &str = "METASTORE_TEST_SMALL_DISK";

/// Runs the test named so once more, with a disk of its own. True where the test is to look at it.
fn on_a_small_disk(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let namespaces = if rustix::process::geteuid().is_root() { "--mount" } else { "--map-root-user" };
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args([namespaces, "--mount"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("no mount namespace here: nothing to see");
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let inside = unshare().arg(program).args(["--exact", test, "--nocapture"]).env(INSIDE, "1").status();
    assert!(inside.unwrap().success(), "the same test on a small disk failed: see above");
    false
}

fn mount(at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(at).status().unwrap();
    assert!(mounted.success());
}

/// But for a page, which the guard gave back when it knew how little it needs.
fn is_full(at: &Path) -> bool {
    let probe = at.join("probe");
    let full = std::fs::write(&probe, [1; 2 * 4096]).is_err();
    std::fs::remove_file(probe).unwrap();
    full
}

/// A node whose work directory is 2 MiB large.
async fn small_node(cluster: &Cluster) -> TestNode {
    let options = NodeOptions { slots: 8, ..cluster.options("a") };
    mount(&options.host.work_dir);
    cluster.node_with(options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_main_that_filled_the_disk_and_ended_with_0_does_not_run_again() {
    if !on_a_small_disk("a_main_that_filled_the_disk_and_ended_with_0_does_not_run_again") {
        return;
    }
    let cluster = Cluster::new().await;
    let a = small_node(&cluster).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let starts = cluster.dir.path().join("starts");
    let job = cluster.admit(spec(&program, "fill", &[&starts.to_string_lossy()])).await;
    let (state, exit, record) = cluster.until_over(&job).await;
    assert!(is_full(&a.work_dir), "the program filled it");
    assert_eq!((state, exit.code, record.attempt), (JobState::Finished, Some(0), 1), "{exit:?}");
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), "1\n");
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_starts_on_a_disk_that_cannot_take_how_it_ends() {
    if !on_a_small_disk("nothing_starts_on_a_disk_that_cannot_take_how_it_ends") {
        return;
    }
    let cluster = Cluster::new().await;
    let a = small_node(&cluster).await;
    let program = deploy(&cluster, &a, "app", "nodes=all").await;
    let starts = cluster.dir.path().join("starts");
    let filler = a.work_dir.join("filler");
    let fill = format!("head -c 8m /dev/zero > '{}'", filler.display());
    assert!(!Command::new("/bin/sh").args(["-c", &fill]).status().unwrap().success());
    // Two pages are left: enough for what is to be started, not for how it ends.
    let file = std::fs::OpenOptions::new().write(true).open(&filler).unwrap();
    file.set_len(file.metadata().unwrap().len() - 2 * 4096).unwrap();
    drop(file);
    let job = cluster.admit(spec(&program, "fill", &[&starts.to_string_lossy()])).await;
    cluster.until_job(&job, "a start that came to nothing", |job| job.false_starts() > 0).await;
    assert!(!starts.exists(), "main() was not started");
    let first = AttemptDir::at(a.work_dir.join("jobs").join(job.as_str()).join("1"));
    assert_eq!(first.read_exit(), Ok(None));
    // With room again it starts, and its end is told.
    std::fs::remove_file(filler).unwrap();
    let (state, exit, record) = cluster.until_over(&job).await;
    assert_eq!(state, JobState::Finished, "{exit:?}");
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), "1\n");
    let last = AttemptDir::at(a.work_dir.join("jobs").join(job.as_str()).join(record.attempt.to_string()));
    assert_eq!(last.read_exit().unwrap().map(|exit| exit.cause), Some(Cause::Exited));
    a.stop().await;
}
