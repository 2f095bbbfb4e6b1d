//! Runs, jobs and nodes at the operator's end, against whole processes: exit codes of `--wait`, whole logs and followed
//! ones, files for the class path, draining a node. A script stands in for java.

use std::io::{BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Cluster, ClusterOptions, Ctl, binaries, eventually};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first argument says what to do; all but `throw` and `stuck` make the job created first.
const JAVA: &str = r#"#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "17.0.0"' >&2; exit 0; }
while [ $# -gt 0 ]; do case $1 in -cp) class_path=$2; shift 2;; -*) shift;; *) break;; esac; done
verb=$2; shift 2
case $verb in throw) echo boom >&2; exit 1;; stuck) exec sleep 86400;; esac
: > "$JOB_CREATED_FILE"
case $verb in
  finish) echo "$*";;
  fail) echo "it broke" >&2; exit 3;;
  flood) seq "$1";;
  class_path) echo "$class_path";;
  until) echo "attempt $JOB_ATTEMPT"; while [ ! -e "$1" ]; do sleep 0.05; done; cat "$1";;
esac
"#;

struct Site {
    dir: tempfile::TempDir,
    cluster: Cluster,
    ctl: Ctl,
}

impl Site {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let java = dir.path().join("java");
        std::fs::write(&java, JAVA).unwrap();
        std::fs::set_permissions(&java, std::fs::Permissions::from_mode(0o755)).unwrap();
        let options = ClusterOptions::new(1, 1, 2)
            .set("engine.process.java", java.display().to_string())
            .set("engine.process.created", "signal")
            .set("node.slots", "4")
            .set("node.lease", "4s")
            .set("node.keep-alive", "500ms")
            .set("node.lease.margin", "1s");
        let cluster = Cluster::start(&options);
        let ctl = cluster.ctl();
        Self { dir, cluster, ctl }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn submit(&self, trigger: &str, verb: &str, flags: &[&str], args: &[&str]) -> Vec<String> {
        let jar = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.jar");
        let words = ["run", "submit", "--trigger-id", trigger];
        let words = [&words, flags, &[jar, "--", verb], args].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    fn run(&self, words: &[String]) -> Output {
        self.ctl.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The command ends with this code and says so on either stream.
    #[track_caller]
    fn ends(&self, line: &str, code: i32, says: &str) {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        ends(line, &self.run(&words), code, says);
    }

    fn spawn(&self, words: &[String]) -> Child {
        let mut command = Command::new(binaries::path("metactl"));
        command.arg("--endpoints").arg(self.cluster.endpoints.join(",")).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn status(&self, trigger: &str) -> Value {
        self.ctl.json(&["run", "status", trigger])
    }

    fn run_completes(&self, trigger: &str) {
        eventually(PATIENCE, "the run completes", || {
            let status = self.status(trigger);
            if status["status"] == "COMPLETED" { Ok(()) } else { Err(status.to_string()) }
        });
    }

    /// The run's job, once it is in this state.
    fn job_in(&self, trigger: &str, state: &str) -> String {
        eventually(PATIENCE, state, || {
            let words: Vec<_> = ["-o", "json", "run", "status", trigger].map(str::to_owned).into();
            let seen: Value = serde_json::from_slice(&self.run(&words).stdout).unwrap_or_default();
            let is_there = seen["jobState"] == state;
            if is_there { Ok(seen["job"].as_str().unwrap().to_owned()) } else { Err(seen.to_string()) }
        })
    }
}

#[track_caller]
fn ends(what: &str, output: &Output, code: i32, says: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{what}: {out}{err}");
    assert!(out.contains(says) || err.contains(says), "{what}: wants \"{says}\": {out}{err}");
}

#[test]
fn runs_jobs_and_nodes_of_a_live_cluster() {
    let site = Site::start();
    waiting_ends_with_the_jobs_end(&site);
    a_deleted_run_stays_deleted(&site);
    logs_are_whole(&site);
    a_file_for_the_class_path_is_deployed_first(&site);
    a_drained_node_is_left_by_its_jobs(&site);
    logs_are_followed_from_attempt_to_attempt(&site);
}

fn waiting_ends_with_the_jobs_end(site: &Site) {
    for (verb, code, says) in
        [("finish", 0, "jobState: FINISHED"), ("fail", 10, "jobState: FAILED"), ("throw", 10, "boom")]
    {
        let words = site.submit(verb, verb, &["--wait"], &["a b"]);
        ends(verb, &site.run(&words), code, says);
        // Again, and by the other command: the run is not run again, the end is the same.
        ends(verb, &site.run(&words), code, says);
        site.ends(&format!("run wait {verb}"), code, says);
    }
    assert_eq!(site.ctl.ok(&["run", "logs", "finish"]), "a b");
    site.ends("run logs fail --stderr", 0, "it broke");

    let never = site.path("never").display().to_string();
    let waiting = site.spawn(&site.submit("cancelled", "until", &["--wait"], &[&never]));
    let job = site.job_in("cancelled", "RUNNING");
    site.ends(
        "run wait cancelled --timeout 200ms",
        3,
        "has not ended yet: ask with metactl run status cancelled",
    );
    site.ends(&format!("job status {job}"), 0, "node: jobmaster-");
    site.ends("job list", 0, &job);
    site.ends(&format!("job cancel {job}"), 0, "is being cancelled");
    ends("cancelled", &waiting.wait_with_output().unwrap(), 11, "jobState: CANCELED");
    site.ends("run wait cancelled", 11, "CANCELED");
    site.ends(&format!("job status {job}"), 0, "state: CANCELED");
    site.ends("run list", 0, &job);

    site.ends("run wait nosuch", 5, "there is no run nosuch");
    site.ends("job logs 00000000000000000000000000000001", 5, "there is no job");
    site.ends("job logs 00000000000000000000000000000001 -f", 5, "there is no job");
    site.ends("job cancel 00000000000000000000000000000001", 5, "there is no job 0000");
    site.ends(&format!("job logs {job} --attempt 9"), 5, "no attempt 9");
    site.ends(&format!("job logs {job} --attempt 9 -f"), 5, "no attempt 9");
}

fn a_deleted_run_stays_deleted(site: &Site) {
    let wait = |trigger: &str| site.spawn(&["run".into(), "wait".into(), trigger.into()]);
    // One in progress is cancelled. Who waited learns it, though the run's record is gone.
    let submit = site.submit("stuck", "stuck", &[], &[]);
    ends("submit", &site.run(&submit), 0, "stuck");
    let job = site.status("stuck")["job"].as_str().unwrap().to_owned();
    let waiting = wait("stuck");
    site.ends("--command-timeout 25s run delete stuck", 0, "");
    ends("wait", &waiting.wait_with_output().unwrap(), 11, "DELETED");
    site.ends(&format!("job status {job}"), 0, "state: CANCELED");
    site.ends("run status stuck", 0, "status: DELETED");
    site.ends("run delete stuck", 0, "");
    ends("submit", &site.run(&submit), 4, "deleted");
    site.ends("run delete nosuch", 5, "nosuch");

    // One that has made its job leaves it, and the wait goes on.
    let never = site.path("never").display().to_string();
    ends("submit", &site.run(&site.submit("made", "until", &[], &[&never])), 0, "made");
    let job = site.job_in("made", "RUNNING");
    site.run_completes("made");
    let waiting = wait("made");
    site.ends("run delete made", 0, "");
    site.ends(&format!("job status {job}"), 0, "state: RUNNING");
    site.ends(&format!("job cancel {job}"), 0, "");
    ends("wait", &waiting.wait_with_output().unwrap(), 11, "CANCELED");
}

/// 6.9 MB: more than one answer of a node holds.
fn logs_are_whole(site: &Site) {
    const LINES: u32 = 1_000_000;
    let words = site.submit("flood", "flood", &["--wait"], &[&LINES.to_string()]);
    ends("flood", &site.run(&words), 0, "FINISHED");
    let whole: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
    let job = site.status("flood")["job"].as_str().unwrap().to_owned();
    for words in [vec!["run", "logs", "flood"], vec!["job", "logs", &job], vec!["run", "logs", "flood", "-f"]]
    {
        let output = site.ctl.run(&words);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout == whole.as_bytes(), "{words:?}: {} bytes", output.stdout.len());
    }
}

fn a_file_for_the_class_path_is_deployed_first(site: &Site) {
    let dep = site.path("Dep 1.jar");
    std::fs::write(&dep, "a JAR").unwrap();
    let dep = dep.display().to_string();
    let words = site.submit("dep", "class_path", &["-C", &dep, "--wait"], &[]);
    ends("dep", &site.run(&words), 0, "Dep 1.jar is package cp-dep_1.jar:");
    let packages = site.status("dep")["packages"].clone();
    let unit = packages[0].as_str().unwrap();
    let class_path = site.ctl.ok(&["run", "logs", "dep"]);
    let path = format!("/icp/{}/Dep 1.jar", unit.replace(':', "/"));
    assert!(class_path.contains(&path), "{path} in {class_path}");
    // A repeat is one, and another run finds the package there.
    ends("dep", &site.run(&words), 0, "FINISHED");
    ends("dep2", &site.run(&site.submit("dep2", "class_path", &["-C", &dep, "--wait"], &[])), 0, "FINISHED");
    assert_eq!(site.status("dep2")["packages"], packages);
    let known = site.ctl.ok(&["icp", "list"]);
    assert_eq!(known.matches("cp-").count(), 1, "{known}");
    let private = known.lines().any(|row| row.starts_with("cp-") && row.ends_with("private"));
    assert!(private, "it goes when no job needs it: {known}");
    // Nothing is deployed for a command line that makes no sense.
    let other = site.path("other.jar");
    std::fs::write(&other, "another JAR").unwrap();
    let words =
        site.submit("dep3", "class_path", &["-C", &other.display().to_string(), "-C", "./nosuch.jar"], &[]);
    ends("dep3", &site.run(&words), 2, "there is no file ./nosuch.jar");
    assert_eq!(site.ctl.ok(&["icp", "list"]), known);
}

/// A job whose strategy is `none` is never moved: the drain waits for it.
fn a_drained_node_is_left_by_its_jobs(site: &Site) {
    let never = site.path("never").display().to_string();
    submit_for_one_start(site, "stays", &never);
    let job = site.job_in("stays", "RUNNING");
    let node = site.ctl.json(&["job", "status", &job])["node"].as_str().unwrap().to_owned();
    let drain = format!("node drain {node}");
    site.ends(
        &format!("{drain} --timeout 300ms"),
        3,
        &format!("1 job is left on {node}: {job}; the drain goes on"),
    );
    assert_eq!(draining(site), [node.as_str()]);
    let waiting = site.spawn(&["node".into(), "drain".into(), node.clone()]);
    // New jobs go elsewhere.
    ends("elsewhere", &site.run(&site.submit("elsewhere", "finish", &["--wait"], &[])), 0, "FINISHED");
    let elsewhere = attempt_node(site, "elsewhere");
    assert_ne!(elsewhere, node);
    site.ends(&format!("job cancel {job}"), 0, "");
    ends("drain", &waiting.wait_with_output().unwrap(), 0, &format!("{node} DRAINED"));
    site.ends(&drain, 0, "DRAINED");

    // The last node too: what comes waits, until the drain is taken back.
    site.ends(&format!("node drain {elsewhere}"), 0, "DRAINED");
    let waits = site.spawn(&site.submit("waits", "finish", &["--wait"], &[]));
    eventually(PATIENCE, "the run waits", || {
        let list = site.ctl.ok(&["run", "list"]);
        let row = list.lines().find(|row| row.starts_with("waits")).unwrap_or_default().to_owned();
        if row.contains("INITIALIZING") && !row.ends_with('-') { Ok(()) } else { Err(list) }
    });
    for node in [&node, &elsewhere] {
        site.ends(&format!("node drain {node} --cancel"), 0, &format!("{node} NOT DRAINED"));
    }
    ends("waits", &waits.wait_with_output().unwrap(), 0, "FINISHED");
    assert!(draining(site).is_empty());
    site.ends(&format!("node drain {node} --cancel"), 0, "NOT DRAINED");

    site.ends("node drain nosuch", 5, "nosuch");
    site.ends("node drain nosuch --cancel", 5, "there is no node nosuch");
    site.ends("node drain dispatcher-1", 4, "a dispatcher without JobMasters");
    site.ends("node drain n1 --timeout soon", 2, "no duration");
    site.ends("node drain", 2, "Usage");
}

fn submit_for_one_start(site: &Site, trigger: &str, file: &str) {
    let jar = binaries::root().join("examples/hello.jar");
    let rest = site.cluster.rest(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let jar = rest.upload("hello.jar", std::fs::read(jar).unwrap()).await;
        let body = json!({ "jarId": jar, "triggerId": trigger, "programArgsList": ["until", file],
            "flinkConfiguration": { "restart-strategy": "none" } });
        let (status, answer) = rest.post("/run-async", &body).await.unwrap();
        assert_eq!(status, 200, "{answer}");
    });
}

fn draining(site: &Site) -> Vec<String> {
    let nodes = site.ctl.json(&["node", "list"]);
    let drained = nodes.as_array().unwrap().iter().filter(|node| node["draining"] == true);
    drained.map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

/// The node that ran the last attempt of a run's job, as the store has it.
fn attempt_node(site: &Site, trigger: &str) -> String {
    let job = site.status(trigger)["job"].as_str().unwrap().to_owned();
    let record = site.ctl.ok(&["get", &format!("/job/{job}"), "--print-value-only"]);
    let record: Value = serde_json::from_str(&record).unwrap();
    record["attempts"][0]["owner"]["node"].as_str().unwrap().to_owned()
}

fn logs_are_followed_from_attempt_to_attempt(site: &Site) {
    let file = site.path("last-words");
    let words = site.submit("followed", "until", &[], &[&file.display().to_string()]);
    ends("submit", &site.run(&words), 0, "followed");
    let words: Vec<_> = ["run", "logs", "followed", "-f"].map(str::to_owned).into();
    let mut follower = site.spawn(&words);
    let mut lines = BufReader::new(follower.stdout.take().unwrap());
    assert_eq!(line(&mut lines), "attempt 1\n");
    let job = site.job_in("followed", "RUNNING");
    site.cluster.kill(site.ctl.json(&["job", "status", &job])["node"].as_str().unwrap());
    assert_eq!(line(&mut lines), "attempt 2\n");
    write_whole(&file, "the end\n");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "the end\n");
    let output = follower.wait_with_output().unwrap();
    ends("logs -f", &output, 0, "attempt 2 is on node jobmaster-");
    site.ends("run logs followed --attempt 2 -f", 0, "attempt 2\nthe end\n");
    // What the dead node has is named.
    site.ends("run logs followed --attempt 1", 3, "is not alive");
}

fn line(from: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line
}

/// Whoever waits for the file finds all of it.
fn write_whole(file: &Path, text: &str) {
    let part = file.with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(part, file).unwrap();
}
