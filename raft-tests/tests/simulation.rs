//! The simulator itself: a run is a function of its seed.

use std::process::Command;

/// The report of a seed, run in a process of its own.
fn report(seed: u64) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_prove")).arg(seed.to_string()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("seed {seed}: {e}: {text}"))
}

#[test]
fn the_same_seed_goes_the_same_way_and_another_seed_another() {
    let (first, again, other) = (report(12), report(12), report(13));
    assert_eq!(first, again);
    assert_ne!(first["trace"], other["trace"]);
    assert!(first["steps"].as_u64() > Some(1000), "{first}");
    assert!(first["faults"].as_object().is_some_and(|faults| faults.len() >= 2), "{first}");
}
