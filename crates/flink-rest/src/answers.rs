//! The bodies of Flink's answers, field for field, in Flink's order.

use serde::Serialize;
use serde_json::{Value, json};

/// The states of a Flink job, in the order of Flink's enum.
pub const JOB_STATES: [&str; 11] = [
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
];

/// `POST /jars/upload`.
#[derive(Debug, Clone, Serialize)]
pub struct JarUploaded {
    /// A path whose last part is the jar id.
    pub filename: String,
    /// Always `success`.
    pub status: &'static str,
}

impl JarUploaded {
    /// Of this jar id.
    pub fn of(jar_id: &str) -> Self {
        Self { filename: format!("{UPLOAD_DIRECTORY}/{jar_id}"), status: "success" }
    }
}

/// The directory that answers name; JARs live in the package store, clients take the part behind it.
pub const UPLOAD_DIRECTORY: &str = "/flink-web-upload";

/// `GET /jars`.
#[derive(Debug, Clone, Serialize)]
pub struct JarList {
    /// Where this server is reached.
    pub address: String,
    /// Newest first.
    pub files: Vec<JarFile>,
}

/// One JAR of [`JarList`].
#[derive(Debug, Clone, Serialize)]
pub struct JarFile {
    /// The jar id.
    pub id: String,
    /// The uploaded name.
    pub name: String,
    /// Milliseconds since the epoch.
    pub uploaded: u64,
    /// Its entry classes.
    pub entry: Vec<JarEntry>,
}

/// One entry class.
#[derive(Debug, Clone, Serialize)]
pub struct JarEntry {
    /// The class.
    pub name: String,
    /// Always null here.
    pub description: Option<String>,
}

/// `POST /jars/:jarid/run`.
#[derive(Debug, Clone, Serialize)]
pub struct JarRun {
    /// The job.
    pub jobid: String,
}

/// `GET /config`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config {
    /// Milliseconds between a page's refreshes.
    pub refresh_interval: u64,
    /// The server's zone.
    pub timezone_name: &'static str,
    /// Its offset in milliseconds.
    pub timezone_offset: i64,
    /// Version of the server.
    pub flink_version: String,
    /// Revision of the server.
    pub flink_revision: String,
    /// What a page may offer.
    pub features: Features,
}

/// Part of [`Config`].
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Features {
    /// Upload and run.
    pub web_submit: bool,
    /// Cancel.
    pub web_cancel: bool,
    /// Rescale.
    pub web_rescale: bool,
    /// False: not a history server.
    pub web_history: bool,
}

/// `GET /overview`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Overview {
    /// Processes that run jobs.
    pub taskmanagers: usize,
    /// All slots.
    pub slots_total: u64,
    /// Free slots.
    pub slots_available: u64,
    /// Jobs that are not terminal.
    pub jobs_running: usize,
    /// Finished jobs.
    pub jobs_finished: usize,
    /// Cancelled jobs.
    pub jobs_cancelled: usize,
    /// Failed jobs.
    pub jobs_failed: usize,
    /// Version of the server.
    pub flink_version: String,
    /// Commit of the server.
    pub flink_commit: String,
}

/// What the job answers are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    /// Job id.
    pub id: String,
    /// Name.
    pub name: String,
    /// A name of [`JOB_STATES`].
    pub state: String,
    /// Milliseconds since the epoch.
    pub start_ms: u64,
    /// Milliseconds since the epoch, once terminal.
    pub end_ms: Option<u64>,
    /// Last change, milliseconds since the epoch.
    pub modified_ms: u64,
    /// When the job entered each state, as far as known.
    pub timestamps: Vec<(String, u64)>,
    /// Parallelism.
    pub parallelism: u32,
}

impl JobFacts {
    fn duration_ms(&self, now_ms: u64) -> u64 {
        self.end_ms.unwrap_or(now_ms).saturating_sub(self.start_ms)
    }

    fn end_or_minus_one(&self) -> Value {
        self.end_ms.map_or(json!(-1), |ms| json!(ms))
    }

    /// Element of `GET /jobs`.
    pub fn id_with_status(&self) -> Value {
        json!({ "id": self.id, "status": self.state })
    }

