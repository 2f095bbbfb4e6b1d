//! Sends the files that no node has, several at a time, each from where an earlier connection broke off.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use records::{UnitId, keys::encode_segment};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncSeekExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::io::ReaderStream;

use super::{files::ListedFile, path_of, progress::Progress};
use crate::{
    exit::{CONFLICT, Failure, NOT_FOUND, UNAVAILABLE},
    rest::{Dispatchers, json as answer_json},
};

/// Files sent at a time.
const AT_A_TIME: usize = 4;
/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Pause before what is missing is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// How long a small answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A file that is to be sent.
#[derive(Debug, Clone, Deserialize)]
struct Missing {
    blake3: String,
    size: u64,
    received: u64,
}

/// What is still to be sent.
#[derive(Debug, Deserialize)]
struct Answer {
    op: String,
    missing: Vec<Missing>,
}

/// The sending of one package's files.
pub struct Upload<'a> {
    dispatchers: &'a Dispatchers,
    path: String,
    op: String,
    first: Vec<Missing>,
    files: HashMap<&'a str, &'a ListedFile>,
    deadline: Instant,
}

impl<'a> Upload<'a> {
    /// What `begun`, the answer to the reservation, asks for.
    pub fn new(
        dispatchers: &'a Dispatchers,
        unit: &UnitId,
        begun: &Value,
        files: &'a [ListedFile],
        deadline: Instant,
    ) -> Result<Self, Failure> {
        let answer = Answer::deserialize(begun)
            .map_err(|error| Failure::failed(format!("the dispatcher's answer: {error}")))?;
        let files = files.iter().map(|file| (file.blake3.as_str(), file)).collect();
        Ok(Self { dispatchers, path: path_of(unit), op: answer.op, first: answer.missing, files, deadline })
    }

    /// Sends until nothing is missing. What a broken connection left is sent again through whichever dispatcher.
    pub async fn run(mut self, progress: &mut Progress) -> Result<(), Failure> {
        let mut missing = std::mem::take(&mut self.first);
        loop {
            let sent = self.send_all(&missing, progress).await;
            match &sent {
                Err(failure) if failure.code != UNAVAILABLE && failure.code != CONFLICT => return sent,
                Err(failure) if Instant::now() >= self.deadline => {
                    return Err(Failure::new(failure.code, format!("the upload took too long: {failure}")));
                }
                Err(failure) => {
                    progress.note(&failure.to_string());
                    sleep(ASK_AGAIN).await;
                }
                Ok(()) => {}
            }
            missing = match self.missing().await {
                // Files that other nodes were to give may have become ours to send.
                Ok(missing) if missing.is_empty() => return Ok(()),
                Ok(missing) => missing,
                // Over, for good or bad: its outcome tells.
                Err(failure) if failure.code == NOT_FOUND || failure.code == CONFLICT => return Ok(()),
                Err(failure) if Instant::now() >= self.deadline => return Err(failure),
                Err(_) => Vec::new(),
            };
        }
    }

    async fn missing(&self) -> Result<Vec<Missing>, Failure> {
        let path = format!("{}/upload?op={}", self.path, encode_segment(&self.op));
        let answer = answer_json(self.dispatchers.simple(Method::GET, &path, ANSWER).await?).await?;
        let answer = Answer::deserialize(&answer);
        Ok(answer.map_err(|error| Failure::failed(format!("the dispatcher's answer: {error}")))?.missing)
    }

    async fn send_all(&self, missing: &[Missing], progress: &mut Progress) -> Result<(), Failure> {
        let total = missing.iter().map(|file| file.size).sum();
        let mut sent: u64 = missing.iter().map(|file| file.received).sum();
        let (count, mut counted) = mpsc::unbounded_channel::<u64>();
        let sending = stream::iter(missing).map(|file| self.send(file, count.clone()));
        let mut sending = std::pin::pin!(sending.buffer_unordered(AT_A_TIME));
        loop {
            tokio::select! {
                done = sending.next() => match done {
                    Some(outcome) => outcome?,
                    None => return Ok(()),
                },
                Some(bytes) = counted.recv() => {
                    sent += bytes;
                    progress.upload(sent, total);
                }
            }
        }
    }

    async fn send(&self, missing: &Missing, count: mpsc::UnboundedSender<u64>) -> Result<(), Failure> {
        let file = self.files.get(missing.blake3.as_str()).ok_or_else(|| {
            Failure::failed(format!(
                "the cluster asks for {}, which is no file of the package",
                missing.blake3
            ))
        })?;
        let (op, offset) = (encode_segment(&self.op), missing.received);
        let path = format!("{}/files/{}?op={op}&offset={offset}", self.path, missing.blake3);
        let answer = self.dispatchers.call(Method::PUT, &path, false, async |request| {
            let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", file.at.display()));
            let mut bytes = tokio::fs::File::open(&file.at).await.map_err(failed)?;
            bytes.seek(std::io::SeekFrom::Start(offset)).await.map_err(failed)?;
            let count = count.clone();
            let chunks = ReaderStream::with_capacity(bytes, CHUNK_BYTES).inspect_ok(move |chunk: &Bytes| {
                // Nobody listens any more when the command ends.
                let _ = count.send(chunk.len() as u64);
            });
            Ok(request.body(reqwest::Body::wrap_stream(chunks)))
        });
        answer
            .await
            .map(|_| ())
            .map_err(|failure| Failure::new(failure.code, format!("{}: {failure}", file.path)))
    }
}
