//! `/jobs/:jobid/checkpoints` of a job that makes none, as Flink answers for a streaming job without checkpointing.

use serde_json::{Value, json};

/// The answer: nothing counted, nothing measured, nothing remembered.
pub fn none() -> Value {
    let not_measured = summary(&json!("NaN"));
    json!({
        "counts": { "restored": 0, "total": 0, "in_progress": 0, "completed": 0, "failed": 0 },
        "summary": {
            "checkpointed_size": not_measured,
            "state_size": not_measured,
            "end_to_end_duration": not_measured,
            "alignment_buffered": summary(&json!(0.0)),
            "processed_data": not_measured,
            "persisted_data": not_measured,
        },
        "latest": { "completed": null, "savepoint": null, "failed": null, "restored": null },
        "history": [],
    })
}

fn summary(quantile: &Value) -> Value {
    json!({
        "min": 0, "max": 0, "avg": 0,
        "p50": quantile, "p90": quantile, "p95": quantile, "p99": quantile, "p999": quantile,
    })
}
