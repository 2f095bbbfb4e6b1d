//! Finding and killing processes: by descent, and by the mark of an attempt in their environment.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid};

/// The environment variable that marks every process of an attempt.
pub const MARK: &str = "METASTORE_ATTEMPT";
/// The environment variable that marks every process of a job, whichever JobMaster process of the host started it.
pub const JOB_MARK: &str = "METASTORE_JOB";

/// Pause between two rounds of killing.
const PAUSE: Duration = Duration::from_millis(10);

fn all_pids() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw)
}

/// Parent of a process: the second field after the command, which stands in parentheses and may hold anything.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Pid::from_raw(stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?)
}

/// The children of a process.
pub fn children(of: Pid) -> Vec<Pid> {
    all_pids().filter(|pid| parent(*pid) == Some(of)).collect()
}

/// Every descendant of `root`, in no order. Numbers are of the /proc that is mounted here.
pub fn descendants(root: Pid) -> Vec<Pid> {
    let parents: HashMap<Pid, Pid> = all_pids().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let is_below = |mut pid: Pid| {
        // A process tree is not deeper than it is large; numbers may be reused while we look.
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(up) if *up == root => return true,
                Some(up) => pid = *up,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|pid| is_below(*pid)).collect()
}

fn has_mark(pid: Pid, entry: &[u8]) -> bool {
    // A process of another user cannot be read; it cannot be ours either.
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environ.split(|b| *b == 0).any(|variable| variable.starts_with(entry))
}

/// Kills every process whose mark starts with `mark`, again and again until there is none or time is up. True if
/// none is left.
pub fn kill_marked(mark: &str, within: Duration) -> bool {
    kill_all(&format!("{MARK}={mark}"), within)
}

/// The same for whatever an attempt of the job left on this host.
pub fn kill_of_job(mark: &str, within: Duration) -> bool {
    kill_all(&format!("{JOB_MARK}={mark}"), within)
}

fn kill_all(entry: &str, within: Duration) -> bool {
    let entry = entry.as_bytes();
    let give_up = Instant::now() + within;
    loop {
        let mut left = false;
        for pid in all_pids().filter(|pid| *pid != getpid() && has_mark(*pid, entry)) {
            left |= kill_if_marked(pid, entry);
        }
        if !left {
            return true;
        }
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Through a pidfd, so that a number that was reused in between is not hit.
fn kill_if_marked(pid: Pid, entry: &[u8]) -> bool {
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    if !has_mark(pid, entry) {
        return false;
    }
    let _ = pidfd_send_signal(&fd, Signal::KILL);
    // It may have been adopted by this process; somebody else's child is left to them.
    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    true
}
