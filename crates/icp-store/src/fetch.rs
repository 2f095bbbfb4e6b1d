//! Fetching a package from peers: several sources, resumed parts, every byte verified, one transfer per operation
//! however many wait for it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Client;
use thiserror::Error;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use crate::error::StoreError;
use crate::manifest::{FileEntry, Manifest};
use crate::peer::{Peer, PeerError};
use crate::staging::{Sealed, Staging};
use crate::store::PackageStore;

/// How often all sources are tried for one file.
const ROUNDS: usize = 2;
/// Pause before the next source is asked when one is busy giving the file to others.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// How long those that were given the file before are waited for.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);

/// A package to fetch.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The operation that made it.
    pub op: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its files, as the cluster recorded them.
    pub manifest: Manifest,
}

/// Why a package could not be fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    /// This node's disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody is left who has the bytes.
    #[error("no source has `{path}`: {tried}")]
    NoSource {
        /// The file.
        path: String,
        /// Each source and what it said.
        tried: String,
    },
}

impl FetchError {
    /// A short code for records and status pages.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(e) => e.code(),
            Self::NoSource { .. } => "NO_SOURCE",
        }
    }
}

type Flight = Arc<OnceCell<Result<(), Arc<FetchError>>>>;

/// Fetches packages into one store.
#[derive(Debug)]
pub struct Fetcher {
    store: PackageStore,
    client: Client,
    flights: Mutex<HashMap<String, Flight>>,
}

impl Fetcher {
    /// For this store.
    pub fn new(store: PackageStore, client: Client) -> Self {
        Self { store, client, flights: Mutex::default() }
    }

    /// Fetches, verifies and publishes a package unless it is here. Calls for one op share one transfer and its
    /// outcome; a later call after a failure tries again.
    pub async fn fetch(&self, wanted: &Wanted, sources: &[String]) -> Result<(), Arc<FetchError>> {
        let flight = self.flights().entry(wanted.op.clone()).or_default().clone();
        let outcome = flight.get_or_init(|| self.transfer(wanted, sources)).await.clone();
        let mut flights = self.flights();
        if flights.get(&wanted.op).is_some_and(|current| Arc::ptr_eq(current, &flight)) {
            flights.remove(&wanted.op);
        }
        outcome
    }

    fn flights(&self) -> std::sync::MutexGuard<'_, HashMap<String, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn transfer(&self, wanted: &Wanted, sources: &[String]) -> Result<(), Arc<FetchError>> {
        self.try_transfer(wanted, sources).await.map_err(Arc::new)
    }

    async fn try_transfer(&self, wanted: &Wanted, sources: &[String]) -> Result<(), FetchError> {
        let (store, w) = (self.store.clone(), wanted.clone());
        let is_here =
            blocking(move || Ok(store.installed(&w.name, &w.version)?.is_some_and(|d| d.op == w.op))).await?;
        if is_here {
            return Ok(());
        }
        let sealed = self.receive(wanted, sources).await?;
        let w = wanted.clone();
        blocking(move || sealed.publish(&w.name, &w.version)).await.map_err(FetchError::from)
    }

    /// Receives a whole, verified copy without publishing it, beside the one that may be published: files that are
    /// here and have the right bytes are taken, the others come from the sources. Not shared: one caller an op.
    pub async fn receive(&self, wanted: &Wanted, sources: &[String]) -> Result<Sealed, FetchError> {
        let (store, w) = (self.store.clone(), wanted.clone());
        let mut staging = blocking(move || {
            store.check_space(w.manifest.total_bytes())?;
            store.stage(&w.op)
        })
        .await?;
        let mut sources: Vec<Peer> = sources.iter().map(|s| Peer::new(self.client.clone(), s)).collect();
        for file in wanted.manifest.files() {
            let entry = file.clone();
            let (back, reused) = blocking(move || {
                let reused = staging.reuse(&entry)?;
                Ok((staging, reused))
            })
            .await?;
            staging = back;
            if !reused {
                staging = fetch_file(staging, file, &self.client, &mut sources).await?;
            }
        }
        blocking(move || staging.seal()).await.map_err(FetchError::from)
    }
}

async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(f).await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
}

/// Where the bytes of one file may come from, and what was learnt of the sources.
struct Search<'a> {
    sources: &'a mut Vec<Peer>,
    client: &'a Client,
    turn: usize,
    /// Turns without an answer that promises more.
    fruitless: usize,
    tried: Vec<String>,
    /// Since when nobody gave a byte though somebody is busy giving the file to others.
    busy_since: Option<Instant>,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.sources.is_empty() || self.fruitless >= ROUNDS * self.sources.len()
    }

    fn insists(&self) -> bool {
        self.busy_since.is_some_and(|since| since.elapsed() >= BUSY_PATIENCE)
    }

    /// The next source, and its place.
    fn next(&mut self) -> (usize, Peer) {
        let at = self.turn % self.sources.len();
        self.turn += 1;
        self.fruitless += 1;
        (at, self.sources[at].clone())
    }

    /// A source that is busy names those it gave the file to: they come first from now on.
    fn busy(&mut self, holders: Vec<String>) {
        // Waiting is not failing, until it lasts too long.
        if !self.insists() {
            self.fruitless -= 1;
        }
        self.busy_since.get_or_insert_with(Instant::now);
        for holder in holders {
            if !self.sources.iter().any(|known| known.address() == holder) {
                self.sources.insert(0, Peer::new(self.client.clone(), holder));
            }
        }
    }

    fn failed(self, file: &FileEntry) -> FetchError {
        let mut tried = self.tried;
        if tried.is_empty() {
            tried.push("no live node holds the package".into());
        }
        FetchError::NoSource { path: file.path.clone(), tried: tried.join("; ") }
    }
}

