//! What a start does before anything else: it makes sure that nothing an earlier process started on this work
//! directory is alive, and finds out how it ended.
//!
//! 1. The work directory's lock: one process at a time.
//! 2. The lock of every attempt. A guard whose parent died lets go within moments; one that does not is killed.
//! 3. Whatever carries a mark of this directory in its environment is killed.
//! 4. How attempts ended is read from their directories and reported, where the epoch still stands.
//!
//! Only then does the node end its predecessor's registration, register, delete files or start anything.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use records::JobId;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::NodeError;
use crate::guard::spec::{AttemptDir, ExitRecord, Spec};
use crate::guard::tree::kill_marked;
use crate::limits::{TAKE_OVER_GRACE, TAKE_OVER_WITHIN};

/// Pause between two tries for a lock.
const PAUSE: Duration = Duration::from_millis(10);

/// A work directory that is ours.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    /// Drawn at random when the directory was made: a job that is kept waits for this directory, not for a name.
    pub id: String,
    /// This boot, drawn at random.
    pub boot: String,
    /// Boots on this directory that may still be registered, all dead.
    pub predecessors: Vec<String>,
    _lock: File,
}

/// An attempt that an earlier process left, with nothing of it alive.
#[derive(Debug)]
pub struct Leftover {
    /// The job.
    pub job: JobId,
    /// Its directory.
    pub dir: AttemptDir,
    /// What was started.
    pub spec: Spec,
    /// How it ended, if its guard could say.
    pub exit: Option<ExitRecord>,
}

impl WorkDir {
    /// Takes the directory, creating it if needed.
    pub fn take(path: &Path) -> Result<Self, NodeError> {
        let io = |source| NodeError::Io { path: path.into(), source };
        fs::create_dir_all(path).map_err(io)?;
        let path = path.canonicalize().map_err(io)?;
        let lock_path = path.join("lock");
        let mut lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(io)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let pid = fs::read_to_string(&lock_path).unwrap_or_default();
            let holder = if pid.is_empty() { pid } else { format!(" (pid {pid})") };
            return Err(NodeError::InUse { path, holder });
        }
        lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).map_err(io)?;
        let boot = format!("{:032x}", rand::random::<u128>());
        let predecessors: Vec<String> =
            fs::read_to_string(path.join("boots")).unwrap_or_default().lines().map(Into::into).collect();
        let id = identity(&path).map_err(io)?;
        let taken = Self { path, id, boot, predecessors, _lock: lock };
        // Before this boot can register: whoever starts after it must know its name.
        let all: Vec<&str> = taken.predecessors.iter().chain([&taken.boot]).map(String::as_str).collect();
        taken.write_boots(&all).map_err(io)?;
        Ok(taken)
    }

    /// The predecessors are known to be gone from the store.
    pub fn forget_predecessors(&self) {
        // If it fails the list is a little longer: harmless.
        let _ = self.write_boots(&[&self.boot]);
    }

    fn write_boots(&self, boots: &[&str]) -> io::Result<()> {
        write_durably(&self.path, "boots", &(boots.join("\n") + "\n"))
    }

    /// The directory, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where attempts are.
    pub fn jobs(&self) -> PathBuf {
        self.path.join("jobs")
    }

    /// Makes sure that nothing of an earlier process is alive. Blocks for a few seconds at worst.
    pub fn kill_leftovers(&self) -> Result<Vec<Leftover>, NodeError> {
        let attempts = attempts_below(&self.jobs());
        let mut locks = Vec::new();
        for (_, dir) in &attempts {
            locks.push(take_lock(dir)?);
        }
        if !kill_marked(&format!("{}/", self.jobs().display()), TAKE_OVER_WITHIN) {
            return Err(NodeError::Leftover { path: self.jobs() });
        }
        let leftovers = attempts.into_iter().filter_map(|(job, dir)| {
            // An attempt without a readable spec never started.
            let spec = dir.read_spec().ok()?;
            let exit = dir.read_exit().unwrap_or_else(|why| {
                tracing::warn!(why, "how an attempt ended cannot be read");
                None
            });
            Some(Leftover { job, dir, spec, exit })
        });
        Ok(leftovers.collect())
    }
}

/// The directory's own name, made if it has none.
fn identity(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path.join("id")) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => {
            let id = format!("{:032x}", rand::random::<u128>());
            write_durably(path, "id", &id)?;
            Ok(id)
        }
    }
}

fn write_durably(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, directory.join(name))?;
    File::open(directory)?.sync_all()
}

/// Makes sure that nothing of an attempt is alive, whose JobMaster is gone. Blocks for a few seconds at worst.
pub fn kill_left(dir: &AttemptDir) -> Result<(), NodeError> {
    let _lock = take_lock(dir)?;
    if !kill_marked(&dir.mark(), TAKE_OVER_WITHIN) {
        return Err(NodeError::Leftover { path: dir.path().into() });
    }
    Ok(())
}

/// Every attempt's directory, by job and number.
pub fn attempts_below(jobs: &Path) -> Vec<(JobId, AttemptDir)> {
    let mut found = Vec::new();
    for job_dir in fs::read_dir(jobs).into_iter().flatten().flatten() {
        let Some(job) = job_dir.file_name().to_str().and_then(|name| name.parse::<JobId>().ok()) else {
            continue;
        };
        found.extend(attempts_of(&job_dir.path()).into_iter().map(|(_, dir)| (job.clone(), dir)));
    }
    found
}

/// Attempts of one job, by number.
pub fn attempts_of(job_dir: &Path) -> Vec<(u32, AttemptDir)> {
    let entries = fs::read_dir(job_dir).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, AttemptDir::at(e.path()))))
        .collect();
    found.sort_by_key(|(number, _)| *number);
    found
}

fn take_lock(dir: &AttemptDir) -> Result<File, NodeError> {
    let started = Instant::now();
    loop {
        match dir.lock() {
            Ok(lock) => return Ok(lock),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(source) => return Err(NodeError::Io { path: dir.path().into(), source }),
        }
        if started.elapsed() > TAKE_OVER_WITHIN {
            return Err(NodeError::Leftover { path: dir.path().into() });
        }
        if started.elapsed() > TAKE_OVER_GRACE {
            kill_guard(dir);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Its tree dies with it. The number is trusted only if the process names the attempt on its command line.
fn kill_guard(dir: &AttemptDir) {
    let Some(pid) = dir.holder() else { return };
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let ours = command.split(|b| *b == 0).any(|arg| arg == dir.path().as_os_str().as_encoded_bytes());
    if let (true, Some(pid)) = (ours, Pid::from_raw(pid)) {
        tracing::warn!(attempt = %dir.path().display(), "a guard does not let go; killing it");
        let _ = kill_process(pid, Signal::KILL);
    }
}
