//! A directory like an unpacked archive, with lists of its own, and its scripts as an operator runs them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use testkit::binaries;

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(10);

pub struct Home {
    dir: tempfile::TempDir,
    /// What every script gets in its environment.
    pub env: BTreeMap<String, String>,
}

/// What a script did.
#[derive(Debug)]
pub struct Did {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Home {
    /// `single` is `jobmanager.jobmaster.single.enable`. The path has a space: nothing may be cut apart there.
    pub fn new(single: bool, replicas: &str, dispatchers: &str, jobmasters: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("meta store-").tempdir().unwrap();
        let home = Self { dir, env: BTreeMap::new() };
        for part in ["bin", "conf"] {
            std::fs::create_dir(home.path(part)).unwrap();
        }
        copy_all(&binaries::root().join("deploy"), &home.path("bin"));
        copy_all(&binaries::root().join("conf"), &home.path("conf"));
        for binary in ["metastored", "metactl"] {
            symlink(binaries::path(binary), home.path("bin").join(binary)).unwrap();
        }
        let conf = home.path("conf/dispatcher.toml");
        let text = std::fs::read_to_string(&conf).unwrap();
        let line = |value| format!("jobmanager.jobmaster.single.enable = {value}\n");
        assert!(text.contains(&line(false)), "the line that operators look for");
        std::fs::write(conf, text.replace(&line(false), &line(single))).unwrap();
        for (list, text) in
            [("REPLICAS", replicas), ("DISPATCHERS", dispatchers), ("JOB_MASTERS", jobmasters)]
        {
            home.list(list, text);
        }
        home
    }

    pub fn list(&self, name: &str, text: &str) {
        std::fs::write(self.path("conf").join(name), text).unwrap();
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// A script of bin/ with its arguments, not started yet.
    pub fn command(&self, line: &str) -> Command {
        let mut words = line.split(' ');
        let mut command = Command::new(self.path("bin").join(words.next().unwrap()));
        command.args(words).env_remove("METASTORE_HOME").envs(&self.env);
        command
    }

    pub fn run(&self, line: &str) -> Did {
        Did::of(self.command(line).output().unwrap())
    }

    /// It succeeds and complains about nothing; its lines.
    pub fn ok(&self, line: &str) -> Vec<String> {
        let did = self.run(line);
        assert_eq!((did.code, did.err.as_str()), (0, ""), "{line}: {did:?}");
        did.out.lines().map(str::to_owned).collect()
    }

    pub fn pid(&self, name: &str) -> Option<u32> {
        let pid = std::fs::read_to_string(self.path("run").join(format!("{name}.pid"))).ok()?;
        Some(pid.trim().parse().unwrap())
    }

    /// A process that runs: its id, as run/ and the system have it.
    pub fn running(&self, name: &str) -> u32 {
        let pid = self.pid(name).unwrap_or_else(|| panic!("no run/{name}.pid"));
        assert!(is_metastored(pid), "{name} has process id {pid}, which is no metastored");
        pid
    }

    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("log").join(format!("{name}.log"))).unwrap()
    }

    /// An executable that is found before others of its name.
    pub fn put_before_path(&mut self, name: &str, script: &str) {
        let dir = self.path("before");
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join(name);
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
        self.env.insert("PATH".into(), path);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.env.insert("METASTORE_STOP_SECONDS".into(), "10".into());
        for role in ["jobmaster", "dispatcher", "replica"] {
            let _ = self.command(&format!("process.sh stop-all {role}")).output();
        }
        if !std::thread::panicking() {
            return;
        }
        for entry in std::fs::read_dir(self.path("log")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let end = &lines[lines.len().saturating_sub(8)..];
            eprintln!("--- {}\n{}", entry.file_name().to_string_lossy(), end.join("\n"));
        }
    }
}

impl Did {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

pub fn is_metastored(pid: u32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|exe| exe.file_name().is_some_and(|name| name == "metastored"))
}

/// True if a process there says that it serves, at once.
pub fn serves(host: Ipv4Addr, port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((host, port)) else { return false };
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    write!(stream, "GET /readyz HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1) == Some("200")
}
