//! What a dispatcher can be told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use process_kit::ByteSize;
use records::Refusal;
use records::jobs::{STRATEGY_TYPE, restart_strategy};

process_kit::config! {
    /// What becomes of jobs whose own configuration leaves it open; resolved when a run is admitted.
    pub struct RestartDefaults {
        /// What happens when main() fails after it had made a job: "none" (main() is started at most once, whatever is
        /// lost), "on-container-loss" (the job fails; it moves if its node is lost), "fixed-delay" or
        /// "exponential-delay" (it is started again; it moves if its node is lost).
        "restart-strategy.type" => strategy: String = "on-container-loss".to_owned(),
        /// Restarts over the life of the job.
        "restart-strategy.fixed-delay.attempts" => fixed_attempts: String = "1".to_owned(),
        /// Pause before each.
        "restart-strategy.fixed-delay.delay" => fixed_delay: String = "1 s".to_owned(),
        /// The first pause.
        "restart-strategy.exponential-delay.initial-backoff" => initial_backoff: String = "1 s".to_owned(),
        /// The longest pause.
        "restart-strategy.exponential-delay.max-backoff" => max_backoff: String = "1 min".to_owned(),
        /// Each pause is so many times the one before.
        "restart-strategy.exponential-delay.backoff-multiplier" => multiplier: String = "1.5".to_owned(),
        /// An attempt that ran so long was well: failures are counted anew.
        "restart-strategy.exponential-delay.reset-backoff-threshold" => reset_threshold: String = "1 h".to_owned(),
        /// A pause is longer or shorter by up to this part of it, so that jobs that failed together do not start
        /// together.
        "restart-strategy.exponential-delay.jitter-factor" => jitter: String = "0.1".to_owned(),
        /// Restarts in a row before the job fails, or "infinite".
        "restart-strategy.exponential-delay.attempts-before-reset-backoff" => attempts_in_a_row: String =
            "infinite".to_owned(),
    }
}

impl RestartDefaults {
    /// As settings, for what a job's own configuration leaves open.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let fixed = "restart-strategy.fixed-delay";
        let growing = "restart-strategy.exponential-delay";
        let all = [
            (STRATEGY_TYPE.to_owned(), &self.strategy),
            (format!("{fixed}.attempts"), &self.fixed_attempts),
            (format!("{fixed}.delay"), &self.fixed_delay),
            (format!("{growing}.initial-backoff"), &self.initial_backoff),
            (format!("{growing}.max-backoff"), &self.max_backoff),
            (format!("{growing}.backoff-multiplier"), &self.multiplier),
            (format!("{growing}.reset-backoff-threshold"), &self.reset_threshold),
            (format!("{growing}.jitter-factor"), &self.jitter),
            (format!("{growing}.attempts-before-reset-backoff"), &self.attempts_in_a_row),
        ];
        all.into_iter().map(|(key, value)| (key, value.clone())).collect()
    }

    /// Refuses defaults that no job could start with.
    pub fn check(&self) -> Result<(), Refusal> {
        let settings = self.settings();
        for strategy in ["fixed-delay", "exponential-delay", self.strategy.as_str()] {
            let named = BTreeMap::from([(STRATEGY_TYPE.to_owned(), strategy.to_owned())]);
            restart_strategy(&named, &settings)?;
        }
        Ok(())
    }
}

process_kit::config! {
    /// Configuration of a dispatcher.
    pub struct DispatcherOptions {
        include { restart: RestartDefaults }
        /// What becomes of a job whose node cannot reach the metastore for longer than its lease: "kill" (it is killed
        /// before the lease runs out, and moves), or "keep" (it runs on, and moves only when its node is back and says
        /// that nothing of it runs any more). For jobs whose own configuration leaves it open.
        "on-lost-store" => on_lost_store: String = "kill".to_owned(),
        /// Name of this dispatcher, unique among dispatchers and JobMaster processes.
        "node.name" => node_name: String = "dispatcher-1".to_owned(),
        /// Client addresses of the metastore's replicas, HOST:PORT.
        "store.endpoints" => store_endpoints: Vec<String> = vec!["127.0.0.1:2379".to_owned()],
        /// Where the REST front listens.
        "listen.rest" => listen_rest: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8081)),
        /// HOST:PORT under which others reach the REST front; empty = what it listens on.
        "advertise.rest" => advertise_rest: String = String::new(),
        /// true: jobs run in JobMaster processes of their own, this process only places them.
        /// false: this process runs JobMasters itself. Use one value on all dispatchers.
        "jobmanager.jobmaster.single.enable" => single_enable: bool = false,
        /// How much parallelism the JobMasters of this process take while single.enable is false; 0 = the cores.
        "dispatcher.slots" => slots: u32 = 0,
        /// false turns upload, run and delete of JARs and runs off (403).
        "web.submit.enable" => web_submit: bool = true,
        /// Largest JAR taken.
        "web.upload.max-bytes" => upload_max_bytes: ByteSize = ByteSize(1 << 30),
        /// Where uploads wait for a node to take them; empty = below the system's temporary directory.
        "web.tmpdir" => web_tmpdir: PathBuf = PathBuf::new(),
        /// How long a dead node's packages and a dead coordinator's operation wait before they are given up.
        "icp.grace" => icp_grace: Duration = Duration::from_secs(60),
        /// Lease of this process: what it drives is taken over by another dispatcher after so long.
        "node.lease" => lease: Duration = Duration::from_secs(15),
        /// How long a completed run can be asked for.
        "run.retention" => run_retention: Duration = Duration::from_secs(24 * 3600),
        /// How long the triggerId of a completed or deleted run is remembered; not shorter than run.retention.
        "run.token-retention" => token_retention: Duration = Duration::from_secs(7 * 24 * 3600),
        /// How long a finished job can be asked for.
        "job.retention" => job_retention: Duration = Duration::from_secs(7 * 24 * 3600),
        /// Runs in progress, of all dispatchers together, at which no further one is taken (429); 0 = no limit.
        "run.queue.max" => run_queue_max: u64 = 20_000,
        /// Runs that this dispatcher takes at once, from their first byte until they are stored; beyond, 503.
        "run.submit.concurrent" => run_submit_concurrent: u32 = 256,
        /// Parallelism of a job whose request states none.
        "parallelism.default" => parallelism: u32 = 1,
        /// true: the REST front may listen on other addresses than loopback, without TLS or authentication.
        "security.insecure" => insecure: bool = false,
    }
}

impl DispatcherOptions {
    /// The spool directory.
    pub fn spool_directory(&self) -> PathBuf {
        if self.web_tmpdir.as_os_str().is_empty() {
            std::env::temp_dir().join(format!("metastore-upload-{}", self.node_name))
        } else {
            self.web_tmpdir.clone()
        }
    }

    /// Refuses values that do not go together.
    pub fn check(&self) -> Result<(), String> {
        if self.parallelism == 0 {
            return Err("parallelism.default = 0: must be at least 1".to_owned());
        }
        if self.run_submit_concurrent == 0 {
            return Err(
                "run.submit.concurrent = 0: no run could be taken; web.submit.enable = false says so"
                    .to_owned(),
            );
        }
        // Zero is for ever.
        let forgets = !self.token_retention.is_zero();
        if forgets && (self.run_retention.is_zero() || self.token_retention < self.run_retention) {
            return Err("run.token-retention is shorter than run.retention: a triggerId would be forgotten before its \
                        run"
            .to_owned());
        }
        Ok(())
    }

    /// Slots of the JobMasters hosted here.
    pub fn hosted_slots(&self) -> u32 {
        match self.slots {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            slots => slots,
        }
    }
}
