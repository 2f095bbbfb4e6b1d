//! Request bodies: JSON within its limit, multipart parts to memory or to an unlinked spool file with its digest.

use std::path::{Path, PathBuf};

use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use flink_rest::RestError;
use http::{StatusCode, header};
use process_kit::{FormError, Part};
use tokio::io::AsyncWriteExt;

use crate::limits::{MAX_JSON_BYTES, MAX_TEXT_PART_BYTES, UPLOAD_IDLE};

/// An uploaded file on this machine's disk. It is deleted when dropped.
#[derive(Debug)]
pub struct SpooledFile {
    path: PathBuf,
    /// Its name as the client gave it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// BLAKE3 of its bytes, hex.
    pub digest: String,
}

impl SpooledFile {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpooledFile {
    fn drop(&mut self) {
        // Gone already is fine; anything else is swept at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Where uploads wait for a node to take them.
#[derive(Debug, Clone)]
pub struct Spool {
    directory: PathBuf,
    max_bytes: u64,
}

const SPOOL_PREFIX: &str = "upload-";

impl Spool {
    /// Opens the directory and sweeps what an earlier process left.
    pub fn open(directory: PathBuf, max_bytes: u64) -> std::io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        for entry in std::fs::read_dir(&directory)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(SPOOL_PREFIX) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(Self { directory, max_bytes })
    }

    /// Writes a file part to disk.
    pub async fn store(&self, name: String, mut part: Part<'_>) -> Result<SpooledFile, RestError> {
        let path = self.directory.join(format!("{SPOOL_PREFIX}{:032x}", rand::random::<u128>()));
        let mut spooled = SpooledFile { path, name, bytes: 0, digest: String::new() };
        let mut file = self.create(&spooled.path).await.map_err(|e| self.disk_error(&e))?;
        let mut hasher = blake3::Hasher::new();
        while let Some(chunk) = part.chunk().await.map_err(broken)? {
            spooled.bytes += chunk.len() as u64;
            if spooled.bytes > self.max_bytes {
                return Err(self.too_large());
            }
            hasher.update(&chunk);
            file.write_all(&chunk).await.map_err(|e| self.disk_error(&e))?;
        }
        file.flush().await.map_err(|e| self.disk_error(&e))?;
        spooled.digest = hasher.finalize().to_hex().to_string();
        Ok(spooled)
    }

    /// Somebody's cleaner may have taken the directory from under the server: it is made anew.
    async fn create(&self, path: &Path) -> std::io::Result<tokio::fs::File> {
        match tokio::fs::File::create_new(path).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                tracing::warn!(directory = %self.directory.display(), "the spool directory is gone; it is made anew");
                tokio::fs::create_dir_all(&self.directory).await?;
                tokio::fs::File::create_new(path).await
            }
            created => created,
        }
    }

    fn too_large(&self) -> RestError {
        let max = self.max_bytes;
        RestError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the file is larger than {max} bytes; raise web.upload.max-bytes on the dispatchers"),
        )
    }

    fn disk_error(&self, error: &std::io::Error) -> RestError {
        tracing::error!(directory = %self.directory.display(), %error, "an upload could not be written");
        let text = format!("the upload could not be written to the dispatcher's disk: {error}");
        RestError::new(StatusCode::INSUFFICIENT_STORAGE, text)
    }
}

/// A text part.
pub async fn text_part(mut part: Part<'_>) -> Result<String, RestError> {
    let mut text = BytesMut::new();
    let name = part.name().unwrap_or_default().to_owned();
    while let Some(chunk) = part.chunk().await.map_err(broken)? {
        if text.len() + chunk.len() > MAX_TEXT_PART_BYTES {
            let why = format!("part \"{name}\" is larger than {MAX_TEXT_PART_BYTES} bytes");
            return Err(RestError::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        text.extend_from_slice(&chunk);
    }
    String::from_utf8(text.into())
        .map_err(|_| RestError::new(StatusCode::BAD_REQUEST, format!("part \"{name}\" is not UTF-8")))
}

/// A body that is no whole form.
pub fn broken(error: FormError) -> RestError {
    let status = match error {
        FormError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        FormError::NoForm(_) | FormError::Broken(_) | FormError::Head | FormError::FileName => {
            StatusCode::BAD_REQUEST
        }
    };
    RestError::new(status, error.to_string())
}

/// True if the request says that its body is multipart.
pub fn is_multipart(request: &Request) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|text| text.trim_start().to_ascii_lowercase().starts_with("multipart/form-data"))
}

/// A body that is no upload, whole. Its content type does not matter.
pub async fn json_body(request: Request) -> Result<Bytes, RestError> {
    let read = axum::body::to_bytes(request.into_body(), MAX_JSON_BYTES);
    match tokio::time::timeout(UPLOAD_IDLE, read).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(RestError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body broke off or is larger than {MAX_JSON_BYTES} bytes"),
        )),
        Err(_) => Err(RestError::new(StatusCode::REQUEST_TIMEOUT, "the body stopped midway; send it again")),
    }
}