/// Tries the sources in turn. One that gave wrong bytes is dropped for the rest of the transfer.
async fn fetch_file(
    mut staging: Staging,
    file: &FileEntry,
    client: &Client,
    sources: &mut Vec<Peer>,
) -> Result<Staging, FetchError> {
    let mut search = Search { sources, client, turn: 0, fruitless: 0, tried: Vec::new(), busy_since: None };
    while !search.is_over() {
        let (at, source) = search.next();
        let part = staging.part(file);
        let had = tokio::fs::metadata(&part).await.map_or(0, |m| m.len());
        match download(&source, file, &part, had.min(file.size), search.insists()).await? {
            Ok(()) => {}
            Err(PeerError::Busy { holders, .. }) => {
                search.busy(holders);
                sleep(BUSY_PAUSE).await;
                continue;
            }
            // One that is being given the file will have it.
            Err(PeerError::Refused { status: 404, .. })
                if search.busy_since.is_some() && !search.insists() =>
            {
                search.fruitless -= 1;
                sleep(BUSY_PAUSE).await;
                continue;
            }
            Err(e) => {
                search.tried.push(e.to_string());
                continue;
            }
        }
        let entry = file.clone();
        let (back, added) = blocking(move || {
            let added = staging.add_part(&entry);
            Ok((staging, added))
        })
        .await?;
        staging = back;
        match added {
            Ok(()) => return Ok(staging),
            Err(StoreError::Hash { .. }) if had > 0 => {
                // The bytes before may have been another's: the same source once more, from the start.
                search.tried.push(format!("{}: the resumed file is wrong", source.address()));
                search.turn -= 1;
                search.fruitless -= 1;
            }
            Err(StoreError::Hash { .. }) => {
                search.sources.remove(at);
                tracing::warn!(source = source.address(), path = file.path, "a peer served wrong bytes");
                search.tried.push(format!("{}: wrong bytes", source.address()));
                (search.turn, search.fruitless) = (0, 0);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Err(search.failed(file))
}

/// Brings the whole file into `part` from the first source that gives it, going on where an earlier try ended. The
/// bytes are not verified yet. False if no source has it.
pub async fn download_part(
    client: &Client,
    sources: &[String],
    file: &FileEntry,
    part: &Path,
) -> Result<bool, StoreError> {
    for source in sources {
        let had = tokio::fs::metadata(part).await.map_or(0, |m| m.len());
        let peer = Peer::new(client.clone(), source);
        match download(&peer, file, part, had.min(file.size), true).await? {
            Ok(()) => return Ok(true),
            Err(error) => tracing::info!(%error, path = file.path, "not fetched from a peer"),
        }
    }
    Ok(false)
}

/// Appends what is missing of a part. The outer error is this node's, the inner the peer's.
async fn download(
    peer: &Peer,
    file: &FileEntry,
    part: &Path,
    had: u64,
    insist: bool,
) -> Result<Result<(), PeerError>, StoreError> {
    let io = |doing| crate::fsx::context(doing, part);
    let mut out = OpenOptions::new().create(true).append(true).open(part).await.map_err(io("open"))?;
    if out.metadata().await.map_err(io("inspect"))?.len() > had {
        out.set_len(had).await.map_err(io("truncate"))?;
    }
    if had == file.size {
        return Ok(Ok(()));
    }
    let response = match peer.blob(&file.blake3, had, insist).await {
        Ok(response) => response,
        Err(e) => return Ok(Err(e)),
    };
    let mut bytes = response.bytes_stream();
    let mut size = had;
    while let Some(chunk) = bytes.next().await {
        let broken = |why: String| PeerError::Unreachable { peer: peer.address().into(), why };
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(e) => {
                out.flush().await.map_err(io("write"))?;
                return Ok(Err(broken(e.to_string())));
            }
        };
        size += chunk.len() as u64;
        if size > file.size {
            // Whatever this is, it is not the file: let the hash say so.
            break;
        }
        out.write_all(&chunk).await.map_err(io("write"))?;
    }
    out.flush().await.map_err(io("write"))?;
    if size < file.size {
        let why = format!("`{}` ended after {size} of {} bytes", file.path, file.size);
        return Ok(Err(PeerError::Unreachable { peer: peer.address().into(), why }));
    }
    Ok(Ok(()))
}
