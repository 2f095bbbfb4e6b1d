//! Init: the process between guard and program. PID 1 of a namespace of its own where the kernel allows, else a
//! subreaper: nothing the program starts can leave its tree.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, setrlimit, waitpid,
};
use serde::{Deserialize, Serialize};

use super::cgroup::{Group, Limited};
use super::spec::{Isolation, Limits, Spec};
use super::sys::{self, Forked};
use super::tree;

/// Init's ends of the pipes.
pub struct Ends {
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub report: OwnedFd,
    pub alive: OwnedFd,
}

/// What init tells the guard, as one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitReport {
    /// The program could not be started, and why.
    NotStarted(String),
    /// The program ended, with this raw wait status.
    Ended(i32),
    /// Init was killed before the program ended.
    Killed,
}

impl InitReport {
    pub(super) fn read(from: OwnedFd) -> Self {
        let mut line = String::new();
        // Init is gone: what it wrote is in the pipe, then the pipe ends.
        let _ = fs::File::from(from).read_to_string(&mut line);
        serde_json::from_str(&line).unwrap_or(Self::Killed)
    }
}

/// Starts init, as isolated as the spec wants and the kernel allows.
pub fn start(spec: &Spec, ends: &Ends, group: &Group) -> Result<(Pid, Isolation), String> {
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let guard_pid = getpid();
    // Before the fork, so that init misses no signal.
    sys::block_term_and_child(true).map_err(|e| e.to_string())?;
    let namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    let ways = [
        (Isolation::Namespace, namespaces),
        (Isolation::UserNamespace, namespaces | libc::CLONE_NEWUSER),
        (Isolation::Subreaper, 0),
    ];
    let mut refused = String::new();
    let door = group.door();
    for (isolation, flags) in ways.into_iter().filter(|(way, _)| *way >= spec.isolation) {
        let fork = |door: Option<&OwnedFd>| {
            // SAFETY: the guard has started no thread yet.
            unsafe { sys::fork_into(flags, door.map(AsFd::as_fd)) }.map(|side| (side, door.is_some()))
        };
        // Older kernels, and filters of system calls, know no such door: then init goes in by itself.
        let forked = if door.is_some() { fork(door.as_ref()).or_else(|_| fork(None)) } else { fork(None) };
        match forked {
            Ok((Forked::Child, is_inside)) => init(spec, ends, group, is_inside, isolation, ids, guard_pid),
            Ok((Forked::Parent(pid), _)) => {
                sys::block_term_and_child(false).map_err(|e| e.to_string())?;
                return Ok((pid, isolation));
            }
            Err(e) => refused = format!("cannot fork: {e}"),
        }
    }
    Err(refused)
}

/// Life of init. Never returns: there is a parent's stack above.
fn init(
    spec: &Spec,
    ends: &Ends,
    group: &Group,
    is_inside: bool,
    isolation: Isolation,
    ids: (u32, u32),
    guard_pid: Pid,
) -> ! {
    let child = prepare(ends, isolation, ids, guard_pid).and_then(|()| {
        // Where it cannot join, the rlimits hold.
        let limited = group.join(is_inside).unwrap_or_default();
        spawn(spec, ends, limited)
    });
    let report = match child {
        Ok(child) => InitReport::Ended(attend(&child)),
        Err(why) => InitReport::NotStarted(why),
    };
    if isolation == Isolation::Subreaper {
        kill_what_is_left();
    }
    let line = serde_json::to_vec(&report).unwrap_or_default();
    let _ = rustix::io::write(&ends.report, &line);
    sys::exit_now(0);
}

fn prepare(ends: &Ends, isolation: Isolation, ids: (u32, u32), guard_pid: Pid) -> Result<(), String> {
    let text = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| text("no parent-death signal")(e.into()))?;
    // From here on the guard's death is ours. Had it died before, this pipe's other end would be closed.
    if sys::is_hung_up(ends.alive.as_fd()) {
        sys::exit_now(1);
    }
    sys::accept_term().map_err(text("cannot reset signals"))?;
    if isolation == Isolation::Subreaper {
        return set_child_subreaper(Some(getpid())).map_err(|e| text("no subreaper")(e.into()));
    }
    if isolation == Isolation::UserNamespace {
        keep_ids(ids).map_err(text("cannot map user and group"))?;
    }
    // Good to have: tools of the program look at /proc. Without it the tree is killed just as well.
    if sys::mount_own_proc().is_ok() {
        // JVMs name files in /tmp by their process number: make it one that no other JVM of this host has.
        let _ = fs::write("/proc/sys/kernel/ns_last_pid", guard_pid.as_raw_nonzero().to_string());
    }
    Ok(())
}

/// In a user namespace: the same user and group as outside, all others unmapped.
fn keep_ids((uid, gid): (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
}

fn spawn(spec: &Spec, ends: &Ends, limited: Limited) -> Result<Child, String> {
    let copy = |fd: &OwnedFd| fd.try_clone().map(Stdio::from).map_err(|e| e.to_string());
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).envs(&spec.env).current_dir(&spec.current_dir);
    command.stdin(Stdio::null()).stdout(copy(&ends.stdout)?).stderr(copy(&ends.stderr)?);
    let (parent, limits) = (getpid(), spec.limits.beside(limited));
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, setrlimit, signal,
    // sigprocmask; no memory is allocated on the way that succeeds.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe));
            }
            set_limits(limits)?;
            sys::reset_signals()
        });
    }
    command.spawn().map_err(|e| format!("cannot start `{}`: {e}", spec.program))
}

fn set_limits(limits: Limits) -> io::Result<()> {
    let all = [
        (Resource::As, limits.memory_bytes),
        (Resource::Nproc, limits.processes),
        (Resource::Nofile, limits.open_files),
    ];
    for (resource, limit) in all {
        if limit.is_some() {
            setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
        }
    }
    Ok(())
}

/// Reaps everything and passes SIGTERM on, until the program has ended. Its raw wait status.
fn attend(child: &Child) -> i32 {
    let program = Pid::from_raw(child.id() as i32);
    loop {
        match sys::next_signal() {
            libc::SIGTERM => {
                if let Some(program) = program {
                    let _ = kill_process(program, Signal::TERM);
                }
            }
            libc::SIGCHLD => {
                // One signal may stand for many children.
                while let Ok(Some((pid, status))) = waitpid(None, WaitOptions::NOHANG) {
                    if Some(pid) == program {
                        return status.as_raw();
                    }
                }
            }
            _ => {}
        }
    }
}

/// Without a namespace: what the program left behind ends with it.
fn kill_what_is_left() {
    loop {
        for pid in tree::descendants(getpid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if waitpid(None, WaitOptions::empty()).is_err() {
            return;
        }
    }
}

/// Exit code and signal of a raw wait status.
pub fn code_and_signal(raw: i32) -> (Option<i32>, Option<i32>) {
    let status = ExitStatus::from_raw(raw);
    (status.code(), status.signal())
}
