//! A cluster of real processes on free loopback ports, driven through `deploy/local-cluster.sh`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::binaries;
use crate::ctl::Ctl;
use crate::rest::Rest;

/// What to start.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Number of replicas.
    pub replicas: usize,
    /// Number of dispatchers.
    pub dispatchers: usize,
    /// Number of JobMaster processes; 0 = the dispatchers host the JobMasters.
    pub jobmasters: usize,
    /// Configuration, `key` and `value`, given to every process.
    pub set: Vec<(String, String)>,
}

impl ClusterOptions {
    /// So many of each, with no configuration of their own.
    pub fn new(replicas: usize, dispatchers: usize, jobmasters: usize) -> Self {
        Self { replicas, dispatchers, jobmasters, set: Vec::new() }
    }

    /// With one more configuration value.
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Self {
        self.set.push((key.into(), value.into()));
        self
    }
}

/// A running cluster. Dropped, it is stopped; its directory stays if the test is failing.
pub struct Cluster {
    directory: Option<tempfile::TempDir>,
    path: PathBuf,
    /// Client endpoints of the replicas, `host:port`, in order of their names.
    pub endpoints: Vec<String>,
    /// URLs of the dispatchers, in order of their names.
    pub dispatchers: Vec<String>,
    /// Process ids by name, as of the start.
    pub pids: BTreeMap<String, u32>,
}

impl Cluster {
    /// Starts the processes and waits until they serve.
    pub fn start(options: &ClusterOptions) -> Self {
        let directory =
            tempfile::Builder::new().prefix("metastore-").tempdir().expect("a temporary directory");
        let path = directory.path().to_path_buf();
        let mut args: Vec<String> = vec!["start".into()];
        for (flag, count) in [
            ("--replicas", options.replicas),
            ("--dispatchers", options.dispatchers),
            ("--jobmasters", options.jobmasters),
        ] {
            args.extend([flag.into(), count.to_string()]);
        }
        if binaries::is_release(binaries::directory()) {
            args.push("--release".into());
        }
        for (key, value) in &options.set {
            args.extend(["--set".into(), format!("{key}={value}")]);
        }
        let mut cluster = Self {
            directory: Some(directory),
            path,
            endpoints: Vec::new(),
            dispatchers: Vec::new(),
            pids: BTreeMap::new(),
        };
        let printed = cluster.script_ok(&args);
        cluster.read(&printed);
        assert_eq!(cluster.endpoints.len(), options.replicas, "endpoints in:\n{printed}");
        assert_eq!(cluster.dispatchers.len(), options.dispatchers, "dispatchers in:\n{printed}");
        cluster
    }

    /// Kills one process by name with SIGKILL.
    pub fn kill(&self, name: &str) {
        self.script_ok(&["kill".into(), name.into()]);
    }

    /// Kills the metastore's leader with SIGKILL; its client endpoint.
    pub fn kill_leader(&self) -> String {
        let printed = self.script_ok(&["kill".into(), "leader".into()]);
        let line = printed.lines().find_map(|l| l.strip_prefix("endpoint "));
        line.unwrap_or_else(|| panic!("no endpoint line in:\n{printed}")).trim().to_owned()
    }

    /// Starts a stopped process again and waits until it serves.
    pub fn restart(&mut self, name: &str) {
        let printed = self.script_ok(&["start".into(), name.into()]);
        self.read(&printed);
    }

    /// Starts several stopped processes at the same time: replicas without a quorum wait for each other.
    pub fn restart_all(&mut self, names: &[&str]) {
        let this = &*self;
        let printed: Vec<String> = std::thread::scope(|scope| {
            let starts: Vec<_> = names
                .iter()
                .map(|name| scope.spawn(move || this.script_ok(&["start".into(), (*name).into()])))
                .collect();
            starts.into_iter().map(|start| start.join().expect("a start succeeds")).collect()
        });
        printed.iter().for_each(|text| self.read(text));
    }

    /// `metactl` against all replicas.
    pub fn ctl(&self) -> Ctl {
        Ctl::new(&self.endpoints.join(","))
    }

    /// A REST client of dispatcher number `index`, from 0.
    pub fn rest(&self, index: usize) -> Rest {
        Rest::new(&self.dispatchers[index])
    }

    /// The cluster's directory: data in `NAME/`, logs in `NAME.log`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read(&mut self, printed: &str) {
        for line in printed.lines() {
            if let Some(list) = line.strip_prefix("endpoints=") {
                self.endpoints = split(list);
            } else if let Some(list) = line.strip_prefix("dispatchers=") {
                self.dispatchers = split(list);
            } else if let Some(rest) = line.strip_prefix("pid ")
                && let Some((name, pid)) = rest.split_once(' ')
            {
                self.pids.insert(name.into(), pid.trim().parse().expect("a process id"));
            }
        }
    }

    fn script_ok(&self, args: &[String]) -> String {
        let output = self.script(args);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "local-cluster.sh {args:?} failed ({}):\n{printed}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }

    fn script(&self, args: &[String]) -> Output {
        let bin = binaries::directory();
        Command::new(binaries::root().join("deploy/local-cluster.sh"))
            .args(args)
            .arg("--dir")
            .arg(&self.path)
            .env("METASTORE_BIN", bin)
            .env("CARGO_TARGET_DIR", bin.parent().expect("a profile folder lies in the target folder"))
            .output()
            .expect("local-cluster.sh can be started")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script(&["stop".into()]);
        if std::thread::panicking()
            && let Some(directory) = self.directory.take()
        {
            let path = directory.keep();
            eprintln!("the cluster's logs and data stay in {}; the ends of the logs:", path.display());
            for (name, end) in ends_of_logs(&path) {
                eprintln!("--- {name}\n{end}");
            }
        }
    }
}

/// How much of each log a failing test shows: elsewhere, say in a CI, nobody can look into the directory.
const LOG_LINES_SHOWN: usize = 12;

fn ends_of_logs(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
    let end = |entry: std::fs::DirEntry| {
        let text = std::fs::read(entry.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let skipped = text.lines().count().saturating_sub(LOG_LINES_SHOWN);
        let end: Vec<&str> = text.lines().skip(skipped).collect();
        (entry.file_name().to_string_lossy().into_owned(), end.join("\n"))
    };
    logs.map(end).collect()
}

fn split(list: &str) -> Vec<String> {
    list.split(',').filter(|s| !s.is_empty()).map(|s| s.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_each_log_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let lines: Vec<String> = (1..=100).map(|n| format!("line {n}")).collect();
        std::fs::write(directory.path().join("replica-1.log"), lines.join("\n")).unwrap();
        std::fs::write(directory.path().join("replica-1.toml"), "listen").unwrap();
        let ends = ends_of_logs(directory.path());
        assert_eq!(ends.keys().collect::<Vec<_>>(), ["replica-1.log"]);
        let end: Vec<&str> = ends["replica-1.log"].lines().collect();
        assert_eq!((end.len(), end[0], end[11]), (LOG_LINES_SHOWN, "line 89", "line 100"));
    }
}
