//! One file's way in: one sender at a time, appended where the last one ended.

use std::sync::Arc;

use axum::body::BodyDataStream;
use futures_util::StreamExt;
use icp_store::staging::PartWriter;
use icp_store::{Digest, FileEntry, StoreError};
use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Upload;
use crate::limits::UPLOAD_ABANDONED;

/// Chunks of a file between the connection and the disk.
const CHUNKS_IN_FLIGHT: usize = 8;

/// Why a file was not taken.
#[derive(Debug, Error)]
pub enum UploadError {
    /// The package has no such file.
    #[error("the package has no file with hash {0}")]
    NotListed(Digest),
    /// The bytes do not follow on what is here.
    #[error(
        "the next byte of the file is {received}, not {offset}: ask for what is missing and send from there"
    )]
    Offset {
        /// What is here.
        received: u64,
        /// What was sent.
        offset: u64,
    },
    /// More bytes than listed.
    #[error("the file has {size} bytes by the list, and more were sent")]
    TooLong {
        /// As listed.
        size: u64,
    },
    /// Other bytes than listed: nothing of them is kept.
    #[error("the bytes have hash {found}, not {expected}: did the file change after it was listed?")]
    Hash {
        /// As listed.
        expected: Digest,
        /// As sent.
        found: Digest,
    },
    /// The connection broke; what came is kept.
    #[error("the upload of the file broke off: {0}")]
    Broken(String),
    /// The create ended, or a later upload of the same file goes on instead.
    #[error("the create is over, or the same file is being sent anew")]
    Over,
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The last that sends a file: it alone writes. A client that lost its connection comes again before this node notices.
#[derive(Debug, Clone, Default)]
pub(super) struct Sender {
    replaced: CancellationToken,
    turn: Arc<AsyncMutex<()>>,
}

impl Upload {
    /// Takes bytes of a file from `offset` on. Answers how many are here; all of them = the file is verified. A disk
    /// that fails ends the create.
    pub async fn receive(
        &self,
        node: &str,
        digest: Digest,
        offset: u64,
        body: BodyDataStream,
    ) -> Result<u64, UploadError> {
        let outcome = self.try_receive(digest, offset, body).await;
        if let Err(UploadError::Store(error)) = &outcome {
            self.state.lock().failed = Some(format!("node {node} failed: {error}"));
            self.changed.notify_one();
        }
        outcome
    }

    async fn try_receive(
        &self,
        digest: Digest,
        offset: u64,
        body: BodyDataStream,
    ) -> Result<u64, UploadError> {
        let entry = self.entry(&digest).ok_or(UploadError::NotListed(digest))?;
        let Some(sender) = self.begin(digest) else { return Ok(entry.size) };
        let _turn = tokio::select! {
            () = self.over(&sender) => return Err(UploadError::Over),
            turn = sender.turn.lock() => turn,
        };
        if !self.state.lock().wanted.contains_key(&digest) {
            return Ok(entry.size);
        }
        let received = self.received(&digest);
        if offset != received {
            return Err(UploadError::Offset { received, offset });
        }
        let outcome = self.append(&sender, entry, received, body).await?;
        if outcome < entry.size {
            return Ok(outcome);
        }
        match self.take(&digest).await {
            Ok(()) => Ok(entry.size),
            Err(StoreError::Hash { expected, found, .. }) => Err(UploadError::Hash { expected, found }),
            Err(error) => Err(error.into()),
        }
    }

    /// This request sends the file from now on; none if it is here.
    fn begin(&self, digest: Digest) -> Option<Sender> {
        let mut state = self.state.lock();
        state.heard = Instant::now();
        if !state.wanted.contains_key(&digest) {
            return None;
        }
        let sender = state.senders.entry(digest).or_default();
        sender.replaced.cancel();
        *sender = Sender { replaced: CancellationToken::new(), turn: sender.turn.clone() };
        Some(sender.clone())
    }

    async fn over(&self, sender: &Sender) {
        tokio::select! {
            () = sender.replaced.cancelled() => {}
            () = self.end.cancelled() => {}
        }
    }

    /// The connection is read here, the disk written on a thread of its own, with a bounded number of chunks between.
    async fn append(
        &self,
        sender: &Sender,
        entry: &FileEntry,
        from: u64,
        mut body: BodyDataStream,
    ) -> Result<u64, UploadError> {
        let part = self.parts.get(&entry.blake3).cloned().ok_or(UploadError::NotListed(entry.blake3))?;
        let (chunks, mut incoming) = mpsc::channel::<bytes::Bytes>(CHUNKS_IN_FLIGHT);
        let writing = tokio::task::spawn_blocking(move || {
            let mut writer = PartWriter::open(&part)?;
            while let Some(chunk) = incoming.blocking_recv() {
                writer.write(&chunk)?;
            }
            Ok::<_, StoreError>(())
        });
        let mut at = from;
        let read = async {
            while let Some(chunk) = timeout(UPLOAD_ABANDONED, body.next()).await.unwrap_or(None) {
                let chunk = chunk.map_err(|error| UploadError::Broken(error.to_string()))?;
                at += chunk.len() as u64;
                if at > entry.size {
                    return Err(UploadError::TooLong { size: entry.size });
                }
                self.state.lock().heard = Instant::now();
                // The writer failed: its error is told below.
                if chunks.send(chunk).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        let outcome = tokio::select! {
            outcome = read => outcome,
            () = self.over(sender) => Err(UploadError::Over),
        };
        drop(chunks);
        writing.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))?;
        outcome.map(|()| at)
    }
}
