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
        vec!["job", "logs", "12", "-f"],
        vec!["run", "wait", "t", "--timeout", "soon"],
        vec!["run", "submit", "-C", "no/such.jar", "job.jar"],
        vec!["run", "submit", "no/such.jar"],
        vec!["node", "drain"],
        vec!["node", "drain", "n1", "--timeout", "5"],
        vec!["icp", "status"],
        vec!["icp", "status", "lib:"],
        vec!["icp", "status", "a/b"],
        vec!["icp", "status", "--node", ""],
        vec!["icp", "check", "no-version"],
        vec!["icp", "check", "lib:latest"],
        vec!["icp", "pull", "lib:1.0"],
        vec!["icp", "pull", "lib:1.0", "--node", "a/b"],
        vec!["icp", "pull", "lib:1.0", "--node", "n1", "--timeout", "soon"],
        vec!["icp", "refs", "con:1"],
        vec!["icp", "wait", "lib:1.0", "--nodes", ""],
        vec!["icp", "wait", "lib:1.0", "--nodes", "n1,,n2"],
        vec!["icp", "remove", "lib:1.0", "--dry-run", "--wait"],
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
    let bash = String::from_utf8(metactl(&["completion", "bash"]).stdout).unwrap();
    for command in ["create", "list", "status", "check", "pull", "refs", "wait", "remove"] {
        let help = String::from_utf8(metactl(&["icp", command, "--help"]).stdout).unwrap();
        let has_examples = help.contains(&format!("metactl icp {command} "));
        assert!(has_examples || ["create", "list"].contains(&command), "{help}");
        assert!(bash.contains(&format!("icp,{command})")), "completion of {command}");
    }
    let help = String::from_utf8(metactl(&["run", "submit", "--help"]).stdout).unwrap();
    assert!(help.contains("Examples:"), "{help}");
}
