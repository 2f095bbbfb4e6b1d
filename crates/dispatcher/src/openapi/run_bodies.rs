//! The bodies of `/run-async` as the description tells of them.

use serde::Serialize;
use utoipa::ToSchema;

/// What is stated about a run, as JSON, in the query, or as fields of a form; the JSON counts where two state the same.
/// In query and form a list is JSON or separated by commas, an object is JSON. Flink's other names `entry-class`,
/// `program-args` (as `programArgs`) and `programArg` (a list separated by commas) are taken too.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRequest {
    /// Names the run, so that the request can be sent again: 1 to 64 visible ASCII characters. Also as the header
    /// `Idempotency-Key`. Made by the server if absent.
    #[schema(required = false)]
    pub trigger_id: Option<String>,
    /// A JAR that was uploaded before; excludes one that is sent along.
    #[schema(required = false)]
    pub jar_id: Option<String>,
    /// The class with main(), if the JAR's manifest names none.
    #[schema(required = false)]
    pub entry_class: Option<String>,
    /// Arguments of main(), split as a shell does.
    #[schema(required = false)]
    pub program_args: Option<String>,
    /// Arguments of main(), one by one; excludes `programArgs`.
    #[schema(required = false)]
    pub program_args_list: Option<Vec<String>>,
    /// Slots that the job takes.
    #[schema(required = false)]
    pub parallelism: Option<i32>,
    /// 32 hex digits; made by the server if absent.
    #[schema(required = false)]
    pub job_id: Option<String>,
    /// Further code packages for the class path: `NAME`, `NAME:VERSION`.
    #[schema(required = false)]
    pub packages: Option<Vec<String>>,
    /// The same by Flink's name for a class path; both at once must be equal.
    #[schema(required = false)]
    pub class_paths: Option<Vec<String>>,
    /// Where the job restores its state from.
    #[schema(required = false)]
    pub savepoint_path: Option<String>,
    /// Whether state that no operator takes may be left out.
    #[schema(required = false)]
    pub allow_non_restored_state: Option<bool>,
    /// CLAIM, NO_CLAIM or LEGACY.
    #[schema(required = false)]
    pub restore_mode: Option<String>,
    /// The same by its newer name.
    #[schema(required = false)]
    pub claim_mode: Option<String>,
    /// Further configuration of the job.
    #[schema(required = false)]
    pub flink_configuration: Option<std::collections::BTreeMap<String, String>>,
}

/// A run, and the JAR it runs: a file part of any name. The JSON is the part `request`; parts named as its fields count
/// too.
#[derive(Debug, ToSchema)]
pub struct RunForm {
    /// The JAR.
    #[schema(value_type = String, content_media_type = "application/java-archive", required = false)]
    pub jarfile: Vec<u8>,
    /// The rest.
    #[schema(required = false)]
    pub request: Option<RunRequest>,
}

/// A run that is stored.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub struct Triggered {
    /// Its trigger id.
    pub request_id: String,
}

/// One run of the list.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub struct RunRow {
    /// Its trigger id.
    pub request_id: String,
    /// How far it is.
    pub status: QueueStatus,
}

/// How far a run is, as Flink says it.
#[derive(Debug, ToSchema)]
pub struct QueueStatus {
    /// IN_PROGRESS or COMPLETED.
    pub id: String,
}

/// A run.
#[derive(Debug, ToSchema)]
pub struct RunStatus {
    /// How far it is.
    pub status: QueueStatus,
    /// Its outcome once it is COMPLETED: `{"jobid": ..}`, or `{"failure-cause": {"class": .., "stack-trace": ..}}`.
    pub operation: Option<serde_json::Value>,
    /// More about it.
    pub run: RunFacts,
}

/// A run that was completed and whose details are gone.
#[derive(Debug, ToSchema)]
pub struct RunGone {
    /// The outcome and its time in words.
    pub errors: Vec<String>,
    /// COMPLETED.
    pub status: QueueStatus,
    /// Its outcome, as before.
    pub operation: serde_json::Value,
    /// `phase`, `jobid` and `completed-at` are left.
    pub run: RunFacts,
}

/// More about a run than Flink would say.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub struct RunFacts {
    /// ACCEPTED, STAGING, LAUNCHING, SUBMITTED, COMPLETED.
    pub phase: String,
    /// Its job.
    pub jobid: String,
    /// Milliseconds since the epoch.
    pub completed_at: Option<u64>,
    /// The store's revision that all of it is of, for the next `wait`.
    #[schema(required = false)]
    pub revision: Option<i64>,
    /// The dispatcher that drives it.
    #[schema(required = false)]
    pub owner: Option<String>,
    /// The job's state in Flink's words.
    #[schema(required = false)]
    pub job_state: Option<String>,
    /// Where the job runs.
    #[schema(required = false)]
    pub job_node: Option<String>,
    /// The job's epoch.
    #[schema(required = false)]
    pub job_epoch: Option<i64>,
    /// How often main() was started.
    #[schema(required = false)]
    pub attempts: Option<u32>,
    /// What it waits for.
    #[schema(required = false)]
    pub waiting: Option<String>,
    /// Milliseconds since the epoch.
    #[schema(required = false)]
    pub accepted_at: Option<u64>,
    /// The dispatcher that took it.
    #[schema(required = false)]
    pub accepted_by: Option<String>,
    /// The package with its main(), `NAME:VERSION`.
    #[schema(required = false)]
    pub program: Option<String>,
    /// The packages on its class path as they were resolved when it was taken, `NAME:VERSION`.
    #[schema(required = false)]
    pub packages: Option<Vec<String>>,
    /// Paths of the output of the last attempt: `stdout`, `stderr`.
    #[schema(required = false)]
    pub output: Option<serde_json::Value>,
}

/// A delete that goes on.
#[derive(Debug, ToSchema)]
pub struct Cancelling {
    /// `cancelling`.
    pub status: String,
    /// The job.
    pub jobid: String,
}