    /// Element of `GET /jobs/overview`. The job's one process counts as its one task.
    pub fn overview(&self, now_ms: u64) -> Value {
        json!({
            "jid": self.id,
            "name": self.name,
            "jobType": "STREAMING",
            "schedulerType": "Default",
            "start-time": self.start_ms,
            "end-time": self.end_or_minus_one(),
            "duration": self.duration_ms(now_ms),
            "state": self.state,
            "last-modification": self.modified_ms,
            "tasks": self.tasks(),
            "pending-operators": 0,
        })
    }

    /// `GET /jobs/:jobid`. There are no vertices: the job is a process, not a graph.
    pub fn details(&self, now_ms: u64) -> Value {
        let stamp = |state: &str| {
            let of_state = self.timestamps.iter().find(|(name, _)| name == state);
            of_state.map_or(0, |(_, ms)| *ms)
        };
        let timestamps: serde_json::Map<String, Value> =
            JOB_STATES.iter().map(|state| ((*state).to_owned(), json!(stamp(state)))).collect();
        let no_vertices: serde_json::Map<String, Value> =
            VERTEX_STATES.iter().map(|state| ((*state).to_owned(), json!(0))).collect();
        json!({
            "jid": self.id,
            "name": self.name,
            "isStoppable": false,
            "state": self.state,
            "job-type": "STREAMING",
            "schedulerType": "Default",
            "start-time": self.start_ms,
            "end-time": self.end_or_minus_one(),
            "duration": self.duration_ms(now_ms),
            "maxParallelism": -1,
            "now": now_ms,
            "timestamps": timestamps,
            "vertices": [],
            "status-counts": no_vertices,
            "plan": self.plan(),
            "pending-operators": 0,
        })
    }

    /// The plan of the job, which has no nodes: the job is a process, not a graph.
    pub fn plan(&self) -> Value {
        json!({ "jid": self.id, "name": self.name, "type": "STREAMING", "nodes": [] })
    }

    fn tasks(&self) -> Value {
        let counted = match self.state.as_str() {
            "RUNNING" | "FAILING" => "running",
            "CANCELLING" => "canceling",
            "CANCELED" => "canceled",
            "FINISHED" => "finished",
            "FAILED" => "failed",
            "INITIALIZING" => "initializing",
            "RECONCILING" => "reconciling",
            _ => "created",
        };
        let mut tasks: serde_json::Map<String, Value> = TASK_COUNTS
            .iter()
            .map(|name| ((*name).to_owned(), json!(usize::from(*name == counted))))
            .collect();
        tasks.insert("total".to_owned(), json!(1));
        Value::Object(tasks)
    }
}

const TASK_COUNTS: [&str; 10] = [
    "running",
    "canceling",
    "canceled",
    "created",
    "scheduled",
    "deploying",
    "reconciling",
    "finished",
    "initializing",
    "failed",
];

const VERTEX_STATES: [&str; 10] = [
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
];

/// Whether an asynchronous operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueStatus {
    /// It goes on.
    InProgress,
    /// It ended, well or not.
    Completed,
}

impl QueueStatus {
    /// `{"id": ...}`.
    pub fn to_json(self) -> Value {
        json!({ "id": match self { Self::InProgress => "IN_PROGRESS", Self::Completed => "COMPLETED" } })
    }
}

/// `{"request-id": ...}`, the answer of every trigger.
pub fn trigger_response(id: &str) -> Value {
    json!({ "request-id": id })
}

/// A failure as Flink's asynchronous results show it.
pub fn failure_cause(class: &str, stack_trace: &str) -> Value {
    json!({ "failure-cause": { "class": class, "stack-trace": stack_trace } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_job_has_no_end() {
        let job = JobFacts {
            id: "a".repeat(32),
            name: "hello".to_owned(),
            state: "RUNNING".to_owned(),
            start_ms: 1_000,
            end_ms: None,
            modified_ms: 1_500,
            timestamps: vec![("RUNNING".to_owned(), 1_500)],
            parallelism: 1,
        };
        let overview = job.overview(3_000);
        assert_eq!(overview["end-time"], -1);
        assert_eq!(overview["duration"], 2_000);
        assert_eq!(overview["tasks"]["running"], 1);
        let details = job.details(3_000);
        assert_eq!(details["timestamps"]["RUNNING"], 1_500);
        assert_eq!(details["timestamps"]["FINISHED"], 0);
    }
}
