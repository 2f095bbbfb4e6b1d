//! The scripts of the archive's bin/: whole clusters of real processes from lists of hosts. Each host is a loopback
//! address of the test's own, so that the usual ports are free there; `over_ssh` has those that are reached by ssh.

mod home;
mod over_ssh;

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use home::{Did, Home, is_metastored, serves};
use testkit::{Ctl, eventually, own_address};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A line for each name, and each says so.
#[track_caller]
fn all_say(lines: &[String], names: &[&str], what: &str) {
    assert_eq!(lines.len(), names.len(), "{what}: {lines:?}");
    for (line, name) in lines.iter().zip(names) {
        assert!(line.contains(what) && line.split(' ').any(|word| word == *name), "{name} {what}: {lines:?}");
    }
}

const ALL: [&str; 7] =
    ["replica-1", "replica-2", "replica-3", "dispatcher-1", "dispatcher-2", "jobmaster-1", "jobmaster-2"];

/// Names by line, ports by place on the host, a start that returns when all serve, a second one that leaves alone what
/// runs, a stop; all of it without ssh.
#[test]
fn a_cluster_on_three_hosts_starts_once_and_stops() {
    let (a, b, c) = (own_address(), own_address(), own_address());
    let replicas = format!("# three\n\n{a}\n  {a}  # the second of this host\r\n{b}:2500\n");
    let mut home = Home::new(true, &replicas, &format!("{a}\n{b}"), &format!("{c}\n{c}\n"));
    home.put_before_path("ssh", "#!/bin/sh\necho 'ssh was called' >&2\nexit 1\n");
    all_say(&home.ok("start-cluster.sh"), &ALL, "started");
    let ports = [(a, 2379), (a, 2389), (b, 2500), (a, 8081), (b, 8081), (c, 8092), (c, 8102)];
    for (name, (host, port)) in ALL.iter().zip(ports) {
        assert!(serves(host, port), "{name} at {host}:{port} the moment the script is done");
        assert!(!home.log(name).is_empty());
    }
    let ctl = Ctl::new(&format!("{a}:2389"));
    let nodes = ctl.json(&["node", "list"]);
    let known: Vec<_> =
        nodes.as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect();
    assert_eq!(known, ALL[3..]);
    assert_eq!(nodes[3]["nodeAddress"], format!("{c}:8102"));
    let members = ctl.ok(&["member", "list"]);
    assert!(members.contains(&format!("{a}:2390")) && members.contains(&format!("{b}:2501")), "{members}");

    let pids = ALL.map(|name| home.running(name));
    all_say(&home.ok("start-cluster.sh"), &ALL, "is already running");
    assert_eq!(pids, ALL.map(|name| home.running(name)));

    // What died is started again, and nothing else.
    for pid in [pids[2], pids[6]] {
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        eventually(PATIENCE, "the end of a killed process", || {
            if is_metastored(pid) { Err(format!("{pid} is there")) } else { Ok(()) }
        });
    }
    let lines = home.ok("start-cluster.sh");
    all_say(&[lines[2].clone(), lines[6].clone()], &[ALL[2], ALL[6]], "started");
    assert_eq!(lines.iter().filter(|line| line.contains("is already running")).count(), 5, "{lines:?}");

    let pids = ALL.map(|name| home.running(name));
    let in_order =
        ["jobmaster-1", "jobmaster-2", "dispatcher-1", "dispatcher-2", "replica-1", "replica-2", "replica-3"];
    all_say(&home.ok("stop-cluster.sh"), &in_order, "stopped");
    assert!(!pids.iter().any(|pid| is_metastored(*pid)));
    all_say(&home.ok("stop-cluster.sh"), &in_order, "is not running");
    // Each had the time to hand over: nobody was killed.
    for name in ALL {
        assert!(home.log(name).contains("stopping"), "{name}: {}", home.log(name));
    }
}

