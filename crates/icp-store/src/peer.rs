//! A client of another server node's HTTP API.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, Response, StatusCode};
use serde_json::Value;
use thiserror::Error;

use crate::digest::Digest;
use crate::inspect::Finding;
use crate::manifest::Manifest;
use crate::store::OnDisk;

/// How long a peer may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a peer may take for a small answer, or between two pieces of a large one.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a peer may take to say which files it has: a create waits for it.
const HAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a peer gave nothing.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The peer did not answer, or the connection broke.
    #[error("{peer}: {why}")]
    Unreachable {
        /// Its address.
        peer: String,
        /// What happened.
        why: String,
    },
    /// The peer said no.
    #[error("{peer}: {status}: {message}")]
    Refused {
        /// Its address.
        peer: String,
        /// Its status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The peer gives the file to others just now.
    #[error("{peer}: busy")]
    Busy {
        /// Its address.
        peer: String,
        /// Nodes that it gave the file to: they have it, or will soon.
        holders: Vec<String>,
    },
    /// The peer's answer makes no sense.
    #[error("{peer}: {why}")]
    Nonsense {
        /// Its address.
        peer: String,
        /// What is wrong.
        why: String,
    },
}

/// Header of a request for a file: the `HOST:PORT` where the asking node itself serves files.
pub const NODE_HEADER: &str = "x-node-address";
/// Header of a request for a file: no other node gave it, so this one shall, however busy.
pub const INSIST_HEADER: &str = "x-insist";
/// Header of the answer "busy": addresses of nodes that were given the file, parted by commas.
pub const HOLDERS_HEADER: &str = "x-holders";

/// An HTTP client for peers: no proxies (they would hide the peer), bounded connects.
pub fn client() -> Client {
    build(HeaderMap::new())
}

/// The same for a node that serves files at `address` itself: peers send others there.
pub fn client_of(address: &str) -> Client {
    let address = HeaderValue::from_str(address).ok();
    build(address.into_iter().map(|address| (HeaderName::from_static(NODE_HEADER), address)).collect())
}

fn build(headers: HeaderMap) -> Client {
    Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(IDLE_TIMEOUT)
        .default_headers(headers)
        .no_proxy()
        .build()
        .expect("a client without TLS always builds")
}

/// One peer.
#[derive(Debug, Clone)]
pub struct Peer {
    client: Client,
    address: String,
}

impl Peer {
    /// The peer at `HOST:PORT`.
    pub fn new(client: Client, address: impl Into<String>) -> Self {
        Self { client, address: address.into() }
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn unreachable(&self, error: &reqwest::Error) -> PeerError {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            why = inner.to_string();
            source = inner.source();
        }
        PeerError::Unreachable { peer: self.address.clone(), why }
    }

    async fn accept(&self, response: Response) -> Result<Response, PeerError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let message = response.text().await.unwrap_or_default();
        let message = message.chars().take(300).collect();
        Err(PeerError::Refused { peer: self.address.clone(), status: status.as_u16(), message })
    }

    async fn get(&self, path: &str) -> Result<Response, PeerError> {
        let response = self.client.get(self.url(path)).send().await.map_err(|e| self.unreachable(&e))?;
        self.accept(response).await
    }

    /// The manifest of a package on that node.
    pub async fn manifest(&self, name: &str, version: &str) -> Result<Manifest, PeerError> {
        let response = self.get(&format!("/packages/{name}/{version}/manifest")).await?;
        response
            .json()
            .await
            .map_err(|e| PeerError::Nonsense { peer: self.address.clone(), why: e.to_string() })
    }

    /// What is on that node's disk.
    pub async fn packages(&self) -> Result<Vec<OnDisk>, PeerError> {
        let response = self.get("/packages").await?;
        response
            .json()
            .await
            .map_err(|e| PeerError::Nonsense { peer: self.address.clone(), why: e.to_string() })
    }

    /// What that node found for a register.
    pub async fn inspection(&self, name: &str, version: &str, op: &str) -> Result<Finding, PeerError> {
        let response = self.get(&format!("/packages/{name}/{version}/inspection?op={op}")).await?;
        response
            .json()
            .await
            .map_err(|e| PeerError::Nonsense { peer: self.address.clone(), why: e.to_string() })
    }

    /// The bytes of a blob from `offset` on; with `insist` even if the peer is busy.
    pub async fn blob(&self, digest: &Digest, offset: u64, insist: bool) -> Result<Response, PeerError> {
        let request = self.client.get(self.url(&format!("/blobs/{digest}")));
        let request = if insist { request.header(INSIST_HEADER, "1") } else { request };
        let request =
            if offset == 0 { request } else { request.header(header::RANGE, format!("bytes={offset}-")) };
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        if let Some(holders) = response.headers().get(HOLDERS_HEADER) {
            let holders = holders.to_str().unwrap_or_default();
            let holders = holders.split(',').filter(|holder| !holder.is_empty()).map(str::to_owned);
            return Err(PeerError::Busy { peer: self.address.clone(), holders: holders.collect() });
        }
        let response = self.accept(response).await?;
        let expected = if offset == 0 { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
        if response.status() != expected {
            let why = format!("{} where {expected} is due", response.status());
            return Err(PeerError::Nonsense { peer: self.address.clone(), why });
        }
        Ok(response)
    }

    /// Which of these files that node has.
    pub async fn has(&self, digests: &[Digest]) -> Result<Vec<Digest>, PeerError> {
        let sent = self.client.post(self.url("/blobs/have")).timeout(HAVE_TIMEOUT).json(digests).send().await;
        let response = self.accept(sent.map_err(|e| self.unreachable(&e))?).await?;
        response
            .json()
            .await
            .map_err(|e| PeerError::Nonsense { peer: self.address.clone(), why: e.to_string() })
    }

    /// Makes that node the deploy coordinator of a package. `query` is the query string of the node API
    /// (`origin=icp&nodes=all&timeout_ms=..`); a file is its path in the package and its bytes. The answer is the
    /// node's status code and JSON, whatever they are.
    pub async fn put_package<S>(
        &self,
        name: &str,
        version: &str,
        query: &str,
        files: Vec<(String, S)>,
        timeout: Duration,
    ) -> Result<(u16, Value), PeerError>
    where
        S: Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
    {
        let mut form = reqwest::multipart::Form::new();
        for (path, bytes) in files {
            let part = reqwest::multipart::Part::stream(Body::wrap_stream(bytes)).file_name(path);
            form = form.part("file", part);
        }
        let url = self.url(&format!("/packages/{name}/{version}?{query}"));
        let sent = self.client.put(url).timeout(timeout).multipart(form).send().await;
        let response = sent.map_err(|e| self.unreachable(&e))?;
        let status = response.status().as_u16();
        let text = response.text().await.map_err(|e| self.unreachable(&e))?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}
