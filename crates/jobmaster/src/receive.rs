//! A multipart body becomes staged files: each file part is a file of the package, its file name the path.

use icp_store::{Sealed, Staging, StoreError};
use process_kit::{Form, FormError, Part};
use tokio::sync::mpsc;

use crate::host::{Host, blocking};

/// Chunks of a file between the connection and the disk.
const CHUNKS_IN_FLIGHT: usize = 8;

/// Why a body did not become a package.
#[derive(Debug)]
pub enum ReceiveError {
    /// The disk, or a path.
    Store(StoreError),
    /// The client went away or sent nonsense.
    Body(FormError),
}

impl From<StoreError> for ReceiveError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Receives the files under `op`. What was received of a broken body is deleted.
pub async fn receive(host: &Host, op: &str, mut body: Form) -> Result<Sealed, ReceiveError> {
    let id = op.to_owned();
    let mut staging = host.on_disk(move |store| store.stage(&id)).await?;
    loop {
        let part = match body.next_part().await {
            Ok(Some(part)) => part,
            Ok(None) => break,
            Err(error) => return give_up(staging, ReceiveError::Body(error)).await,
        };
        let (back, received) = match part.file_name().map(str::to_owned) {
            Some(path) => receive_file(staging, &path, part).await,
            // Parts that are no files (a client's own fields) are passed over.
            None => (staging, part.skip().await.map_err(ReceiveError::Body)),
        };
        staging = back;
        if let Err(error) = received {
            return give_up(staging, error).await;
        }
    }
    Ok(blocking(move || staging.seal()).await?)
}

async fn give_up(staging: Staging, error: ReceiveError) -> Result<Sealed, ReceiveError> {
    if let Err(error) = blocking(move || staging.discard()).await {
        tracing::warn!(%error, "what was received of a broken upload cannot be deleted yet");
    }
    Err(error)
}

/// The connection is read here, the disk written on a thread of its own, with a bounded number of chunks between.
async fn receive_file(
    mut staging: Staging,
    path: &str,
    mut part: Part<'_>,
) -> (Staging, Result<(), ReceiveError>) {
    let (chunks, mut incoming) = mpsc::channel::<bytes::Bytes>(CHUNKS_IN_FLIGHT);
    let path = path.to_owned();
    let writing = tokio::task::spawn_blocking(move || {
        let written = (|| {
            let mut writer = staging.create_file(&path)?;
            while let Some(chunk) = incoming.blocking_recv() {
                writer.write(&chunk)?;
            }
            Ok::<_, StoreError>(writer)
        })();
        (staging, written)
    });
    let mut broken = None;
    loop {
        match part.chunk().await {
            Ok(Some(chunk)) => {
                // The writer failed: its error is told below.
                if chunks.send(chunk).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                broken = Some(ReceiveError::Body(error));
                break;
            }
        }
    }
    drop(chunks);
    let (staging, written) = writing.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
    match (written, broken) {
        (Err(error), _) => (staging, Err(error.into())),
        (Ok(_), Some(error)) => (staging, Err(error)),
        (Ok(writer), None) => {
            blocking(move || {
                let mut staging = staging;
                let added = staging.add(writer).map(|_| ()).map_err(ReceiveError::from);
                (staging, added)
            })
            .await
        }
    }
}
