//! What a server node can be told.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use process_kit::{ByteSize, ConfigError};
use records::record::Role;
use tokio_util::sync::CancellationToken;

use crate::guard::logs::STREAM_LIMIT_BYTES;
use crate::guard::spec::{Isolation, Limits};
use crate::limits::{LAST_WRITES, SAY_STOPPING};

/// When a job that runs as a process counts as created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CreatedBy {
    /// Alive after 1 s, or exit 0 before.
    #[default]
    Started,
    /// The program creates the file `$JOB_CREATED_FILE`.
    Signal,
}

impl FromStr for CreatedBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "started" => Ok(Self::Started),
            "signal" => Ok(Self::Signal),
            other => Err(format!("engine.process.created = {other:?}: wants \"started\" or \"signal\"")),
        }
    }
}

process_kit::config! {
    /// What every process that hosts JobMasters can be told, whatever else it is.
    pub struct HostConfig {
        /// Directory of this node's packages, jobs and output. One process at a time.
        "work-dir" => work_dir: PathBuf = PathBuf::from("work"),
        /// Where the node API listens: packages between nodes, output of jobs. The next free port up to 8099 is
        /// taken if the default is in use.
        "listen.node" => listen_node: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8092)),
        /// HOST:PORT under which others reach the node API; empty = what it listens on.
        "advertise.node" => advertise_node: String = String::new(),
        /// Program that runs a JAR. "java" is looked for in JAVA_HOME, then on PATH.
        "engine.process.java" => java: String = "java".to_owned(),
        /// When a job counts as created: "started" (alive after 1 s, or exit 0 before) or "signal" (the program
        /// creates the file JOB_CREATED_FILE).
        "engine.process.created" => created: String = "started".to_owned(),
        /// Memory of a job: of all its processes in a control group where one can be made, else address space of each.
        "engine.process.limits.memory" => limit_memory: Option<ByteSize> = None,
        /// Processes and threads of a job in a control group where one can be made, else of the user that runs jobs.
        "engine.process.limits.processes" => limit_processes: Option<u64> = None,
        /// Open files of each process of a job.
        "engine.process.limits.open-files" => limit_open_files: Option<u64> = None,
        /// Bytes kept of each output stream of an attempt, half of it the beginning, half the end.
        "job.output.max-bytes" => output_max_bytes: ByteSize = ByteSize(STREAM_LIMIT_BYTES),
        /// How long a cancelled job may take to end by itself after SIGTERM.
        "job.cancel.grace" => cancel_grace: Duration = Duration::from_secs(10),
        /// How long a job may take to end by itself after SIGTERM when this process stops or is drained; then it is
        /// killed, and goes on elsewhere.
        "jobmaster.stop-timeout" => stop_timeout: Duration = Duration::from_secs(10),
        /// Renewal of the lease. A job dies if the lease was not renewed for node.lease less node.lease.margin.
        "node.keep-alive" => keep_alive: Duration = Duration::from_secs(3),
        /// How long before the end of the lease everything of this node's jobs is killed.
        "node.lease.margin" => lease_margin: Duration = Duration::from_secs(3),
        /// A package is refused if less than this would be left free on the disk.
        "icp.min-free" => min_free: ByteSize = ByteSize(256 << 20),
        /// Absolute directories from whose trees packages may be registered by copying (icp register --from DIR);
        /// empty = from none. What lies in a package's own place needs no entry.
        "icp.register-from" => register_from: Vec<String> = Vec::new(),
    }
}

impl HostConfig {
    /// How long the whole process may take to stop: its jobs, and what is to be said to the store before and after.
    pub fn stop_grace(&self) -> Duration {
        self.stop_timeout + SAY_STOPPING + LAST_WRITES * 2
    }
}

process_kit::config! {
    /// Configuration of a JobMaster process.
    pub struct JobmasterConfig {
        include { host: HostConfig }
        /// Name of this node, unique among dispatchers and JobMaster processes.
        "node.name" => node_name: String = "jobmaster-1".to_owned(),
        /// Client addresses of the metastore's replicas, HOST:PORT.
        "store.endpoints" => store_endpoints: Vec<String> = vec!["127.0.0.1:2379".to_owned()],
        /// How much parallelism this node takes; 0 = the cores.
        "node.slots" => slots: u32 = 0,
        /// Lease of this node: its jobs move to another node after so long without a renewal.
        "node.lease" => lease: Duration = Duration::from_secs(15),
        /// How long a finished job can be asked for.
        "job.retention" => job_retention: Duration = Duration::from_secs(7 * 24 * 3600),
        /// true: the node API may listen on other addresses than loopback, without TLS or authentication.
        "security.insecure" => insecure: bool = false,
    }
}

