//! An attempt's directory: what to start, who holds it, how it ended.
//!
//! ```text
//! <work-dir>/jobs/<job>/<attempt>/
//!   spec.json      what the guard starts
//!   lock           held (flock) while anything of the attempt may live; holds the guard's process id
//!   guard.json     how isolated it runs
//!   exit.json.tmp  room for exit.json, taken before the start
//!   exit.json      how it ended, written durably by the guard before it lets go of the lock
//!   stdout, stdout.<offset>, stderr, ...   captured output, head and tail
//!   cwd/           the program's working directory
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::cgroup::Limited;
use super::init::{InitReport, code_and_signal};

/// Version of the files' format.
pub const ATTEMPT_VERSION: u32 = 1;
/// Room taken for `exit.json`: it is a few hundred bytes, an error's text aside.
const EXIT_ROOM: usize = 8 * 1024;

/// How a tree of processes is kept together, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// A PID namespace (needs root).
    #[default]
    Namespace,
    /// A PID namespace inside a user namespace.
    UserNamespace,
    /// Subreapers and parent-death signals.
    Subreaper,
}

/// Limits of an attempt; none = as the JobMaster process has. Of all its processes together where the kernel lets a
/// control group be made, else of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory; of each process: its address space.
    pub memory_bytes: Option<u64>,
    /// Processes and threads; of each process: those of its user, and of root any number.
    pub processes: Option<u64>,
    /// Open files.
    pub open_files: Option<u64>,
}

impl Limits {
    /// Those that a control group does not see to.
    pub(super) fn beside(self, limited: Limited) -> Self {
        Self {
            memory_bytes: self.memory_bytes.filter(|_| !limited.memory),
            processes: self.processes.filter(|_| !limited.processes),
            open_files: self.open_files,
        }
    }
}

/// What a guard starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Format version.
    pub v: u32,
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The owner's epoch.
    pub epoch: i64,
    /// Program to start, found on PATH if it has no `/`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub current_dir: PathBuf,
    /// Bytes kept of each output stream.
    pub stream_limit_bytes: u64,
    /// Limits.
    pub limits: Limits,
    /// The strongest isolation to try.
    pub isolation: Isolation,
    /// The file whose appearance makes it a job; none = being alive does. Not the guard's business, but a node that
    /// comes back must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_file: Option<PathBuf>,
}

/// Why an attempt is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program ended by itself.
    Exited,
    /// It never ran.
    NotStarted,
    /// It was told to stop.
    Cancelled,
    /// The lease ran out.
    Deadline,
    /// The JobMaster process died or let go.
    ParentGone,
}

/// `exit.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Format version.
    pub v: u32,
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The owner's epoch: only under it may the end be reported.
    pub epoch: i64,
    /// Why.
    pub cause: Cause,
    /// Exit code, if the program exited.
    pub code: Option<i32>,
    /// Signal, if one killed it.
    pub signal: Option<i32>,
    /// What went wrong at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Wall clock, for people.
    pub started_at_ms: u64,
    /// Wall clock, for people.
    pub ended_at_ms: u64,
}

impl ExitRecord {
    pub(super) fn new(spec: &Spec, cause: Cause, report: &InitReport, started_at_ms: u64) -> Self {
        let (cause, (code, signal), error) = match report {
            InitReport::NotStarted(why) => (Cause::NotStarted, (None, None), Some(why.clone())),
            InitReport::Ended(raw) => (cause, code_and_signal(*raw), None),
            InitReport::Killed => (cause, (None, Some(libc::SIGKILL)), None),
        };
        Self {
            v: ATTEMPT_VERSION,
            job: spec.job.clone(),
            attempt: spec.attempt,
            epoch: spec.epoch,
            cause,
            code,
            signal,
            error,
            started_at_ms,
            ended_at_ms: super::wall_clock_ms(),
        }
    }

    /// True if the program ended by itself with 0.
    pub fn is_success(&self) -> bool {
        self.cause == Cause::Exited && self.code == Some(0)
    }
}

#[derive(Serialize)]
struct GuardNote {
    v: u32,
    pid: u32,
    isolation: Isolation,
}

/// An attempt's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptDir {
    path: PathBuf,
}

impl AttemptDir {
    /// The directory at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Working directory of the program.
    pub fn current_dir(&self) -> PathBuf {
        self.path.join("cwd")
    }

    /// The mark of its processes' environment. No attempt's mark is the beginning of another's.
    pub fn mark(&self) -> String {
        format!("{}/", self.path.display())
    }

    /// Creates the directory, writes the spec and takes room for what the guard writes last.
    pub fn prepare(&self, spec: &Spec) -> io::Result<()> {
        fs::create_dir_all(self.current_dir())?;
        self.write_atomically("spec.json", spec)?;
        self.reserve_exit()
    }

    /// A main() that ended with 0 would run again if a full disk did not take how it ended. So nothing starts
    /// without the room for that.
    fn reserve_exit(&self) -> io::Result<()> {
        let mut file = open_to_write(&self.temporary("exit.json"))?;
        match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, EXIT_ROOM as u64) {
            // This file system takes no room ahead: written bytes hold it, unless it never writes in place.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.write_all(&[0; EXIT_ROOM]),
            taken => taken.map_err(Into::into),
        }
    }

    /// Takes the lock, or fails at once with `WouldBlock`. It ends with the file.
    pub fn lock(&self) -> io::Result<File> {
        let path = self.path.join("lock");
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        Ok(file)
    }

    /// Process id of the lock's (last) holder.
    pub fn holder(&self) -> Option<i32> {
        fs::read_to_string(self.path.join("lock")).ok()?.trim().parse().ok()
    }

    /// Reads the spec.
    pub fn read_spec(&self) -> Result<Spec, String> {
        self.read("spec.json")?.ok_or_else(|| format!("{} has no spec.json", self.path.display()))
    }

    /// How it ended; `None` while it has not, or if the guard was killed.
    pub fn read_exit(&self) -> Result<Option<ExitRecord>, String> {
        self.read("exit.json")
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<Option<T>, String> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(json) => {
                serde_json::from_slice(&json).map(Some).map_err(|e| format!("{}: {e}", path.display()))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    pub(super) fn note_guard(&self, isolation: Isolation) -> io::Result<()> {
        self.write_atomically(
            "guard.json",
            &GuardNote { v: ATTEMPT_VERSION, pid: std::process::id(), isolation },
        )
    }

    pub(super) fn write_exit(&self, exit: &ExitRecord) -> io::Result<()> {
        self.write_atomically("exit.json", exit)
    }

    fn write_atomically<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        let (temporary, json) = (self.temporary(name), serde_json::to_vec(value)?);
        let mut file = open_to_write(&temporary)?;
        file.write_all(&json)?;
        file.set_len(json.len() as u64)?;
        file.sync_all()?;
        fs::rename(&temporary, self.path.join(name))?;
        File::open(&self.path)?.sync_all()
    }

    fn temporary(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.tmp"))
    }
}

/// Not emptied: that would give back the room it has.
fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}
