//! `metactl` as a user runs it.

use std::process::{Command, Output};

use crate::binaries;

/// Runs `metactl` against fixed endpoints.
#[derive(Debug, Clone)]
pub struct Ctl {
    endpoints: String,
}

impl Ctl {
    /// Against these endpoints, comma-separated.
    pub fn new(endpoints: &str) -> Self {
        Self { endpoints: endpoints.into() }
    }

    /// Runs it and gives all of its output.
    pub fn run(&self, args: &[&str]) -> Output {
        Command::new(binaries::path("metactl"))
            .arg("--endpoints")
            .arg(&self.endpoints)
            .args(args)
            .output()
            .expect("metactl can be started")
    }

    /// Runs it, wants exit code 0, gives stdout without the last line end.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let stdout = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        assert!(
            output.status.success(),
            "metactl {args:?}: {}\n{stdout}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        stdout
    }

    /// Runs it with `-o json`, wants exit code 0, gives the document.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = vec!["-o", "json"];
        all.extend_from_slice(args);
        let printed = self.ok(&all);
        serde_json::from_str(&printed)
            .unwrap_or_else(|e| panic!("metactl {args:?} printed no JSON ({e}): {printed}"))
    }
}
