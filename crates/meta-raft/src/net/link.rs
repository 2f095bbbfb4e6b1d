//! One standing connection to one peer: connects when needed, answers calls by id, fails all of them when it breaks.
//!
//! Calls are written in the order they are started, whoever waits for the answers. A broken connection is not
//! repaired behind a call: every call in flight fails (its fate at the peer is unknown) and the next call connects
//! anew. While a peer is down, at most one attempt per [`RETRY_AFTER`] is made; calls in between fail at once. A peer
//! whose machine is gone breaks nothing: a connection on which calls wait and nothing came for [`SILENT`] is given up.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt, BufReader, BufWriter, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::frame::{self, Outgoing};
use super::message::{Hello, HelloReply, Reply, Request};
use super::{Connection, Net};

/// Frames waiting for the writer; a full queue makes callers wait, in order.
const WRITE_QUEUE: usize = 64;
/// Read and write buffers.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;
/// Pause between two attempts to reach a peer that cannot be reached.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Longer than any answer takes that is worth waiting for.
const SILENT: Duration = Duration::from_secs(6);

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    /// Never sent.
    #[error("cannot reach {addr}: {why}")]
    Unreachable {
        /// The peer's address.
        addr: String,
        /// What happened.
        why: String,
    },
    /// Sent, and then the connection broke or the time was up.
    #[error("no answer from the peer: {0}")]
    NoAnswer(String),
}

/// A call's head on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call<T> {
    pub(crate) id: u64,
    pub(crate) body: T,
}

/// One open connection.
struct Conn {
    to_writer: mpsc::Sender<Outgoing>,
    waiting: Mutex<Waiting>,
    broken: AtomicBool,
    next_id: AtomicU64,
}

/// Calls without an answer yet, and since when nothing came while there are some.
struct Waiting {
    calls: HashMap<u64, oneshot::Sender<Reply>>,
    since: Instant,
}

impl Waiting {
    fn add(&mut self, id: u64, answer: oneshot::Sender<Reply>) {
        if self.calls.is_empty() {
            self.since = Instant::now();
        }
        self.calls.insert(id, answer);
    }

    fn answered(&mut self, id: u64) -> Option<oneshot::Sender<Reply>> {
        self.since = Instant::now();
        self.calls.remove(&id)
    }
}

/// How to reach a peer.
pub(crate) struct Link {
    net: Arc<dyn Net>,
    hello: Hello,
    addr: String,
    connect_timeout: Duration,
    state: tokio::sync::Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    open: Option<(Arc<Conn>, AbortOnDropHandle<()>)>,
    failed_at: Option<(Instant, String)>,
}

/// An answer on its way.
pub(crate) struct Pending {
    answer: oneshot::Receiver<Reply>,
}

impl Pending {
    /// Waits for the answer.
    pub(crate) async fn wait(self, timeout: Duration) -> Result<Reply, LinkError> {
        match tokio::time::timeout(timeout, self.answer).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(LinkError::NoAnswer("the connection broke".into())),
            Err(_) => Err(LinkError::NoAnswer(format!("nothing within {timeout:?}"))),
        }
    }
}

impl Link {
    pub(crate) fn new(net: Arc<dyn Net>, hello: Hello, addr: String, connect_timeout: Duration) -> Self {
        Self { net, hello, addr, connect_timeout, state: tokio::sync::Mutex::default() }
    }

    /// Sends a request; the answer is waited for apart, so that calls can be pipelined.
    pub(crate) async fn start(
        &self,
        request: Request,
        tail: Vec<bytes::Bytes>,
    ) -> Result<Pending, LinkError> {
        let conn = self.connection().await?;
        let id = conn.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = Outgoing::new(&Call { id, body: request }, tail).map_err(|e| self.unreachable(e))?;
        let (tx, answer) = oneshot::channel();
        conn.waiting.lock().add(id, tx);
        if conn.to_writer.send(frame).await.is_err() {
            conn.waiting.lock().calls.remove(&id);
            return Err(self.unreachable("the connection broke"));
        }
        // The reader clears the table after it set `broken`: one of the two sees this call.
        if conn.broken.load(Ordering::SeqCst) {
            conn.waiting.lock().calls.remove(&id);
        }
        Ok(Pending { answer })
    }