impl JobmasterConfig {
    /// As options of a node.
    pub fn node_options(&self) -> NodeOptions {
        NodeOptions {
            name: self.node_name.clone(),
            slots: self.slots,
            lease: self.lease,
            job_retention: self.job_retention,
            insecure: self.insecure,
            host: self.host.clone(),
            ..NodeOptions::default()
        }
    }
}

/// A server node: what its process is told, and what it is besides.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Name in the cluster.
    pub name: String,
    /// How much parallelism it takes; 0 = the cores.
    pub slots: u32,
    /// Time to live of its lease.
    pub lease: Duration,
    /// How long a finished job can be asked for.
    pub job_retention: Duration,
    /// Whether other addresses than loopback are meant.
    pub insecure: bool,
    /// The rest of the configuration.
    pub host: HostConfig,
    /// What it is; a dispatcher that hosts JobMasters is both.
    pub roles: Vec<Role>,
    /// `HOST:PORT` of the REST front, for a dispatcher.
    pub rest_address: Option<String>,
    /// `jobmanager.jobmaster.single.enable`, for a dispatcher.
    pub single_enable: Option<bool>,
    /// The guard and its first arguments; empty = this very program with `guard`.
    pub guard: Vec<OsString>,
    /// The strongest isolation to try.
    pub isolation: Isolation,
    /// Cancelled once a stopping process has answered what came before: until then it keeps its registration, for a
    /// bounded time. A node alone answers nobody under its registration.
    pub drained: CancellationToken,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            name: "jobmaster-1".into(),
            slots: 0,
            lease: Duration::from_secs(15),
            job_retention: Duration::from_secs(7 * 24 * 3600),
            insecure: false,
            host: HostConfig::default(),
            roles: vec![Role::Jobmaster],
            rest_address: None,
            single_enable: None,
            guard: Vec::new(),
            isolation: Isolation::default(),
            drained: answered(),
        }
    }
}

fn answered() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

impl NodeOptions {
    /// `HOST:PORT` under which others reach the node API that listens on `address`.
    pub fn advertised(&self, address: SocketAddr) -> String {
        match self.host.advertise_node.as_str() {
            "" => address.to_string(),
            advertised => advertised.to_owned(),
        }
    }

    /// Slots, with the default filled in.
    pub fn slots(&self) -> u32 {
        match self.slots {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            slots => slots,
        }
    }

    /// When a process counts as created.
    pub fn created_by(&self) -> Result<CreatedBy, ConfigError> {
        self.host.created.parse().map_err(|why: String| ConfigError::invalid("engine.process.created", why))
    }

    /// Limits of a job's processes.
    pub fn limits(&self) -> Limits {
        Limits {
            memory_bytes: self.host.limit_memory.map(|bytes| bytes.0),
            processes: self.host.limit_processes,
            open_files: self.host.limit_open_files,
        }
    }

    /// Refuses what does not go together.
    pub fn check(&self) -> Result<(), ConfigError> {
        records::names::check_node(&self.name)
            .map_err(|refusal| ConfigError::invalid("node.name", refusal.text))?;
        self.created_by()?;
        // One renewal may be lost without killing every job; the margin must cover the error of the clocks.
        let needed = self.host.keep_alive * 2 + self.host.lease_margin;
        if self.lease <= needed {
            return Err(ConfigError::invalid(
                "node.lease",
                format!(
                    "{:?} is too short: it must be more than 2 x node.keep-alive + node.lease.margin = {needed:?}",
                    self.lease
                ),
            ));
        }
        if self.host.lease_margin < self.lease / 50 {
            return Err(ConfigError::invalid(
                "node.lease.margin",
                format!("clocks may differ by 1 %: it must be at least {:?}", self.lease / 50),
            ));
        }
        if self.host.work_dir.to_string_lossy().contains(':') {
            return Err(ConfigError::invalid("work-dir", "a class path cannot hold a `:`"));
        }
        if let Some(relative) = self.host.register_from.iter().find(|dir| !dir.starts_with('/')) {
            let text = format!("{relative:?} is not absolute: name each directory from the root on");
            return Err(ConfigError::invalid("icp.register-from", text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_and_a_broken_inequality_is_refused() {
        let good = NodeOptions::default();
        good.check().unwrap();
        let mut bad = good.clone();
        bad.lease = Duration::from_secs(9);
        assert!(bad.check().unwrap_err().to_string().contains("node.lease"));
        let mut bad = good.clone();
        bad.host.lease_margin = Duration::from_millis(100);
        assert!(bad.check().unwrap_err().to_string().contains("node.lease.margin"));
        let mut bad = good.clone();
        bad.host.register_from = vec!["/opt/libs".into(), "libs".into()];
        let refused = bad.check().unwrap_err().to_string();
        assert!(refused.contains("icp.register-from") && refused.contains("\"libs\""), "{refused}");
        let mut bad = good;
        bad.host.created = "never".into();
        assert!(bad.check().is_err());
    }
}
