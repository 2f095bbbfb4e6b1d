//! What a JobMaster process adopts. A guard that is killed leaves its processes behind; without a namespace those
//! that left by a double fork live on, and come to the nearest subreaper above: this process. It kills and reaps them
//! before the attempt counts as over, whatever they made of their environment.
//!
//! A child of this process is its own (a guard, whose status somebody here waits for) or adopted. Own children are
//! started by `spawn`, under the lock that also holds while adopted ones are looked for; so a number is never taken
//! for an adopted child's when it is a new guard's.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use tokio::process::{Child, Command};

use crate::guard::tree;

/// Pause between two rounds of killing.
const PAUSE: Duration = Duration::from_millis(10);

/// The children of this process.
static FAMILY: Mutex<Family> = Mutex::new(Family { adopts: false, own: Vec::new() });

struct Family {
    /// Whether children that are not its own are adopted ones.
    adopts: bool,
    /// A number twice: one is waited for, and the kernel gave its number to the next already.
    own: Vec<i32>,
}

/// Makes this process a subreaper, once, before it starts any child. Children that it has already (of the program
/// that it was before) are left alone. The first process of a container adopts whatever there is in it, also what is
/// none of ours: there, nothing is killed for being adopted.
pub fn adopt_orphans() -> io::Result<()> {
    if getpid() == Pid::INIT {
        return Ok(());
    }
    let mut family = FAMILY.lock();
    set_child_subreaper(Some(getpid()))?;
    family.own.extend(tree::children(getpid()).into_iter().map(Pid::as_raw_pid));
    family.adopts = true;
    Ok(())
}

/// Starts a child of our own.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut family = FAMILY.lock();
    let child = command.spawn()?;
    family.own.extend(number(&child));
    Ok(child)
}

/// Waits for the end of a child of our own.
pub(crate) async fn wait(child: &mut Child) -> io::Result<()> {
    let number = number(child);
    child.wait().await?;
    let mut family = FAMILY.lock();
    if let Some(at) = family.own.iter().position(|own| Some(*own) == number) {
        family.own.swap_remove(at);
    }
    Ok(())
}

fn number(child: &Child) -> Option<i32> {
    child.id().and_then(|id| i32::try_from(id).ok())
}

/// Kills and reaps what was adopted, and what it started, until there is none or time is up. True if none is left.
/// Blocks.
pub(crate) fn kill_adopted(within: Duration) -> bool {
    let give_up = Instant::now() + within;
    while !FAMILY.lock().kill_adopted() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

impl Family {
    /// One round. What dies hands its children on to us before it can be reaped, so none is overlooked.
    fn kill_adopted(&self) -> bool {
        if !self.adopts {
            return true;
        }
        let adopted =
            tree::children(getpid()).into_iter().filter(|pid| !self.own.contains(&pid.as_raw_pid()));
        let mut none = true;
        for orphan in adopted {
            none = false;
            for pid in tree::descendants(orphan).into_iter().chain([orphan]) {
                let _ = kill_process(pid, Signal::KILL);
            }
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
        none
    }
}
