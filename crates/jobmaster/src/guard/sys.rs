//! The unsafe part of the guard: the calls that have no safe wrapper. Each says why it is sound.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::process::Pid;

/// Signals that a terminal, a shell or a service manager sends to a whole group.
const ORDINARY: [libc::c_int; 5] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE];

/// Ignores [`ORDINARY`] signals.
pub fn ignore_ordinary_signals() -> io::Result<()> {
    ORDINARY.iter().try_for_each(|signal| set_handler(*signal, libc::SIG_IGN))
}

/// Back to the defaults, for the program. Only async-signal-safe calls: it runs between fork and exec.
pub fn reset_signals() -> io::Result<()> {
    ORDINARY.iter().try_for_each(|signal| set_handler(*signal, libc::SIG_DFL))?;
    // SAFETY: the set is initialised by sigemptyset before it is used.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut()))
    }
}

fn set_handler(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: SIG_IGN and SIG_DFL run no code of ours.
    if unsafe { libc::signal(signal, handler) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn term_and_child() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set; the other two calls change it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        set
    }
}

/// Blocks SIGTERM and SIGCHLD, to be taken by [`next_signal`]; or unblocks them.
pub fn block_term_and_child(block: bool) -> io::Result<()> {
    let how = if block { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: a valid set, no old set asked for.
    check(unsafe { libc::sigprocmask(how, &term_and_child(), ptr::null_mut()) })
}

/// Makes SIGTERM deliverable again in a process that inherited "ignored" (blocked signals that are ignored are
/// dropped).
pub fn accept_term() -> io::Result<()> {
    set_handler(libc::SIGTERM, libc::SIG_DFL)
}

/// Waits for SIGTERM or SIGCHLD, which must be blocked.
pub fn next_signal() -> libc::c_int {
    // SAFETY: a valid set; no details are asked for.
    unsafe { libc::sigwaitinfo(&term_and_child(), ptr::null_mut()) }
}

/// Which side of a fork this is.
pub enum Forked {
    /// The parent, with the child's number.
    Parent(Pid),
    /// The child.
    Child,
}

/// `CLONE_INTO_CGROUP` of linux/sched.h; the constant of libc is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks with namespace flags, the child in a control group of version 2 from the start if one is given (kernels
/// since 5.7). To move a process that lives takes the kernel 15 ms and more. The raw call, because a process that entered a new PID namespace by `unshare` could
/// start no thread any more.
///
/// # Safety
/// The process must have a single thread: the child gets only the calling one, and locks held by others would
/// stay held.
pub unsafe fn fork_into(flags: libc::c_int, group: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    let pid = match group {
        // SAFETY: no stack is given, so the child runs on a copy of ours as after fork(); no pointers are passed.
        None => unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) },
        // SAFETY: as above; the arguments are plain numbers, zero stands for "none", and they live until the return.
        Some(group) => unsafe {
            let mut args: libc::clone_args = std::mem::zeroed();
            args.flags = u64::from(flags.unsigned_abs()) | CLONE_INTO_CGROUP;
            args.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
            args.cgroup = u64::from(group.as_raw_fd().unsigned_abs());
            libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
        },
    };
    // A refusal is no number of a process: there is none to be made of it.
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) if pid > 0 => Pid::from_raw(pid).map(Forked::Parent).ok_or_else(io::Error::last_os_error),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process at once, without running anything of the process it was forked from.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any number and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits until one of them can be read, or has nobody any more who writes; without `wait` it only looks. Says which.
/// An interrupted wait says none.
pub fn readable<const N: usize>(of: [BorrowedFd<'_>; N], wait: bool) -> [bool; N] {
    let mut polls = of.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: N valid entries.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, if wait { -1 } else { 0 }) };
    polls.map(|poll| ready > 0 && poll.revents != 0)
}

/// True if every other end of the pipe is closed.
pub fn is_hung_up(pipe: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one valid entry, no waiting.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 && poll.revents & libc::POLLHUP != 0 }
}

/// Gives a new mount namespace a /proc that shows its own processes, and keeps our mounts out of the host's.
pub fn mount_own_proc() -> io::Result<()> {
    let mount = |source: &CStr, target: &CStr, kind: Option<&CStr>, flags| {
        let kind = kind.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: all strings end with NUL and live until the call returns; no data is passed.
        check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) })
    };
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
    mount(c"proc", c"/proc", Some(c"proc"), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}
