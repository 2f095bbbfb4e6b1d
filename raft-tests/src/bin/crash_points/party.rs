//! A server node as the process that it is.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::judge::{BOUND, Disk};

/// Dropped, it is killed.
pub struct Party {
    name: String,
    work_dir: PathBuf,
    address: String,
    process: Child,
    tell: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Party {
    /// Starts the node `name` on its directory below `dir`, and returns when it is registered.
    pub async fn start(name: &str, endpoints: &str, dir: &Path) -> Result<Self> {
        let work_dir = dir.join(name).join("work");
        std::fs::create_dir_all(&work_dir)?;
        let log = std::fs::File::options().create(true).append(true).open(dir.join(format!("{name}.log")))?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["node", name, endpoints])
            .args([&work_dir, &dir.join("fake-java")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let tell = process.stdin.take().context("stdin is piped")?;
        let says = BufReader::new(process.stdout.take().context("stdout is piped")?).lines();
        let mut party = Self { name: name.to_owned(), work_dir, address: String::new(), process, tell, says };
        party.address = party.line("registered").await?;
        Ok(party)
    }

    /// HOST:PORT of its node API.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    pub fn disk(&self) -> Disk<'_> {
        Disk { node: &self.name, work_dir: &self.work_dir }
    }

    /// Whoever comes to the step of the point in this place of the table is held there.
    pub async fn set_trap(&mut self, place: usize) -> Result<()> {
        self.tell.write_all(format!("trap {place}\n").as_bytes()).await?;
        self.line("armed").await.map(drop)
    }

    /// Somebody came to the step.
    pub async fn sprung(&mut self) -> Result<()> {
        self.line("sprung").await.map(drop)
    }

    /// Whoever is held goes on.
    pub async fn go_on(&mut self) -> Result<()> {
        Ok(self.tell.write_all(b"go\n").await?)
    }

    /// SIGKILL; returns when the process is gone.
    pub async fn kill(&mut self) -> Result<()> {
        ensure!(self.process.try_wait()?.is_none(), "node {} ended before it was killed", self.name);
        Ok(self.process.kill().await?)
    }

    /// The rest of the next line, which must begin with `word`.
    async fn line(&mut self, word: &str) -> Result<String> {
        let line = timeout(BOUND, self.says.next_line()).await;
        let line = line.with_context(|| format!("node {} is not {word} within {BOUND:?}", self.name))??;
        match line.as_deref().and_then(|line| line.strip_prefix(word)) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => bail!("node {} says {line:?} instead of {word}", self.name),
        }
    }
}
