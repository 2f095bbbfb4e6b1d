//! The guard: a small process between a JobMaster process and one attempt of a job, whose only task is that no
//! process of the attempt outlives the right to run it.
//!
//! ```text
//! JobMaster process --stdin pipe--> guard --clone--> init --fork+exec--> the program --> whatever it starts
//!                                   (records)        (PID 1 of a namespace, or a subreaper)
//! ```
//!
//! * The right to run is a deadline on CLOCK_BOOTTIME, given on the command line and pushed out over the pipe with
//!   each acknowledged keep-alive. At the deadline, or at once when the pipe ends (the parent died, however), the
//!   guard kills.
//! * The guard kills *init*: with a PID namespace the kernel then kills everything in it before `wait` returns.
//!   Without one, init and guard are subreapers, so nothing can leave the tree, and the guard kills until it has no
//!   child left.
//! * If the guard itself is killed, init dies by its parent-death signal, and a namespace with it. Without a
//!   namespace the program dies by its own; the rest is found by the mark in its environment when a process starts
//!   on this host again, or by the JobMaster process at once.
//! * Before a second attempt starts, whatever an earlier one left on this host is found by the job's mark and killed.
//! * Before the guard exits it writes, durably, how the attempt ended. While it lives it holds a lock (flock) on
//!   the attempt's directory.
//!
//! The guard runs no async runtime. It is single-threaded until init exists; then two threads write the output, which
//! a slow disk may hold up, and nothing else. Between two events it sleeps.

pub mod cgroup;
pub mod control;
mod events;
mod init;
pub mod logs;
pub mod spec;
mod sys;
pub mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use cgroup::Group;
use control::{Boottime, Order};
use events::{Events, Happened};
use init::InitReport;
use spec::{AttemptDir, Cause, ExitRecord, Spec};
use tree::{JOB_MARK, kill_of_job};

use crate::limits::TAKE_OVER_WITHIN;

/// How long the guard waits for the last output after the last process is gone. Only an output that was handed out
/// of the tree can keep the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);
/// Pause between two rounds of killing.
const KILL_PAUSE: Duration = Duration::from_millis(5);

/// Runs `guard ATTEMPT_DIR DEADLINE_NS`, the arguments without the program's own name. The caller has started no
/// thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<_> = args.into_iter().collect();
    let deadline = args.get(1).and_then(|ns| ns.to_str()?.parse().ok()).map(Boottime::from_ns);
    let (2, Some(deadline)) = (args.len(), deadline) else {
        eprintln!("the guard is started by a JobMaster process: guard ATTEMPT_DIR DEADLINE_NS");
        return ExitCode::from(2);
    };
    match guard(PathBuf::from(&args[0]), deadline) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("guard: {why}");
            ExitCode::FAILURE
        }
    }
}

fn guard(dir: PathBuf, deadline: Boottime) -> Result<(), String> {
    let dir = AttemptDir::at(dir);
    // Before anything else: whoever holds the lock owns the attempt.
    let lock = dir.lock().map_err(|e| format!("{}: {e}", dir.path().display()))?;
    let spec = dir.read_spec()?;
    detach().map_err(|e| format!("cannot detach: {e}"))?;
    let started_at_ms = wall_clock_ms();
    let record = |cause, report: &InitReport| ExitRecord::new(&spec, cause, report, started_at_ms);
    let end = match clear(&spec, deadline) {
        // It says nothing about the program: the job is to go on elsewhere, not to fail.
        Err(why) => {
            eprintln!("guard: {why}");
            record(Cause::Deadline, &InitReport::Killed)
        }
        Ok(()) => match start(&dir, &spec, deadline) {
            Ok(running) => {
                let (cause, report) = running.supervise();
                record(cause, &report)
            }
            Err(why) => record(Cause::NotStarted, &InitReport::NotStarted(why)),
        },
    };
    dir.write_exit(&end).map_err(|e| format!("cannot write how the attempt ended: {e}"))?;
    drop(lock);
    Ok(())
}

