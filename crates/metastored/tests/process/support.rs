//! Running the binary as an operator does, and asking it over HTTP.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, without anything of the environment that could configure it.
pub fn metastored(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metastored"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("METASTORED_"))
    {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// Runs it to its end, which comes by itself.
pub fn run(args: &[&str]) -> Output {
    metastored(args).stdin(Stdio::null()).output().unwrap()
}

/// A standalone process on free ports; killed when dropped.
pub struct Standalone {
    child: Child,
    /// HOST:PORT of the store.
    pub client: String,
    /// HOST:PORT of the REST front.
    pub rest: String,
}

impl Standalone {
    /// Starts one and waits for its ready line.
    pub fn start(data_dir: &Path) -> Self {
        let set = format!("data-dir={}", data_dir.display());
        let mut command = metastored(&["standalone", "--ports", "free", "--set", &set]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The reader ends with the process, so this wait is bounded by its start.
        let ready = lines.find_map(|line| line.ok().filter(|line| line.starts_with("ready standalone")));
        let ready = ready.expect("the process ended before it was ready");
        std::thread::spawn(move || lines.for_each(drop));
        let field = |name: &str| ready.split(name).nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Self { child, client: field("client="), rest: field("rest=http://") }
    }

    /// SIGTERM, and how it ended.
    pub fn stop(&mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it ignores SIGTERM");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// GET: status and body.
pub fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Asks until the answer is 200, bounded.
pub fn wait_until_ok(address: &str, path: &str) -> String {
    let start = Instant::now();
    loop {
        let (status, body) = get(address, path);
        if status == 200 {
            return body;
        }
        assert!(start.elapsed() < PATIENCE, "{path}: {status} {body}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
