//! A dispatcher that hosts a node, a raw client of its port, and a look at everything that lies in its directory.

use std::collections::BTreeSet;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Cluster, PATIENCE};

/// The boundary of every form here.
pub const BOUNDARY: &str = "B0undary";

/// What is attacked.
pub struct Rig {
    pub cluster: Cluster,
    pub directory: tempfile::TempDir,
    /// What lies there when all is quiet.
    quiet: BTreeSet<String>,
}

/// What a client got to read.
#[derive(Debug, Clone)]
pub struct Reply {
    /// 0 if the connection was closed without an answer.
    pub status: u16,
    pub text: String,
}

/// What the client does when everything is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Reads the answer.
    Read,
    /// Ends its half of the connection, and reads.
    End,
    /// Is gone.
    Vanish,
}

impl Rig {
    pub async fn start() -> Self {
        let mut cluster = Cluster::start(0).await;
        let directory = cluster.host("d1").await;
        let mut rig = Self { cluster, directory, quiet: BTreeSet::new() };
        rig.quiet = rig.lies_there();
        rig.serves().await;
        rig
    }

    fn lies_there(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        list(self.directory.path(), self.directory.path(), &mut found);
        found
    }

    /// A path of a file beside the node's directories, which nobody may make.
    pub fn outside(&self) -> String {
        self.directory.path().join("outside").display().to_string()
    }

    /// Waits until nothing is left of what was sent: no record, no file, on no path.
    pub async fn is_clean(&self, case: &str) {
        testkit::eventually_async(PATIENCE, case, || async {
            let records =
                self.cluster.count("/icp/") + self.cluster.count("/jar/") + self.cluster.count("/run/");
            let lies_there = self.lies_there();
            if records == 0 && lies_there == self.quiet {
                return Ok(());
            }
            let left: Vec<_> = lies_there.symmetric_difference(&self.quiet).collect();
            Err(format!("{records} records and {left:?} are left"))
        })
        .await;
    }

    /// An ordinary package is taken and goes again.
    pub async fn serves(&self) {
        let good = form(&[(b"lib/a.jar", b"good"), (b"b.jar", b"fine")]);
        let created = self.put("/icp/good/1.0.0", good).await;
        assert_eq!(created.status, 200, "{}", created.text);
        self.remove("/icp/good/1.0.0").await;
        self.is_clean("an ordinary package").await;
    }

    /// Removes a package and waits until it is gone.
    pub async fn remove(&self, path: &str) {
        assert_eq!(self.cluster.delete(0, &format!("{path}?mode=force")).await.status, 200);
        self.cluster.until(|| async { (self.cluster.get(0, path).await.status == 404).then_some(()) }).await;
    }

    /// A form as PUT.
    pub async fn put(&self, path: &str, form: Vec<u8>) -> Reply {
        self.send(&request("PUT", path, &form), Then::Read).await
    }

    /// Sends bytes as they are.
    pub async fn send(&self, bytes: &[u8], then: Then) -> Reply {
        let exchange = exchange(self.cluster.dispatchers[0].rest_address, bytes, then);
        timeout(PATIENCE, exchange).await.unwrap_or_else(|_| {
            panic!("no answer to {}", String::from_utf8_lossy(&bytes[..bytes.len().min(300)]));
        })
    }
}

/// Files and directories, without empty directories of blobs.
fn list(root: &Path, at: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
        let name = entry.path().strip_prefix(root).unwrap().display().to_string();
        let is_dir = entry.file_type().unwrap().is_dir();
        if is_dir {
            list(root, &entry.path(), found);
        }
        if !(is_dir && name.contains("icp-store/blobs/")) {
            found.insert(name);
        }
    }
}

async fn exchange(address: std::net::SocketAddr, bytes: &[u8], then: Then) -> Reply {
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut from, mut to) = socket.into_split();
    let writing = async {
        // The other side may have heard enough.
        let _ = to.write_all(bytes).await;
        if then != Then::Read {
            let _ = to.shutdown().await;
        }
        to
    };
    if then == Then::Vanish {
        drop(writing.await);
        return Reply { status: 0, text: String::new() };
    }
    let reading = read_reply(&mut from);
    let (_open, reply) = tokio::join!(writing, reading);
    reply
}

/// Reads one answer; an interim one is passed over.
pub async fn read_reply(from: &mut (impl AsyncReadExt + Unpin)) -> Reply {
    let mut read = Vec::new();
    loop {
        if let Some(reply) = parse(&read) {
            return reply;
        }
        let mut piece = [0; 8192];
        match from.read(&mut piece).await {
            Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
            _ => return Reply { status: 0, text: String::from_utf8_lossy(&read).into_owned() },
        }
    }
}

fn parse(read: &[u8]) -> Option<Reply> {
    let text = String::from_utf8_lossy(read);
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let status: u16 = head.split(' ').nth(1)?.parse().ok()?;
    if status == 100 {
        return parse(rest.as_bytes());
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length: usize = length.unwrap_or(0);
    (rest.len() >= length).then(|| Reply { status, text: rest.to_owned() })
}

/// A whole request whose body is a form.
pub fn request(method: &str, path: &str, form: &[u8]) -> Vec<u8> {
    with_headers(method, path, &format!("content-length: {}\r\n", form.len()), form)
}

/// A form's request with these headers about its body.
pub fn with_headers(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let form = format!("content-type: multipart/form-data; boundary={BOUNDARY}\r\n");
    let form = if headers.contains("content-type") { "" } else { &form };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: here\r\n{form}{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// A form of files; their names are written as they are.
pub fn form(files: &[(&[u8], &[u8])]) -> Vec<u8> {
    let parts = files.iter().map(|(name, content)| {
        let head: [&[u8]; 3] = [b"form-data; name=\"file\"; filename=\"", name, b"\""];
        part(&head.concat(), content)
    });
    end(parts.collect())
}

/// One part with this Content-Disposition.
pub fn part(disposition: &[u8], content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\ncontent-disposition: ");
    [head.as_bytes(), disposition, b"\r\n\r\n", content, b"\r\n"].concat()
}

/// Parts as a whole form.
pub fn end(parts: Vec<Vec<u8>>) -> Vec<u8> {
    [parts.concat(), format!("--{BOUNDARY}--\r\n").into_bytes()].concat()
}
