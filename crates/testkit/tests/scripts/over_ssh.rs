//! Hosts that are reached by ssh: a real sshd on loopback addresses with a throw-away key. Where none is installed a
//! program of that name stands in, which runs the command as sshd would, and the test says so.
//!
//! 127.0.0.0/8 is started without ssh. So the lists name the hosts by the number of their address: the same address to
//! the system, and another host to the scripts.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{eventually, own_address};

use crate::{
    PATIENCE, all_say,
    home::{Home, is_metastored, serves},
};

const PORT: u16 = 2222;

/// How the hosts are reached.
enum Ssh {
    Real(Sshd),
    StandIn { log: PathBuf },
}

struct Sshd {
    daemon: Child,
    dir: tempfile::TempDir,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Sshd {
    /// Starts it, on these addresses only; `None` where there is none.
    fn start(hosts: &[Ipv4Addr]) -> Option<Self> {
        let program =
            ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].map(Path::new).into_iter().find(|it| it.exists())?;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name).display().to_string();
        for key in ["host-key", "key"] {
            let keygen =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]).status();
            assert!(keygen.expect("ssh-keygen comes with ssh").success());
        }
        let listen: String = hosts.iter().map(|host| format!("ListenAddress {host}:{PORT}\n")).collect();
        let config = format!(
            "{listen}HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\nLogLevel VERBOSE\n",
            file("host-key"),
            file("key.pub")
        );
        std::fs::write(file("sshd_config"), config).unwrap();
        let client = format!(
            "Host *\nPort {PORT}\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\n\
             StrictHostKeyChecking accept-new\nLogLevel ERROR\n",
            file("key"),
            file("known")
        );
        std::fs::write(file("ssh_config"), client).unwrap();
        // As root it wants its empty directory, which packages make when they start the service.
        if std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let log = std::fs::File::create(file("log")).unwrap();
        let daemon = Command::new(program)
            .args(["-D", "-e", "-f", &file("sshd_config")])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut sshd = Self { daemon, dir };
        eventually(PATIENCE, "sshd", || {
            assert!(sshd.daemon.try_wait().unwrap().is_none(), "sshd ended: {}", sshd.log());
            let up = hosts.iter().all(|host| std::net::TcpStream::connect((*host, PORT)).is_ok());
            if up { Ok(()) } else { Err(sshd.log()) }
        });
        Some(sshd)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

/// What runs in place of ssh where there is no sshd: the last word is what a login shell would get.
const STAND_IN: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ "$2" != DEAD ] || { echo "ssh: connect to host $2: Connection refused" >&2; exit 255; }
echo "session with $2" >> "LOG"
exec env -i PATH="$PATH" sh -c "$3"
"#;

impl Ssh {
    fn set_up(home: &mut Home, hosts: &[Ipv4Addr], dead: &str) -> Self {
        if let Some(sshd) = Sshd::start(hosts) {
            let config = sshd.dir.path().join("ssh_config");
            home.env.insert("METASTORE_SSH_OPTS".into(), format!("-F {}", config.display()));
            return Self::Real(sshd);
        }
        // Past the capture of the tests' output: nobody is to believe that this was the real thing.
        let _ = writeln!(
            std::io::stderr(),
            "scripts over ssh: NOT over a real sshd, there is none here; get it with apt-get install openssh-server"
        );
        let log = home.path("sessions");
        let script = STAND_IN.replace("DEAD", dead).replace("LOG", &log.display().to_string());
        home.put_before_path("ssh", &script);
        Self::StandIn { log }
    }

    /// How many sessions there were.
    fn sessions(&self) -> usize {
        match self {
            Self::Real(sshd) => sshd.log().matches("Accepted publickey").count(),
            Self::StandIn { log } => std::fs::read_to_string(log).unwrap_or_default().lines().count(),
        }
    }
}

fn number_of(host: Ipv4Addr) -> String {
    u32::from(host).to_string()
}

#[test]
fn others_are_reached_by_ssh_and_one_that_is_not_is_named() {
    let (a, b) = (own_address(), own_address());
    let [on_a, on_b, dead] = [a, b, own_address()].map(number_of);
    let mut home =
        Home::new(true, &format!("{on_a}\n"), &format!("{on_b}\n{dead}\n"), &format!("{on_a}\n{on_b}\n"));
    let ssh = Ssh::set_up(&mut home, &[a, b], &dead);
    let names = ["replica-1", "dispatcher-1", "jobmaster-1", "jobmaster-2"];

    let did = home.run("start-cluster.sh");
    assert_eq!(did.code, 1, "{did:?}");
    let lines: Vec<_> = did.out.lines().map(str::to_owned).collect();
    all_say(&lines, &names, "started");
    assert!(did.err.contains(&format!("dispatcher-2 on host {dead} failed")), "{did:?}");
    assert!(did.err.contains("Connection refused") && did.err.contains("failed: dispatcher-2\n"), "{did:?}");
    assert!(did.err.contains(&format!("warning: {on_a} is {a} here")), "a name for loopback: {did:?}");
    assert_eq!(ssh.sessions(), names.len());
    assert!(serves(a, 2379) && serves(b, 8081) && serves(a, 8092) && serves(b, 8092));
    let pids = names.map(|name| home.running(name));

    // Without the dead host all is well.
    home.list("DISPATCHERS", &format!("{on_b}\n"));
    let did = home.run("start-cluster.sh");
    assert_eq!(did.code, 0, "{did:?}");
    assert_eq!(did.out.matches("is already running").count(), names.len(), "{did:?}");
    assert_eq!(pids, names.map(|name| home.running(name)));

    let did = home.run(&format!("jobmaster.sh stop {on_b}"));
    assert_eq!((did.code, did.out.as_str()), (0, "stopped jobmaster-2\n"), "{did:?}");
    let did = home.run(&format!("jobmaster.sh stop-all {on_a}"));
    assert_eq!((did.code, did.out.as_str()), (0, "stopped jobmaster-1\n"), "{did:?}");
    foreground_ends_with_its_connection(&home, &ssh, b, &on_b);

    let before = ssh.sessions();
    let did = home.run("stop-cluster.sh");
    assert_eq!(did.code, 0, "{did:?}");
    assert_eq!(ssh.sessions(), before + names.len());
    assert!(!pids.iter().any(|pid| is_metastored(*pid)), "{did:?}");
}

/// Nothing is left on the host when the one who started it there is gone.
fn foreground_ends_with_its_connection(home: &Home, ssh: &Ssh, host: Ipv4Addr, name: &str) {
    let Ssh::Real(_) = ssh else { return };
    let mut client = home
        .command(&format!("jobmaster.sh start-foreground {name}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let wait = || if serves(host, 8092) { Ok(()) } else { Err("it does not serve".to_owned()) };
    eventually(PATIENCE, "the process in the foreground", wait);
    let pid = home.running("jobmaster-2");
    assert_ne!(pid, client.id());
    client.kill().unwrap();
    client.wait().unwrap();
    eventually(PATIENCE, "its end", || if is_metastored(pid) { Err(format!("{pid}")) } else { Ok(()) });
}
