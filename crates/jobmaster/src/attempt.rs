//! One attempt: a guard and its pipe.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::process::{Child, Command};

use crate::adoption::{self, kill_adopted};
use crate::guard::control::{Boottime, Order};
use crate::guard::spec::{AttemptDir, ExitRecord, Spec};
use crate::guard::tree::kill_marked;
use crate::host::blocking;
use crate::limits::{ATTEMPTS_KEPT, TAKE_OVER_WITHIN};
use crate::options::NodeOptions;
use crate::session::{GuardPipe, GuardPipes, RightToRun};
use crate::take_over::attempts_of;

/// A running attempt. Dropping it closes the pipe, upon which the guard kills.
#[derive(Debug)]
pub struct Attempt {
    dir: AttemptDir,
    guard: Child,
    pipe: GuardPipe,
}

impl Attempt {
    /// Starts the guard.
    pub fn start(
        options: &NodeOptions,
        pipes: &GuardPipes,
        dir: AttemptDir,
        spec: &Spec,
        right: RightToRun,
    ) -> io::Result<Self> {
        if let Some(job_dir) = dir.path().parent() {
            drop_old_attempts(job_dir, spec.attempt);
        }
        dir.prepare(spec)?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end: an order must never block the thread that renews the lease.
        rustix::io::ioctl_fionbio(&write, true)?;
        let deadline = match right {
            RightToRun::Leased => pipes.deadline(),
            RightToRun::Kept => Boottime::NEVER,
        };
        let mut command = match options.guard.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args);
                command
            }
            // The running program itself, even if its file was replaced meanwhile.
            None => {
                let mut command = Command::new("/proc/self/exe");
                command.arg("guard");
                command
            }
        };
        command.arg(dir.path()).arg(deadline.as_ns().to_string());
        command.stdin(Stdio::from(read)).stdout(Stdio::null());
        let guard = adoption::spawn(&mut command)?;
        Ok(Self { dir, guard, pipe: pipes.add(write, right) })
    }

    /// Its directory.
    pub fn dir(&self) -> &AttemptDir {
        &self.dir
    }

    /// Gives the guard an order.
    pub fn tell(&self, order: Order) {
        self.pipe.tell(order);
    }

    /// Returns when nothing of the attempt runs any more, with the guard's record of how it ended, if it could
    /// write one. May be called again.
    pub async fn exited(&mut self) -> Option<ExitRecord> {
        if let Err(error) = adoption::wait(&mut self.guard).await {
            tracing::warn!(%error, "a guard cannot be waited for");
        }
        match self.dir.read_exit() {
            Ok(Some(exit)) => return Some(exit),
            Ok(None) => tracing::warn!(attempt = %self.dir.path().display(), "the guard was killed"),
            Err(why) => tracing::warn!(why, "how an attempt ended cannot be read"),
        }
        // What the guard's death did not take along. As long as it lives the attempt does.
        let mark = self.dir.mark();
        let kill = move || kill_adopted(TAKE_OVER_WITHIN) && kill_marked(&mark, TAKE_OVER_WITHIN);
        while !blocking(kill.clone()).await {
            tracing::error!(attempt = %self.dir.path().display(), "a process of a dead attempt cannot be killed");
        }
        None
    }
}

/// Output of the last attempts is kept, older goes.
fn drop_old_attempts(job_dir: &Path, next: u32) {
    let old = attempts_of(job_dir).into_iter().filter(|(number, _)| *number < next);
    let old: Vec<_> = old.collect();
    for (_, dir) in old.iter().rev().skip(ATTEMPTS_KEPT - 1) {
        if let Err(error) = std::fs::remove_dir_all(dir.path()) {
            tracing::warn!(%error, attempt = %dir.path().display(), "an old attempt cannot be deleted");
        }
    }
}
