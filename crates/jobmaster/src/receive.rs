//! A multipart body becomes staged files: each file part is a file of the package, its file name the path.

use axum::extract::Multipart;
use axum::extract::multipart::Field;
use icp_store::{Sealed, Staging, StoreError};
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
    Body(String),
}

impl From<StoreError> for ReceiveError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Receives the files under `op`. What was received of a broken body is deleted.
pub async fn receive(host: &Host, op: &str, mut body: Multipart) -> Result<Sealed, ReceiveError> {
    let id = op.to_owned();
    let mut staging = host.on_disk(move |store| store.stage(&id)).await?;
    loop {
        let field = match body.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(error) => return give_up(staging, ReceiveError::Body(error.body_text())).await,
        };
        // Parts that are no files (a client's own fields) are passed over.
        let Some(path) = field.file_name().map(str::to_owned) else { continue };
        let (back, received) = receive_file(staging, &path, field).await;
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
    mut field: Field<'_>,
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
        match field.chunk().await {
            Ok(Some(chunk)) => {
                // The writer failed: its error is told below.
                if chunks.send(chunk).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                broken = Some(ReceiveError::Body(error.body_text()));
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

/// Reads a refused body to its end, so that the client gets to read the answer. Bounded by the caller's time.
pub async fn discard(mut body: Multipart) {
    while let Ok(Some(mut field)) = body.next_field().await {
        while let Ok(Some(_)) = field.chunk().await {}
    }
}
