//! Blows to processes: SIGKILL, or SIGSTOP for a while; to a dispatcher, a JobMaster process, a guard or the leader of
//! the store.

use std::time::Duration;

use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use testkit::Cluster;

/// Who is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// Any dispatcher.
    Dispatcher,
    /// Any JobMaster process.
    JobMaster,
    /// The guard of a running job; a JobMaster process if none runs.
    Guard,
    /// The replica that leads.
    Leader,
}

/// With what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after so long.
    Stop(Duration),
}

/// Longest stop.
const LONGEST_STOP: f64 = 30.0;

impl Blow {
    /// Half of them kill; stops last from 1 to 30 s, most of them a few.
    pub fn draw(random: &mut impl Rng) -> Self {
        if random.random_bool(0.5) {
            return Self::Kill;
        }
        let seconds = 1.0 + (LONGEST_STOP - 1.0) * random.random::<f64>().powi(3);
        Self::Stop(Duration::from_secs_f64(seconds))
    }
}

impl Victim {
    /// Each as often.
    pub fn draw(random: &mut impl Rng) -> Self {
        match random.random_range(0..4) {
            0 => Self::Dispatcher,
            1 => Self::JobMaster,
            2 => Self::Guard,
            _ => Self::Leader,
        }
    }
}

/// A blow that was struck and is not made good yet.
#[derive(Debug)]
pub struct Struck {
    /// The process's name in the cluster; of a guard that of its JobMaster process.
    pub name: String,
    /// Who it was.
    pub victim: Victim,
    pid: u32,
    blow: Blow,
}

/// Strikes. `None` if there is nobody to be hit, as during an election.
pub fn strike(cluster: &Cluster, victim: Victim, blow: Blow, random: &mut impl Rng) -> Option<Struck> {
    let (name, pid, victim) = match victim {
        Victim::Dispatcher => {
            let (name, pid) = any(cluster, "dispatcher-", random)?;
            (name, pid, victim)
        }
        Victim::JobMaster => {
            let (name, pid) = any(cluster, "jobmaster-", random)?;
            (name, pid, victim)
        }
        Victim::Guard => {
            let (name, pid) = any(cluster, "jobmaster-", random)?;
            let guards = children(pid);
            match guards.len() {
                0 => (name, pid, Victim::JobMaster),
                count => (name, guards[random.random_range(0..count)], victim),
            }
        }
        Victim::Leader => {
            let name = leader(cluster)?;
            let pid = *cluster.pids.get(&name)?;
            (name, pid, victim)
        }
    };
    send(pid, if blow == Blow::Kill { Signal::KILL } else { Signal::STOP });
    Some(Struck { name, victim, pid, blow })
}

impl Struck {
    /// Waits for the end of a stop, and starts what was killed.
    pub async fn make_good(self, cluster: &mut Cluster) {
        match self.blow {
            Blow::Stop(length) => {
                // The length of the fault, not a wait for something.
                tokio::time::sleep(length).await;
                send(self.pid, Signal::CONT);
            }
            Blow::Kill if self.victim == Victim::Guard => {}
            Blow::Kill => tokio::task::block_in_place(|| cluster.restart(&self.name)),
        }
    }
}

fn any(cluster: &Cluster, prefix: &str, random: &mut impl Rng) -> Option<(String, u32)> {
    let all: Vec<_> = cluster.pids.iter().filter(|(name, _)| name.starts_with(prefix)).collect();
    let (name, pid) = *all.get(random.random_range(0..all.len().max(1)))?;
    Some((name.clone(), *pid))
}

/// The name of the replica that says it leads.
fn leader(cluster: &Cluster) -> Option<String> {
    let told = cluster.ctl().run(&["-o", "json", "endpoint", "status"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).ok()?;
    let leads = |row: &serde_json::Value| row["Status"]["leader"] == row["Status"]["header"]["member_id"];
    let endpoint = told.as_array()?.iter().find(|row| leads(row))?["Endpoint"].as_str()?.to_owned();
    let number = cluster.endpoints.iter().position(|of| *of == endpoint)? + 1;
    Some(format!("replica-{number}"))
}

/// Processes that this one started and that live: of a JobMaster process the guards of its jobs.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// All that it started, and what those started, as far as they live.
pub fn descendants(pid: u32) -> Vec<u32> {
    let own = children(pid);
    let below: Vec<u32> = own.iter().flat_map(|child| descendants(*child)).collect();
    [own, below].concat()
}

/// Process ids of this machine whose environment carries the job's id.
pub fn processes_of(job: &str) -> Vec<u32> {
    let mark = format!("JOB_ID={job}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes())
        })
        .collect()
}

/// Sends a signal to a process that the cluster's scripts started, or to its child. It may be gone by now.
pub fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    let _ = kill_process(pid, signal);
}
