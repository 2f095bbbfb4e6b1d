//! What the guard promises, with real processes: whatever happens to the guard or its parent, nothing of the
//! attempt lives on, and how it ended is on disk.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jobmaster::guard::control::{Boottime, Order};
use jobmaster::guard::logs;
use jobmaster::guard::spec::{ATTEMPT_VERSION, AttemptDir, Cause, ExitRecord, Isolation, Limits, Spec};
use jobmaster::guard::tree::{JOB_MARK, MARK, kill_marked};
use rustix::process::{Pid, Signal, kill_process};

const BOUND: Duration = Duration::from_secs(20);

struct Attempt {
    _tmp: tempfile::TempDir,
    dir: AttemptDir,
}

fn attempt(script: &str, isolation: Isolation) -> Attempt {
    let tmp = tempfile::tempdir().unwrap();
    let dir = AttemptDir::at(tmp.path().join("job/1"));
    let spec = Spec {
        v: ATTEMPT_VERSION,
        job: "job".into(),
        attempt: 1,
        epoch: 7,
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: BTreeMap::from([(MARK.into(), dir.mark())]),
        current_dir: dir.current_dir(),
        stream_limit_bytes: 4000,
        limits: Limits::default(),
        isolation,
        created_file: None,
    };
    dir.prepare(&spec).unwrap();
    Attempt { _tmp: tmp, dir }
}

fn start(attempt: &Attempt, ttl: Duration) -> Child {
    Command::new(env!("CARGO_BIN_EXE_jobmaster-guard"))
        .arg(attempt.dir.path())
        .arg(Boottime::now().plus(ttl).as_ns().to_string())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < give_up, "waited {BOUND:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(guard: &mut Child, attempt: &Attempt) -> ExitRecord {
    until("the guard's end", || guard.try_wait().unwrap().is_some());
    attempt.dir.read_exit().unwrap().expect("an exit record")
}

/// Processes that carry the attempt's mark, counted without killing them.
fn marked(attempt: &Attempt) -> usize {
    let entry = format!("{MARK}={}", attempt.dir.mark());
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let has = |path: PathBuf| {
        fs::read(path.join("environ")).is_ok_and(|e| e.split(|b| *b == 0).any(|v| v == entry.as_bytes()))
    };
    pids.filter(|e| e.file_name().to_string_lossy().parse::<u32>().is_ok() && has(e.path())).count()
}

/// A shell with a child in the background and a grandchild that left by a double fork and a session of its own.
const TREE: &str = "sleep 1000 & (setsid sleep 1001 &) ; touch started; wait";

fn isolations() -> [Isolation; 3] {
    [Isolation::Namespace, Isolation::UserNamespace, Isolation::Subreaper]
}

fn wait_for_tree(attempt: &Attempt) {
    until("the tree", || attempt.dir.current_dir().join("started").exists() && marked(attempt) >= 3);
}

#[test]
fn exit_code_and_output_are_kept() {
    for isolation in isolations() {
        let attempt = attempt("echo out; echo err >&2; exit 3", isolation);
        let exit = ended(&mut start(&attempt, BOUND), &attempt);
        assert_eq!((exit.cause, exit.code, exit.signal, exit.epoch), (Cause::Exited, Some(3), None, 7));
        assert_eq!(logs::last_lines(attempt.dir.path(), "stdout", 5), "out");
        assert_eq!(logs::last_lines(attempt.dir.path(), "stderr", 5), "err");
        assert!(attempt.dir.lock().is_ok(), "the lock is free again");
    }
}

#[test]
fn what_the_program_leaves_behind_ends_with_it() {
    for isolation in isolations() {
        let attempt = attempt("(setsid sleep 1001 &) ; exit 0", isolation);
        let exit = ended(&mut start(&attempt, BOUND), &attempt);
        assert!(exit.is_success(), "{exit:?}");
        assert_eq!(marked(&attempt), 0, "{isolation:?}");
    }
}

