//! The proof: real processes under faults. What the scenarios share.
//!
//! Jobs here are shell scripts (`testkit::fake_java`), so that no JVM is needed; `deploy/demo.sh` runs a real one.

pub mod checkers;
pub mod controls;
pub mod history;
pub mod invariants;
pub mod rounds;
pub mod sim;
pub mod strike;
pub mod workload;

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Cluster, ClusterOptions, Rest, eventually_async};

/// Longest wait for something that a fault delays: an election, a lease that runs out, a job that moves.
pub const RECOVERY: Duration = Duration::from_secs(60);

/// A cluster whose `java` is the shell script of `testkit::fake_java`.
pub struct JobCluster {
    /// The processes.
    pub cluster: Cluster,
    /// Folder for the script and for files that jobs write.
    pub scratch: tempfile::TempDir,
}

impl JobCluster {
    /// Starts it; `configure` may add configuration.
    pub fn start(
        replicas: usize,
        dispatchers: usize,
        jobmasters: usize,
        configure: impl FnOnce(ClusterOptions) -> ClusterOptions,
    ) -> Self {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let java = testkit::fake_java::write(scratch.path());
        let options = ClusterOptions::new(replicas, dispatchers, jobmasters)
            .set("engine.process.java", java.display().to_string());
        Self { cluster: Cluster::start(&configure(options)), scratch }
    }

    /// Uploads a JAR that the script does not look into; its id.
    pub async fn upload(&self) -> String {
        self.cluster.rest(0).upload("app.jar", b"PK\x05\x06 stands in for a jar".to_vec()).await
    }

    /// The lines that `Once` and `OnceForever` jobs have written, `JOBID ATTEMPT` each.
    pub fn starts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.starts_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The file they write to.
    pub fn starts_file(&self) -> String {
        self.scratch.path().join("starts").display().to_string()
    }
}

/// The body of a `POST /run-async`.
pub fn run_request(jar: &str, trigger: &str, class: &str, args: &[&str]) -> Value {
    json!({"jarId": jar, "triggerId": trigger, "entryClass": class, "programArgsList": args, "parallelism": 1})
}

/// Waits until the run is COMPLETED; its job id. A failure-cause fails the test.
pub async fn job_of(rest: &Rest, trigger: &str) -> String {
    let path = format!("/run-async/{trigger}");
    eventually_async(RECOVERY, &format!("run {trigger} completes"), || async {
        let (status, body) = rest.get(&path).await.map_err(|e| e.to_string())?;
        if status != 200 || body["status"]["id"] != "COMPLETED" {
            return Err(format!("{status} {body}"));
        }
        match body["operation"]["jobid"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => panic!("run {trigger} failed: {body}"),
        }
    })
    .await
}

/// Waits until the job is in `state`.
pub async fn job_reaches(rest: &Rest, job: &str, state: &str) {
    let path = format!("/jobs/{job}/status");
    eventually_async(RECOVERY, &format!("job {job} is {state}"), || async {
        let (status, body) = rest.get(&path).await.map_err(|e| e.to_string())?;
        if status == 200 && body["status"] == state { Ok(()) } else { Err(format!("{status} {body}")) }
    })
    .await;
}

/// The ids in `GET /jobs`.
pub async fn job_ids(rest: &Rest) -> Vec<String> {
    let body = rest.get_ok("/jobs").await;
    let jobs = body["jobs"].as_array().unwrap_or_else(|| panic!("no jobs in {body}"));
    jobs.iter().filter_map(|job| job["id"].as_str()).map(str::to_owned).collect()
}
