//! What is answered otherwise than Flink did, and why. Anything else that differs fails the replay; an entry that names no
//! case, or changes nothing, fails too. docs/flink-compat.md says the same to users.

use super::recordings::{Case, VERSIONS, cases};

const NEEDS_FLINK: &str = "only a Flink cluster can do it";
const NO_VERTICES: &str = "a job is a process, not a graph";
const OWN_JOBS: &str = "other jobs are known here";

/// Cases with another status: name, ours, why. Their bodies are only checked for their form.
const STATUS: &[(&str, u16, &str)] = &[
    ("get_run-async", 200, "the list of runs, which Flink does not have"),
    ("get_", 404, "no page"),
    ("get_index.html", 404, "no page"),
    ("jar_plan_get", 501, NEEDS_FLINK),
    ("jar_plan_post_body", 501, NEEDS_FLINK),
    ("jar_plan_main_throws", 501, NEEDS_FLINK),
    ("run_entryClass_without_main", 400, "the class is looked at by the JVM that runs it"),
    ("run_b_flinkConfiguration_bad_value", 400, "refused before anything is stored"),
    ("run_two_executes_with_jobId", 200, "a run is one process"),
    ("run_b_savepointPath_missing", 200, "only the job can read its savepoint"),
    ("run_q_savepointPath_missing", 200, "only the job can read its savepoint"),
    ("run_restore_incompatible_savepoint", 200, "only the job can read its savepoint"),
    ("job_RUNNING_jobmanager_environment", 501, NEEDS_FLINK),
    ("job_RUNNING_resource-requirements", 501, NEEDS_FLINK),
    ("vertex_taskmanagers", 404, NO_VERTICES),
    ("vertex_subtasktimes", 404, NO_VERTICES),
    ("vertex_backpressure", 404, NO_VERTICES),
    ("vertex_watermarks", 404, NO_VERTICES),
    ("vertex_accumulators", 404, NO_VERTICES),
    ("vertex_metrics", 404, NO_VERTICES),
    ("savepoint_trigger_with_triggerId", 501, NEEDS_FLINK),
    ("savepoint_status_at_once", 501, NEEDS_FLINK),
    ("savepoint_status_completed", 501, NEEDS_FLINK),
    ("savepoint_status_completed_read_again", 501, NEEDS_FLINK),
    ("savepoint_trigger_same_triggerId_different_body", 501, NEEDS_FLINK),
    ("savepoint_status_unknown_trigger", 501, NEEDS_FLINK),
    ("savepoint_status_other_job", 501, NEEDS_FLINK),
    ("savepoint_trigger_bad_triggerId", 501, NEEDS_FLINK),
    ("savepoint_unknown_job", 501, NEEDS_FLINK),
    ("savepoint_finished_job", 501, NEEDS_FLINK),
    ("savepoint_finished_job_status", 501, NEEDS_FLINK),
    ("savepoint_unknown_field", 501, NEEDS_FLINK),
    ("savepoint_cancel-job_status", 501, NEEDS_FLINK),
    ("savepoint_disposal_status", 501, NEEDS_FLINK),
    ("savepoint_disposal_empty", 501, NEEDS_FLINK),
    ("checkpoint_trigger", 501, NEEDS_FLINK),
    ("checkpoint_trigger_status", 501, NEEDS_FLINK),
    ("stop_trigger", 501, NEEDS_FLINK),
    ("stop_trigger_again", 501, NEEDS_FLINK),
    ("stop_finished_job", 501, NEEDS_FLINK),
    ("post_jobs_bad_jobgraph", 501, NEEDS_FLINK),
];

/// Fields that are not compared: the case, the fields wherever they are, why.
const FIELDS: &[(&str, &[&str], &str)] = &[
    ("get_jars_empty", &["files"], "the JARs are uploaded before the replay"),
    ("get_jars_", &["files"], "the JARs are uploaded before the replay"),
    ("get_jobmanager_environment", &["options", "classpath"], "there is no JVM"),
    ("get_jobmanager_logs", &["logs"], "the log is on standard error"),
    ("job_RUNNING_config", &["execution-mode"], "a graph has one; 2.3 does not show it either"),
    ("job_RUNNING_plan", &["nodes"], NO_VERTICES),
    ("job_RUNNING_detail", &["vertices", "nodes"], NO_VERTICES),
    ("job_FAILED_detail", &["vertices", "nodes"], NO_VERTICES),
    ("job_FINISHED_detail", &["vertices", "nodes"], NO_VERTICES),
    ("job_CANCELED_detail", &["vertices", "nodes"], NO_VERTICES),
    (
        "job_FAILED_exceptions",
        &["all-exceptions", "concurrentExceptions", "taskManagerId"],
        "no task fails on its own: the node is that of the whole job",
    ),
    ("job_FAILED_execution-result", &["serialized-throwable"], "there is no Java object"),
    ("job_restored_checkpoints", &["restored"], "only the job can read its savepoint"),
    ("stop_job_status", &["status"], NEEDS_FLINK),
    ("jobs", &["status"], OWN_JOBS),
    ("jobs_overview", &["state"], OWN_JOBS),
    ("jobs_overview_end", &["state"], OWN_JOBS),
];

/// Cases whose error is in other words.
const WORDS: &[(&str, &str)] = &[("run_not_a_jar", "the missing entry class is named, not the archive")];

/// The status that is to be answered instead of the recorded one.
pub fn status_of(case: &Case) -> Option<u16> {
    STATUS.iter().find(|(name, ..)| *name == case.name).map(|(_, status, _)| *status)
}

/// The fields that are not compared.
pub fn fields_left_out(case: &Case) -> &'static [&'static str] {
    FIELDS.iter().find(|(name, ..)| *name == case.name).map_or(&[], |(_, fields, _)| *fields)
}

/// Whether the error's words may be others.
pub fn has_other_words(case: &Case) -> bool {
    WORDS.iter().any(|(name, _)| *name == case.name)
}

#[test]
fn every_difference_is_one_of_a_case() {
    let all: Vec<Case> = VERSIONS.iter().flat_map(|version| cases(version)).collect();
    let named = |name: &str| all.iter().filter(|case| case.name == name).collect::<Vec<_>>();
    for (name, status, why) in STATUS {
        let cases = named(name);
        assert!(!cases.is_empty() && !why.is_empty(), "{name}");
        assert!(cases.iter().any(|case| case.status != *status), "{name}: Flink answers {status} too");
    }
    for (name, fields, why) in FIELDS {
        let has = |field: &&str| {
            let quoted = format!("\"{field}\":");
            named(name).iter().any(|case| case.answer.to_string().contains(&quoted))
        };
        assert!(fields.iter().all(has) && !why.is_empty(), "{name}: {fields:?}");
    }
    for (name, why) in WORDS {
        assert!(!named(name).is_empty() && !why.is_empty(), "{name}");
    }
}