    /// Sends a request and waits.
    pub(crate) async fn call(
        &self,
        request: Request,
        tail: Vec<bytes::Bytes>,
        timeout: Duration,
    ) -> Result<Reply, LinkError> {
        let started = tokio::time::timeout(timeout, self.start(request, tail)).await;
        let pending = started.map_err(|_| self.unreachable("the connection is stuck"))??;
        pending.wait(timeout).await
    }

    async fn connection(&self) -> Result<Arc<Conn>, LinkError> {
        let mut state = self.state.lock().await;
        if let Some((conn, _)) = &state.open {
            if !conn.broken.load(Ordering::SeqCst) && !conn.is_silent() {
                return Ok(conn.clone());
            }
            state.open = None;
        }
        if let Some((at, why)) = &state.failed_at
            && at.elapsed() < RETRY_AFTER
        {
            return Err(self.unreachable(why));
        }
        match open(self.net.as_ref(), &self.hello, &self.addr, self.connect_timeout).await {
            Ok(stream) => {
                let (conn, task) = Conn::spawn(stream);
                state.open = Some((conn.clone(), task));
                state.failed_at = None;
                Ok(conn)
            }
            Err(e) => {
                state.failed_at = Some((Instant::now(), e.to_string()));
                Err(self.unreachable(e))
            }
        }
    }

    fn unreachable(&self, why: impl ToString) -> LinkError {
        LinkError::Unreachable { addr: self.addr.clone(), why: why.to_string() }
    }
}

/// A connection past its hello, buffered.
pub(crate) type Stream = BufReader<Box<dyn Connection>>;

/// Connects and says hello.
pub(crate) async fn open(net: &dyn Net, hello: &Hello, addr: &str, timeout: Duration) -> io::Result<Stream> {
    let opened = tokio::time::timeout(timeout, async {
        let stream = net.connect(addr).await?;
        let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
        frame::write(&mut stream, &Outgoing::new(hello, vec![])?).await?;
        stream.flush().await?;
        match frame::read(&mut stream).await? {
            None => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(answer) => match answer.head::<HelloReply>()? {
                HelloReply::Welcome => Ok(stream),
                HelloReply::Refused(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
            },
        }
    });
    opened.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

impl Conn {
    fn spawn(stream: Stream) -> (Arc<Self>, AbortOnDropHandle<()>) {
        let (to_writer, frames) = mpsc::channel(WRITE_QUEUE);
        let conn = Arc::new(Self {
            to_writer,
            waiting: Mutex::new(Waiting { calls: HashMap::new(), since: Instant::now() }),
            broken: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
        });
        let ours = conn.clone();
        let task = tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(stream);
            tokio::select! {
                result = ours.read_replies(reader) => log_end(result),
                result = write_frames(writer, frames) => log_end(result),
            }
            ours.broken.store(true, Ordering::SeqCst);
            ours.waiting.lock().calls.clear();
        });
        (conn, AbortOnDropHandle::new(task))
    }

    fn is_silent(&self) -> bool {
        let waiting = self.waiting.lock();
        !waiting.calls.is_empty() && waiting.since.elapsed() > SILENT
    }

    async fn read_replies(&self, mut reader: ReadHalf<Stream>) -> io::Result<()> {
        while let Some(frame) = frame::read(&mut reader).await? {
            let Call { id, body } = frame.head::<Call<Reply>>()?;
            let waiting = self.waiting.lock().answered(id);
            if let Some(answer) = waiting {
                // A caller that stopped waiting is no error.
                let _ = answer.send(body);
            }
        }
        Ok(())
    }
}

/// Writes frames as they come, flushing when the queue is empty.
pub(crate) async fn write_frames(
    writer: WriteHalf<Stream>,
    mut frames: mpsc::Receiver<Outgoing>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
    while let Some(frame) = frames.recv().await {
        frame::write(&mut writer, &frame).await?;
        while let Ok(frame) = frames.try_recv() {
            frame::write(&mut writer, &frame).await?;
        }
        writer.flush().await?;
    }
    Ok(())
}

fn log_end(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a peer connection broke");
    }
}
