//! Control groups: limits that count all processes of an attempt together, and one word that kills them all. Used where
//! the kernel lets this user make groups; elsewhere the rlimits hold, each process for itself.
//!
//! Version 1 and version 2 of the kernel's interface, also both at once. A group is made below the one that the
//! JobMaster process is in; in version 2 beside it if that is called `metastore`, for a group with processes may
//! not limit groups below it (systemd: `Delegate=yes`, `DelegateSubgroup=metastore`).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::spec::Limits;

/// What the unit files call the subgroup that the process itself is in.
const OWN_SUBGROUP: &str = "metastore";
/// Names of groups that we made start so.
const PREFIX: &str = "metastore-job-";
/// A group whose last process was killed is busy for a moment.
const REMOVE_WITHIN: Duration = Duration::from_secs(1);
/// Pause between two tries.
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// One tree of groups, and where in it this process may make groups.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Version 1, of the controller that counts memory.
    Memory1,
    /// Version 1, of the controller that counts processes.
    Pids1,
    /// Version 2: whatever is delegated, and the killing of a whole group.
    Two,
}

impl Version {
    fn memory_file(self) -> Option<&'static str> {
        match self {
            Self::Memory1 => Some("memory.limit_in_bytes"),
            Self::Two => Some("memory.max"),
            Self::Pids1 => None,
        }
    }

    fn processes_file(self) -> Option<&'static str> {
        match self {
            Self::Pids1 | Self::Two => Some("pids.max"),
            Self::Memory1 => None,
        }
    }
}

/// The groups of one attempt; none where none can be made.
#[derive(Debug, Default)]
pub struct Group {
    directories: Vec<PathBuf>,
    /// Of them the one that a process can be started in.
    second: Option<PathBuf>,
    /// What is limited by them.
    limited: Limited,
}

/// What a group limits, so that no rlimit need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limited {
    /// Memory of all processes together.
    pub memory: bool,
    /// Number of processes and threads.
    pub processes: bool,
}

impl Group {
    /// Makes the groups that limit what is to be limited, and one that can be killed where there is such.
    pub fn make(name: &str, limits: Limits) -> Self {
        Self::make_in(&own_hierarchies(), name, limits)
    }

    fn make_in(all: &[Hierarchy], name: &str, limits: Limits) -> Self {
        let mut group = Self::default();
        for Hierarchy { version, directory } in all {
            let directory = directory.join(format!("{PREFIX}{name}"));
            if fs::create_dir(&directory).is_err() {
                continue;
            }
            // Init, which is in the group, is no process of the program's.
            let processes = limits.processes.map(|processes| processes.saturating_add(1));
            let set = |file: Option<&str>, limit: Option<u64>| match (file, limit) {
                (Some(file), Some(limit)) => fs::write(directory.join(file), limit.to_string()).is_ok(),
                _ => false,
            };
            let memory = set(version.memory_file(), limits.memory_bytes);
            let processes = set(version.processes_file(), processes);
            if *version != Version::Two && !memory && !processes {
                let _ = fs::remove_dir(&directory);
                continue;
            }
            group.limited.memory |= memory;
            group.limited.processes |= processes;
            if *version == Version::Two {
                group.second = Some(directory.clone());
            }
            group.directories.push(directory);
        }
        group
    }

    /// What a process is started in the group of version 2 by, if there is one.
    pub fn door(&self) -> Option<OwnedFd> {
        self.second.as_ref().and_then(|directory| fs::File::open(directory).ok()).map(OwnedFd::from)
    }

    /// The calling process becomes a member, and with it all that it starts. `is_inside`: it came through the door.
    /// What limits nothing then is told.
    ///
    /// # Errors
    /// What the kernel says; the process may be a member of some of them.
    pub fn join(&self, is_inside: bool) -> io::Result<Limited> {
        let is_outside = |directory: &&PathBuf| !is_inside || self.second.as_ref() != Some(*directory);
        let mut outside = self.directories.iter().filter(is_outside);
        outside.try_for_each(|directory| fs::write(directory.join("cgroup.procs"), "0"))?;
        Ok(self.limited)
    }

    /// Kills every member at once, also one that was started this moment. Does nothing where the kernel cannot.
    pub fn kill(&self) {
        for directory in &self.directories {
            let _ = fs::write(directory.join("cgroup.kill"), "1");
        }
    }
}

/// They are given back, once no process is in them.
impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + REMOVE_WITHIN;
        for directory in &self.directories {
            while fs::remove_dir(directory).is_err() && directory.exists() && Instant::now() < until {
                std::thread::sleep(REMOVE_PAUSE);
            }
        }
    }
}