/// With dispatchers that host JobMasters JOB_MASTERS is not used. A process that fails is named with its host and
/// reason, and the rest stays. Two starts at the same time start one of each.
#[test]
fn without_the_split_and_with_a_port_in_use() {
    let (a, b) = (own_address(), own_address());
    let home = Home::new(false, &format!("{a}\n"), &format!("{a}\n{b}\n"), &format!("{b}:9000\n"));
    let in_use = TcpListener::bind((b, 8081)).unwrap();
    let did = home.run("start-cluster.sh");
    assert_eq!(did.code, 1, "{did:?}");
    let first = did.out.lines().next().unwrap();
    assert!(first.contains("JOB_MASTERS is not used") && first.contains("single.enable = false"), "{did:?}");
    assert!(did.err.contains(&format!("dispatcher-2 on host {b} failed")), "{did:?}");
    assert!(did.err.contains(&format!("{b}:8081")) && did.err.contains("listen.rest"), "the reason: {did:?}");
    assert!(did.err.contains("failed: dispatcher-2\n"), "{did:?}");
    let stayed = [home.running("replica-1"), home.running("dispatcher-1")];
    assert!(serves(a, 8081) && !is_metastored(home.pid("dispatcher-2").unwrap()));

    drop(in_use);
    let starts = [(); 2].map(|()| {
        let mut start = home.command("start-cluster.sh");
        start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let did = starts.map(|start| Did::of(start.wait_with_output().unwrap()));
    let both = did.each_ref().map(|did| did.out.as_str()).concat();
    assert!(did.iter().all(|did| did.code == 0), "{did:?}");
    assert_eq!(both.matches("started dispatcher-2 at").count(), 1, "{did:?}");
    assert_eq!(both.matches("dispatcher-2 is already running").count(), 1, "{did:?}");
    assert_eq!(stayed, [home.running("replica-1"), home.running("dispatcher-1")]);
    assert!(home.pid("jobmaster-1").is_none());
    let nodes = Ctl::new(&format!("{a}:2379")).json(&["node", "list"]);
    assert_eq!(nodes[0]["roles"].as_array().unwrap().len(), 2, "it hosts JobMasters: {nodes}");

    let lines = home.ok("stop-cluster.sh");
    assert!(lines[0].contains("JOB_MASTERS is not used"), "{lines:?}");
    all_say(&lines[1..], &["dispatcher-1", "dispatcher-2", "replica-1"], "stopped");
}

#[test]
fn jobmasters_are_started_and_stopped_by_hand() {
    let (a, b, c) = (own_address(), own_address(), own_address());
    let home = Home::new(true, &format!("{a}\n"), "", &format!("{b}\n{b}\n{c}\n"));
    all_say(
        &home.ok("start-cluster.sh"),
        &["replica-1", "jobmaster-1", "jobmaster-2", "jobmaster-3"],
        "started",
    );
    // HOST left out is this machine, and so are all loopback addresses.
    all_say(&home.ok("jobmaster.sh stop"), &["jobmaster-1", "jobmaster-2", "jobmaster-3"], "stopped");
    all_say(&home.ok(&format!("jobmaster.sh start {b}")), &["jobmaster-1", "jobmaster-2"], "started");
    assert!(serves(b, 8092) && serves(b, 8102) && !serves(c, 8092));
    all_say(&home.ok(&format!("jobmaster.sh start {b}:8102")), &["jobmaster-2"], "is already running");
    // One that is in no list.
    let unlisted = own_address();
    let name = format!("jobmaster-{unlisted}");
    all_say(&home.ok(&format!("jobmaster.sh start {unlisted}")), &[&name], "started");
    assert!(serves(unlisted, 8092));
    all_say(&home.ok(&format!("jobmaster.sh stop {b}:8092")), &["jobmaster-1"], "stopped");
    let lines = home.ok("jobmaster.sh stop-all");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.contains(&format!("stopped {name}")) && lines.contains(&"stopped jobmaster-2".to_owned()));
    assert_eq!(home.ok("jobmaster.sh stop-all"), ["no jobmaster is running"]);
    assert!(serves(a, 2379), "the store stays");

    // Several at the same time start one.
    let start = format!("process.sh start jobmaster jobmaster-3 http://{c}:8092/readyz");
    let settings = [format!("listen.node={c}:8092"), format!("store.endpoints={a}:2379")];
    let starts = [(); 6].map(|()| {
        let mut command = home.command(&start);
        command.args(&settings).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let did = starts.map(|start| Did::of(start.wait_with_output().unwrap()));
    assert!(did.iter().all(|did| did.code == 0), "{did:?}");
    assert_eq!(did.iter().filter(|did| did.out.starts_with("started jobmaster-3 ")).count(), 1, "{did:?}");
    all_say(&home.ok(&format!("jobmaster.sh stop {c}")), &["jobmaster-3"], "stopped");

    // In the foreground the script becomes the process: its signals are the process's.
    let mut child = {
        let mut command = home.command(&format!("jobmaster.sh start-foreground {c}"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let wait = || if serves(c, 8092) { Ok(()) } else { Err("it does not serve".to_owned()) };
    eventually(PATIENCE, "the process in the foreground", wait);
    assert_eq!(home.running("jobmaster-3"), child.id());
    for line in ["start", "start-foreground"] {
        let lines = home.ok(&format!("jobmaster.sh {line} {c}"));
        all_say(&lines, &["jobmaster-3"], "is already running");
    }
    all_say(&home.ok(&format!("jobmaster.sh stop {c}")), &["jobmaster-3"], "stopped");
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_makes_no_sense_is_said_with_file_and_line() {
    let home = Home::new(true, "h1\n", "h1\n", "h1\n");
    let cases = [
        ("REPLICAS", "h1\n\nh2 h3\n", "REPLICAS line 3: \"h2 h3\" is not HOST or HOST:PORT"),
        ("REPLICAS", "-oProxyCommand=x\n", "line 1: \"-oProxyCommand=x\" is not HOST or HOST:PORT"),
        ("REPLICAS", "$(reboot)\n", "is not HOST or HOST:PORT"),
        ("REPLICAS", "[::1]:2379\n", "a name or an IPv4 address"),
        ("REPLICAS", "h1:65535\n", "line 1: h1:65535: no such port"),
        ("REPLICAS", "# none\n", "conf/REPLICAS lists no host"),
        ("REPLICAS", "h1\nh1:2380\n", "replica-2 and replica-1 would both listen on port 2380 of h1"),
        ("REPLICAS", "localhost\n127.0.0.1:2379\n", "would both listen on port 2379 of 127.0.0.1"),
        ("DISPATCHERS", "h1:0\n", "DISPATCHERS line 1: h1:0: no such port"),
        ("DISPATCHERS", "h1:99999999999999999999\n", "no such port"),
        ("DISPATCHERS", "h1:2379\n", "dispatcher-1 and replica-1 would both listen on port 2379 of h1"),
        ("JOB_MASTERS", "h1:\n", "JOB_MASTERS line 1: \"h1:\" is not HOST or HOST:PORT"),
        ("JOB_MASTERS", "H1:8081\n", "jobmaster-1 and dispatcher-1 would both listen on port 8081 of H1"),
    ];
    for (list, text, says) in cases {
        home.list(list, text);
        let did = home.run("start-cluster.sh");
        assert_eq!((did.code, did.out.as_str()), (2, ""), "{text}: {did:?}");
        assert!(did.err.contains(says) && did.err.lines().count() == 1, "{text}: {did:?}");
        home.list(list, "h1\n");
    }
    std::fs::remove_file(home.path("conf/DISPATCHERS")).unwrap();
    assert!(home.run("start-cluster.sh").err.contains("conf/DISPATCHERS cannot be read"));
    home.list("DISPATCHERS", "h1\n");
    for line in ["jobmaster.sh", "jobmaster.sh restart", "jobmaster.sh start a b", "start-cluster.sh x"] {
        let did = home.run(line);
        assert!(did.code == 2 && did.err.contains(".sh"), "{line}: {did:?}");
    }
    for host in ["-x", "a;b", "a:b", "h1:70000"] {
        let did = home.run(&format!("jobmaster.sh start {host}"));
        assert_eq!(did.code, 2, "{host}: {did:?}");
    }
    let did = home.run("jobmaster.sh start");
    assert!(did.code == 2 && did.err.contains("lists no process of this machine"), "{did:?}");
    // A checkout has no bin/: it says what to do.
    let script = testkit::binaries::root().join("deploy/start-cluster.sh");
    let did = Did::of(Command::new(script).env_remove("METASTORE_HOME").output().unwrap());
    assert!(did.code == 1 && did.err.contains("set METASTORE_HOME to an unpacked archive"), "{did:?}");
}