/// What an earlier attempt of the job left on this host is dead before this one starts, whichever process was its
/// owner: without a namespace a guard that was killed together with its parent leaves what had a session of its own.
fn clear(spec: &Spec, deadline: Boottime) -> Result<(), String> {
    let Some(mark) = spec.env.get(JOB_MARK).filter(|_| spec.attempt > 1) else { return Ok(()) };
    if !kill_of_job(mark, TAKE_OVER_WITHIN) {
        return Err("a process of an earlier attempt lives on this host and cannot be killed".into());
    }
    if deadline <= Boottime::now() {
        return Err("the right to run was over before it started".into());
    }
    Ok(())
}

/// A session of its own: signals of a terminal are for the parent, which will close the pipe. Only the pipe, the
/// deadline and SIGKILL end a guard.
fn detach() -> io::Result<()> {
    // Fails only for a process that leads its group already.
    let _ = rustix::process::setsid();
    sys::ignore_ordinary_signals()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

fn wall_clock_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis() as u64)
}

/// The attempt while it runs.
struct Running {
    init: Pid,
    /// Init and all below it.
    group: Group,
    /// What init says of the program's start and end.
    report: OwnedFd,
    /// Init sees its other end close if the guard dies before init could ask for its parent-death signal.
    _alive: OwnedFd,
    events: Events,
    output_done: Receiver<()>,
}

fn start(dir: &AttemptDir, spec: &Spec, deadline: Boottime) -> Result<Running, String> {
    let pipe =
        || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| format!("no pipe: {e}"));
    let (out, err, report, alive) = (pipe()?, pipe()?, pipe()?, pipe()?);
    let ends = init::Ends { stdout: out.1, stderr: err.1, report: report.1, alive: alive.0 };
    let group = Group::make(&format!("{}-{}-{}", spec.job, spec.attempt, spec.epoch), spec.limits);
    let (init, isolation) = init::start(spec, &ends, &group)?;
    // The guard's copies of the other ends must go, or it would never see them close.
    drop(ends);
    let _ = dir.note_guard(isolation);
    let events = Events::new(init, deadline).map_err(|e| {
        kill_all(init, &group);
        format!("the program cannot be watched: {e}")
    })?;
    let (done, output_done) = mpsc::channel();
    for (name, from) in [("stdout", out.0), ("stderr", err.0)] {
        let (path, limit, done) = (dir.path().to_path_buf(), spec.stream_limit_bytes, done.clone());
        std::thread::spawn(move || {
            capture(&path, name, limit, from);
            drop(done);
        });
    }
    Ok(Running { init, group, report: report.0, _alive: alive.1, events, output_done })
}

fn capture(dir: &Path, name: &str, limit: u64, from: OwnedFd) {
    let mut from = File::from(from);
    let mut log = logs::LogWriter::open(dir, name, limit);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            // A full disk loses output, never the program: it must not block on its own words.
            Ok(n) => log.write(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl Running {
    /// Waits for the end, or makes it.
    fn supervise(mut self) -> (Cause, InitReport) {
        let mut ordered_to_stop = false;
        let cause = loop {
            match self.events.next() {
                Happened::Ordered(Order::Deadline(next)) => self.events.set_deadline(next),
                Happened::Ordered(Order::Terminate) => {
                    ordered_to_stop = true;
                    let _ = kill_process(self.init, Signal::TERM);
                }
                Happened::Ordered(Order::Kill) => break Cause::Cancelled,
                Happened::DeadlineReached => break Cause::Deadline,
                Happened::ParentGone => break Cause::ParentGone,
                Happened::InitExited if ordered_to_stop => break Cause::Cancelled,
                Happened::InitExited => break Cause::Exited,
            }
        };
        kill_all(self.init, &self.group);
        let report = InitReport::read(self.report);
        // Both threads drop their end when they are done.
        let _ = self.output_done.recv_timeout(OUTPUT_GRACE);
        (cause, report)
    }
}

/// Kills until there is no descendant left. A process that the kernel cannot kill keeps the guard here, and with it
/// the lock.
fn kill_all(init: Pid, group: &Group) {
    let _ = kill_process(init, Signal::KILL);
    group.kill();
    loop {
        for pid in tree::descendants(rustix::process::getpid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        match waitpid(None, WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return,
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => std::thread::sleep(KILL_PAUSE),
        }
    }
}
