//! What scripts rely on, without any server: exit codes, which stream what goes to, how long a dead address takes.

use std::{
    net::TcpListener,
    process::{Command, Output},
    time::{Duration, Instant},
};

fn metactl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_metactl")).args(args).env_remove("METACTL_ENDPOINTS").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A loopback address where nobody listens.
fn closed_port() -> String {
    TcpListener::bind((testkit::own_address(), 0)).unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_dead_endpoint_is_an_error_that_names_address_and_reason() {
    let endpoint = closed_port();
    for command in [
        vec!["endpoint", "health"],
        vec!["endpoint", "status"],
        vec!["get", "k"],
        vec!["put", "k", "v"],
        vec!["run", "status", "t"],
        vec!["cluster", "status"],
    ] {
        let start = Instant::now();
        let output = metactl(&[&["--endpoints", &endpoint], command.as_slice()].concat());
        assert_eq!(output.status.code(), Some(3), "{command:?}: {}", stderr(&output));
        assert!(start.elapsed() < Duration::from_secs(5), "{command:?} took {:?}", start.elapsed());
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&endpoint) && said.to_lowercase().contains("refused"), "{command:?}: {said}");
    }
}

#[test]
fn an_address_that_never_answers_takes_less_than_five_seconds() {
    // It accepts into the backlog and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = silent.local_addr().unwrap().to_string();
    let start = Instant::now();
    let output = metactl(&["--endpoints", &endpoint, "--command-timeout", "1s", "get", "k"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(stderr(&output).contains(&endpoint), "{}", stderr(&output));
}

#[test]
fn what_makes_no_sense_is_usage() {
    for args in [
        vec!["nosuch"],
        vec!["get"],
        vec!["get", "k", "--nosuch"],
        vec!["lease", "revoke", "xyz"],
        vec!["run", "status", "two words"],
        vec!["job", "status", "12"],
        vec!["icp", "status", "no-version"],
        vec!["--command-timeout", "5", "get", "k"],
    ] {
        let output = metactl(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_and_completion_are_data() {
    for args in
        [vec!["--help"], vec!["run", "submit", "--help"], vec!["completion", "bash"], vec!["--version"]]
    {
        let output = metactl(&args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
    let help = String::from_utf8(metactl(&["run", "submit", "--help"]).stdout).unwrap();
    assert!(help.contains("Examples:"), "{help}");
}