/// Removes groups that guards left which were killed. One with a process in it stays: the kernel refuses.
pub fn sweep() {
    for Hierarchy { directory, .. } in own_hierarchies() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// Where this process may make groups.
fn own_hierarchies() -> Vec<Hierarchy> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
}

/// Where groups may be made, from `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn hierarchies(mounts: &str, own: &str) -> Vec<Hierarchy> {
    let own_path = |wanted: &str| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            controllers.split(',').any(|controller| controller == wanted).then(|| parts.next()).flatten()
        })
    };
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mounts.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let mount: Vec<&str> = mount.split(' ').collect();
        let (Some(root), Some(point)) = (mount.get(3), mount.get(4)) else { continue };
        let file_system: Vec<&str> = file_system.split(' ').collect();
        let has =
            |controller| file_system.get(2).is_some_and(|all| all.split(',').any(|it| it == controller));
        let (version, own) = match file_system.first() {
            Some(&"cgroup2") => (Version::Two, own_path("")),
            Some(&"cgroup") if has("memory") => (Version::Memory1, own_path("memory")),
            Some(&"cgroup") if has("pids") => (Version::Pids1, own_path("pids")),
            _ => continue,
        };
        // A part of the tree that is mounted alone, as in containers, starts at its root.
        let Some(below) = own.and_then(|own| Path::new(own).strip_prefix(root).ok()) else { continue };
        let mut directory = Path::new(point).join(below);
        if version == Version::Two && directory.file_name().is_some_and(|name| name == OWN_SUBGROUP) {
            directory.pop();
        }
        if found.iter().all(|known| known.version != version) {
            found.push(Hierarchy { version, directory });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
28 25 0:24 / /sys/fs/cgroup ro - tmpfs tmpfs ro
29 28 0:25 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
31 28 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
32 28 0:28 /pod /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";

    fn at(version: Version, directory: &str) -> Hierarchy {
        Hierarchy { version, directory: directory.into() }
    }

    #[test]
    fn groups_are_made_below_the_own_one() {
        let own = "8:pids:/jobs\n4:memory:/pod/a\n0::/unit.service/inner\n";
        let wanted = [
            at(Version::Two, "/sys/fs/cgroup/unified/unit.service/inner"),
            at(Version::Pids1, "/sys/fs/cgroup/pids/jobs"),
            at(Version::Memory1, "/sys/fs/cgroup/memory/a"),
        ];
        assert_eq!(hierarchies(MOUNTS, own), wanted);
        // Outside of what is mounted, or of no such tree: none.
        assert_eq!(hierarchies(MOUNTS, "4:memory:/elsewhere\n"), []);
        assert_eq!(hierarchies("", own), []);
    }

    #[test]
    fn beside_the_own_subgroup_of_a_unit() {
        let found = hierarchies(MOUNTS, "0::/unit.service/metastore\n");
        assert_eq!(found, [at(Version::Two, "/sys/fs/cgroup/unified/unit.service")]);
    }

    #[test]
    fn what_cannot_be_made_limits_nothing() {
        let nowhere = [at(Version::Pids1, "/proc/self/nowhere"), at(Version::Two, "/nowhere")];
        let limits = Limits { processes: Some(5), ..Limits::default() };
        let group = Group::make_in(&nowhere, "j", limits);
        assert_eq!((group.directories.len(), group.join(false).unwrap()), (0, Limited::default()));
    }

    #[test]
    fn a_limit_that_is_taken_is_told_and_a_group_that_limits_nothing_is_given_back() {
        // Directories stand in for the kernel's: a file can be written in any of them.
        let scratch = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let path = scratch.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let all = [
            Hierarchy { version: Version::Pids1, directory: dir("pids") },
            Hierarchy { version: Version::Memory1, directory: dir("memory") },
        ];
        let group = Group::make_in(&all, "j1", Limits { processes: Some(5), ..Limits::default() });
        assert_eq!(group.limited, Limited { memory: false, processes: true });
        let made = scratch.path().join("pids/metastore-job-j1");
        assert_eq!(group.directories, std::slice::from_ref(&made));
        assert_eq!(fs::read_to_string(made.join("pids.max")).unwrap(), "6", "init is a member too");
        assert_eq!(fs::read_dir(scratch.path().join("memory")).unwrap().count(), 0);
        // The kernel's files go with their directory, these do not.
        fs::remove_file(made.join("pids.max")).unwrap();
        drop(group);
        assert!(!made.exists(), "given back");
    }
}
