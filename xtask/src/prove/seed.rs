//! One seed, in a process of its own.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A seed that takes longer, in real time, hangs.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// Runs a seed and reads its report. Why not, if there is none.
pub fn run(binary: &Path, seed: u64, log: Option<&Path>) -> Result<Value, String> {
    run_with(binary, seed, log, None)
}

/// The same with a known bug in the cluster.
pub fn run_with(
    binary: &Path,
    seed: u64,
    log: Option<&Path>,
    control: Option<&str>,
) -> Result<Value, String> {
    let mut command = Command::new(binary);
    command.envs(control.map(|control| ("PROVE_CONTROL", control)));
    command.arg(seed.to_string()).args(log).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("{} cannot be started: {e}", binary.display()))?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < HANGS_AFTER => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("hangs: no end after {HANGS_AFTER:?}"));
            }
            Err(e) => return Err(e.to_string()),
        }
    };
    let text = reader.join().map_err(|_| "its output cannot be read".to_owned())?;
    let text = text.map_err(|e| e.to_string())?;
    serde_json::from_str(text.trim()).map_err(|_| format!("ended with {status} and no report"))
}

/// What a report says must not be, and was.
pub fn violations(report: &Value) -> Vec<String> {
    let violations = report["violations"].as_array().cloned().unwrap_or_default();
    violations.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

/// The trace's hash.
pub fn trace(report: &Result<Value, String>) -> Option<String> {
    report.as_ref().ok().and_then(|report| report["trace"].as_str().map(str::to_owned))
}
