//! `/jobs/:jobid/exceptions`: what a job failed of, in the fields of 1.20 and of 2.3, which is the history alone.

use serde_json::{Value, json};

/// How many failures are shown if nobody says how many.
pub const DEFAULT_EXCEPTIONS: usize = 20;

/// A failure of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFailure {
    /// Its class.
    pub class: String,
    /// Its text, possibly of several lines.
    pub text: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The node that ran the job, as `/taskmanagers` names it.
    pub node: Option<String>,
}

/// What is known of a job's failures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFailures {
    /// Newest first.
    pub known: Vec<JobFailure>,
    /// True if there were more than these.
    pub more: bool,
}

impl JobFailures {
    /// The answer, with at most so many of them. No task failed on its own: a job is one process.
    pub fn to_json(&self, most: usize) -> Value {
        let newest = self.known.first();
        let shown: Vec<Value> = self.known.iter().take(most).map(JobFailure::to_json).collect();
        let truncated = self.more || self.known.len() > most;
        json!({
            "root-exception": newest.map(|failure| &failure.text),
            "timestamp": newest.map(|failure| failure.at_ms),
            "all-exceptions": [],
            "truncated": false,
            "exceptionHistory": { "entries": shown, "truncated": truncated },
        })
    }
}

impl JobFailure {
    fn to_json(&self) -> Value {
        let mut entry = json!({
            "exceptionName": self.class,
            "stacktrace": self.text,
            "timestamp": self.at_ms,
            "failureLabels": {},
            "concurrentExceptions": [],
        });
        if let Some(node) = &self.node {
            entry["taskManagerId"] = json!(node);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> JobFailure {
        JobFailure { class: "MAIN_FAILED".to_owned(), text: text.to_owned(), at_ms: 7, node: None }
    }

    #[test]
    fn the_newest_failure_is_the_root_and_what_is_left_out_is_said() {
        let none = JobFailures::default().to_json(20);
        assert_eq!((&none["root-exception"], &none["timestamp"]), (&Value::Null, &Value::Null));
        assert_eq!(none["exceptionHistory"], json!({ "entries": [], "truncated": false }));

        let mut failures = JobFailures { known: vec![failure("second"), failure("first")], more: false };
        let all = failures.to_json(2);
        assert_eq!((&all["root-exception"], &all["timestamp"]), (&json!("second"), &json!(7)));
        assert_eq!(all["exceptionHistory"]["truncated"], false);
        let one = failures.to_json(1);
        let entries = one["exceptionHistory"]["entries"].as_array().unwrap();
        assert_eq!((entries.len(), &entries[0]["stacktrace"]), (1, &json!("second")));
        assert_eq!(one["exceptionHistory"]["truncated"], true);
        failures.more = true;
        assert_eq!(failures.to_json(2)["exceptionHistory"]["truncated"], true);
    }
}