#[test]
fn the_end_of_the_pipe_kills_the_whole_tree_at_once() {
    for isolation in isolations() {
        let attempt = attempt(TREE, isolation);
        let mut guard = start(&attempt, BOUND);
        wait_for_tree(&attempt);
        assert_eq!(attempt.dir.lock().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        drop(guard.stdin.take());
        let exit = ended(&mut guard, &attempt);
        assert_eq!((exit.cause, exit.signal), (Cause::ParentGone, Some(9)), "{isolation:?}");
        assert_eq!(marked(&attempt), 0, "{isolation:?}");
    }
}

#[test]
fn sigkill_of_the_guards_parent_kills_the_whole_tree() {
    for isolation in isolations() {
        let attempt = attempt(TREE, isolation);
        // A parent that holds the pipe's only writing end, as a JobMaster process does.
        let script = format!(
            "sleep 1000 | '{}' '{}' {}",
            env!("CARGO_BIN_EXE_jobmaster-guard"),
            attempt.dir.path().display(),
            Boottime::now().plus(BOUND).as_ns()
        );
        let mut parent = Command::new("/bin/sh");
        std::os::unix::process::CommandExt::process_group(&mut parent, 0);
        let mut parent = parent.args(["-c", &script]).spawn().unwrap();
        wait_for_tree(&attempt);
        let group = Pid::from_raw(parent.id() as i32).unwrap();
        rustix::process::kill_process_group(group, Signal::KILL).unwrap();
        parent.wait().unwrap();
        until("the guard's record", || attempt.dir.read_exit().unwrap().is_some());
        assert_eq!(marked(&attempt), 0, "{isolation:?}");
    }
}

#[test]
fn sigkill_of_the_guard_itself_kills_the_program() {
    for isolation in isolations() {
        let attempt = attempt(TREE, isolation);
        let mut guard = start(&attempt, BOUND);
        wait_for_tree(&attempt);
        guard.kill().unwrap();
        guard.wait().unwrap();
        if isolation == Isolation::Subreaper {
            // What left by a double fork is found by its mark.
            assert!(kill_marked(&attempt.dir.mark(), BOUND));
        }
        until("no process of the attempt", || marked(&attempt) == 0);
        assert_eq!(attempt.dir.read_exit().unwrap(), None);
    }
}

#[test]
fn the_deadline_kills_and_keep_alives_push_it_out() {
    for isolation in isolations() {
        let attempt = attempt(TREE, isolation);
        let mut guard = start(&attempt, Duration::from_secs(3));
        wait_for_tree(&attempt);
        let last = Boottime::now().plus(Duration::from_secs(4));
        let line = Order::Deadline(last).line();
        guard.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let exit = ended(&mut guard, &attempt);
        assert_eq!((exit.cause, exit.signal), (Cause::Deadline, Some(9)), "{isolation:?}");
        let late = Duration::from_nanos(Boottime::now().as_ns() - last.as_ns().min(Boottime::now().as_ns()));
        assert!(last.left().is_zero() && late < Duration::from_secs(2), "{late:?} late");
        assert_eq!(marked(&attempt), 0, "{isolation:?}");
    }
}

#[test]
fn a_frozen_guard_kills_when_it_thaws() {
    let attempt = attempt(TREE, Isolation::Namespace);
    let ttl = Duration::from_secs(2);
    let mut guard = start(&attempt, ttl);
    let deadline = Boottime::now().plus(ttl);
    wait_for_tree(&attempt);
    let pid = Pid::from_raw(guard.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    until("the deadline", || deadline.left().is_zero());
    assert!(marked(&attempt) >= 3, "nobody else kills them");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(ended(&mut guard, &attempt).cause, Cause::Deadline);
    assert_eq!(marked(&attempt), 0);
}

/// It does not run again because its guard came to see its end too late.
#[test]
fn a_program_that_ended_before_the_deadline_is_not_said_to_have_been_killed_at_it() {
    for isolation in isolations() {
        let go = tempfile::tempdir().unwrap();
        let script =
            format!("touch started; while [ ! -e '{}/go' ]; do sleep 0.05; done", go.path().display());
        let attempt = attempt(&script, isolation);
        let deadline = Boottime::now().plus(Duration::from_secs(2));
        let mut guard = start(&attempt, deadline.left());
        until("the start", || attempt.dir.current_dir().join("started").exists());
        let pid = Pid::from_raw(guard.id() as i32).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        fs::write(go.path().join("go"), "").unwrap();
        until("the end of the program", || marked(&attempt) == 0);
        assert!(!deadline.left().is_zero(), "a machine too slow to see anything");
        until("the deadline", || deadline.left().is_zero());
        kill_process(pid, Signal::CONT).unwrap();
        assert!(ended(&mut guard, &attempt).is_success(), "{isolation:?}");
    }
}

/// How often the threads of a process have slept so far, and the clock ticks that they ran.
fn sleeps_and_ticks(pid: u32) -> u64 {
    let of = |path: PathBuf| {
        let status = fs::read_to_string(path.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let sleeps: u64 = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|t| of(t.unwrap().path())).sum();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
    sleeps + fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
}

/// Hundreds of them on a host must cost nothing while nothing happens.
#[test]
fn a_guard_that_has_nothing_to_do_is_not_woken() {
    let attempt = attempt("exec sleep 1000", Isolation::Namespace);
    let mut guard = start(&attempt, BOUND * 10);
    until("the program", || marked(&attempt) > 0);
    let mut fewest = u64::MAX;
    for _ in 0..5 {
        let before = sleeps_and_ticks(guard.id());
        // The time that is measured, not a wait for something.
        std::thread::sleep(Duration::from_secs(1));
        fewest = fewest.min(sleeps_and_ticks(guard.id()) - before);
    }
    assert_eq!(fewest, 0, "woken {fewest} times, or busy so many ticks, in the quietest second");
    drop(guard.stdin.take());
    ended(&mut guard, &attempt);
}

#[test]
fn terminate_lets_the_program_end_itself_and_kill_does_not() {
    for isolation in isolations() {
        let attempt =
            attempt("trap 'echo bye; exit 5' TERM; touch started; while :; do sleep 0.05; done", isolation);
        let mut guard = start(&attempt, BOUND);
        until("the start", || attempt.dir.current_dir().join("started").exists());
        guard.stdin.as_mut().unwrap().write_all(Order::Terminate.line().as_bytes()).unwrap();
        let exit = ended(&mut guard, &attempt);
        assert_eq!((exit.cause, exit.code), (Cause::Cancelled, Some(5)), "{isolation:?}");
        assert_eq!(logs::last_lines(attempt.dir.path(), "stdout", 1), "bye");
    }
    let stubborn = attempt("trap '' TERM; touch started; while :; do sleep 0.05; done", Isolation::Namespace);
    let mut guard = start(&stubborn, BOUND);
    until("the start", || stubborn.dir.current_dir().join("started").exists());
    let orders = Order::Terminate.line() + &Order::Kill.line();
    guard.stdin.as_mut().unwrap().write_all(orders.as_bytes()).unwrap();
    let exit = ended(&mut guard, &stubborn);
    assert_eq!((exit.cause, exit.signal), (Cause::Cancelled, Some(9)));
}

#[test]
fn endless_output_is_bounded_on_disk() {
    let attempt =
        attempt("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done", Isolation::Namespace);
    assert!(ended(&mut start(&attempt, BOUND), &attempt).is_success());
    assert!(bytes_of(attempt.dir.path(), "stdout") <= 4000);
    assert_eq!(logs::last_lines(attempt.dir.path(), "stdout", 1), "line 1999");
    assert!(logs::read(attempt.dir.path(), "stdout", 0, 10).unwrap().bytes.starts_with(b"line 0\n"));
}

fn bytes_of(dir: &Path, stream: &str) -> u64 {
    let files = fs::read_dir(dir).unwrap().flatten();
    let ours = files.filter(|f| f.file_name().to_string_lossy().starts_with(stream));
    ours.map(|f| f.metadata().unwrap().len()).sum()
}

#[test]
fn a_program_that_is_not_there_and_limits_are_told() {
    let missing = attempt("", Isolation::Namespace);
    let spec = Spec { program: "/no/such/java".into(), ..missing.dir.read_spec().unwrap() };
    missing.dir.prepare(&spec).unwrap();
    let exit = ended(&mut start(&missing, BOUND), &missing);
    assert_eq!(exit.cause, Cause::NotStarted);
    assert!(exit.error.unwrap().contains("/no/such/java"));

    let limited = attempt("ulimit -n", Isolation::Namespace);
    let limits = Limits { open_files: Some(123), ..Limits::default() };
    limited.dir.prepare(&Spec { limits, ..limited.dir.read_spec().unwrap() }).unwrap();
    ended(&mut start(&limited, BOUND), &limited);
    assert_eq!(logs::last_lines(limited.dir.path(), "stdout", 1), "123");
}

/// It starts processes until it may not.
const BOMB: &str = "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); echo $i; done";

/// As the kernel of the test sees it, not as the guard does.
fn processes_can_be_limited() -> bool {
    let probe = PathBuf::from("/sys/fs/cgroup/pids").join(format!("metastore-probe-{}", std::process::id()));
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let made = fs::create_dir(&probe).is_ok();
    let _ = fs::remove_dir(&probe);
    made || !is_root
}

#[test]
fn a_fork_bomb_ends_at_its_limit_and_is_killed_whole() {
    for (number, isolation) in isolations().into_iter().enumerate() {
        let bomb = attempt(BOMB, isolation);
        let spec = bomb.dir.read_spec().unwrap();
        let job = format!("bomb-{number}-{}", std::process::id());
        let limits = Limits { processes: Some(20), ..Limits::default() };
        bomb.dir.prepare(&Spec { job: job.clone(), limits, ..spec }).unwrap();
        ended(&mut start(&bomb, BOUND), &bomb);
        let started = logs::last_lines(bomb.dir.path(), "stdout", 1).parse::<u32>().unwrap_or(0);
        assert!(started < 20 || !processes_can_be_limited(), "{started} processes in {isolation:?}");
        assert_eq!(marked(&bomb), 0, "{isolation:?}");
        let left = fs::read_dir("/sys/fs/cgroup/pids").into_iter().flatten().flatten();
        let left = left.filter(|group| group.file_name().to_string_lossy().contains(&job));
        assert_eq!(left.count(), 0, "the group is given back");
    }
}

/// As for a user whom the kernel gives no namespace: the next weaker way is taken, and holds the tree together.
#[test]
fn where_namespaces_are_refused_the_guard_is_a_subreaper() {
    let confined = |command: &str| {
        let script = format!(
            "echo 0 > /proc/sys/user/max_user_namespaces && \
             exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin {command}"
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "/bin/sh", "-c", &script]).stdin(Stdio::piped());
        unshare
    };
    if !confined("true").status().is_ok_and(|status| status.success()) {
        eprintln!("no user namespace to be confined in: nothing to see");
        return;
    }
    let attempt = attempt(TREE, Isolation::Namespace);
    let deadline = Boottime::now().plus(BOUND).as_ns();
    let command =
        format!("'{}' '{}' {deadline}", env!("CARGO_BIN_EXE_jobmaster-guard"), attempt.dir.path().display());
    let mut guard = confined(&command).spawn().unwrap();
    wait_for_tree(&attempt);
    let note = fs::read_to_string(attempt.dir.path().join("guard.json")).unwrap();
    assert!(note.contains("\"subreaper\""), "{note}");
    drop(guard.stdin.take());
    assert_eq!(ended(&mut guard, &attempt).cause, Cause::ParentGone);
    assert_eq!(marked(&attempt), 0);
}

#[test]
fn two_guards_never_run_one_attempt() {
    let attempt = attempt(TREE, Isolation::Namespace);
    let mut first = start(&attempt, BOUND);
    wait_for_tree(&attempt);
    let mut second = start(&attempt, BOUND);
    until("the second guard's end", || second.try_wait().unwrap().is_some());
    assert!(!second.wait().unwrap().success());
    assert_eq!(attempt.dir.read_exit().unwrap(), None);
    first.kill().unwrap();
    first.wait().unwrap();
}

/// A process that does not outlive its test.
struct Stray(Child);

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that another JobMaster process of this host left: its guard was killed together with it.
#[test]
fn what_an_earlier_attempt_left_on_this_host_is_dead_before_the_next_one_starts() {
    let stray = |mark: &str| {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000").env(JOB_MARK, mark).stdout(Stdio::null()).stderr(Stdio::null());
        Stray(command.spawn().unwrap())
    };
    for isolation in isolations() {
        let (mut left, mut others) = (stray("job/op-1/"), stray("job/op-2/"));
        let attempt = attempt("true", isolation);
        let mut spec = attempt.dir.read_spec().unwrap();
        spec.attempt = 2;
        spec.env.insert(JOB_MARK.into(), "job/op-1/".into());
        attempt.dir.prepare(&spec).unwrap();
        let mut guard = start(&attempt, BOUND);
        let exit = ended(&mut guard, &attempt);
        assert_eq!(exit.cause, Cause::Exited, "{exit:?}");
        until("the end of what was left", || left.0.try_wait().unwrap().is_some());
        assert!(others.0.try_wait().unwrap().is_none(), "another cluster's job of the same id lives");
    }
}

/// The right to run may end while it looks for what was left: then nothing starts, and the program is not to blame.
#[test]
fn a_second_attempt_that_comes_too_late_does_not_start() {
    let attempt = attempt("touch started", Isolation::Subreaper);
    let mut spec = attempt.dir.read_spec().unwrap();
    spec.attempt = 2;
    spec.env.insert(JOB_MARK.into(), "job/late/".into());
    attempt.dir.prepare(&spec).unwrap();
    let mut guard = start(&attempt, Duration::ZERO);
    assert_eq!(ended(&mut guard, &attempt).cause, Cause::Deadline);
    assert!(!attempt.dir.current_dir().join("started").exists());
}
