//! Receiving the files of a package whose list is known: only those that no node has, each by its hash, each resumed
//! where an earlier connection broke off.

mod receive;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use icp_store::fetch::download_part;
use icp_store::peer::{self, Peer};
use icp_store::{Digest, FileEntry, Manifest, Sealed, Staging, StoreError};
use parking_lot::Mutex;
use records::nodes;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::receive::Sender;
pub use self::receive::UploadError;
use super::CreateError;
use crate::host::{Host, blocking};
use crate::limits::UPLOAD_ABANDONED;

/// Uploads that this node coordinates, by operation.
#[derive(Debug, Default)]
pub struct Uploads {
    going_on: Mutex<HashMap<String, Arc<Upload>>>,
}

impl Uploads {
    /// The upload of an operation, while it goes on here.
    pub fn get(&self, op: &str) -> Option<Arc<Upload>> {
        self.going_on.lock().get(op).cloned()
    }

    pub(super) fn add(&self, op: &str, upload: &Arc<Upload>) {
        self.going_on.lock().insert(op.to_owned(), upload.clone());
    }

    pub(super) fn remove(&self, op: &str) {
        if let Some(upload) = self.going_on.lock().remove(op) {
            upload.end.cancel();
        }
    }
}

/// A file that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingFile {
    /// Its hash.
    pub blake3: Digest,
    /// Its size.
    pub size: u64,
    /// Bytes that are here: the upload goes on there.
    pub received: u64,
}

/// Which nodes have which of the missing files.
pub(super) type Holders = BTreeMap<Digest, Vec<String>>;

/// One upload.
#[derive(Debug)]
pub struct Upload {
    op: String,
    manifest: Manifest,
    parts: HashMap<Digest, PathBuf>,
    staging: AsyncMutex<Option<Staging>>,
    state: Mutex<State>,
    changed: Notify,
    end: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// Not here yet.
    wanted: BTreeMap<Digest, u64>,
    /// Of those, what other nodes are asked for.
    from_nodes: BTreeSet<Digest>,
    /// Who sends which file.
    senders: HashMap<Digest, Sender>,
    heard: Instant,
    /// What this node's disk said; the create is undone for it.
    failed: Option<String>,
}

impl Upload {
    /// Stages what this node has of the files; refused if the rest would not fit.
    pub(super) async fn open(host: &Host, op: &str, manifest: Manifest) -> Result<Self, CreateError> {
        let (id, files) = (op.to_owned(), manifest.files().to_vec());
        let node = host.options.name.clone();
        let staged = host.on_disk(move |store| stage(store, &id, &files)).await;
        let (staging, wanted, parts) = staged.map_err(|error| CreateError::of_disk(&node, &error))?;
        let state = State {
            wanted,
            from_nodes: BTreeSet::new(),
            senders: HashMap::new(),
            heard: Instant::now(),
            failed: None,
        };
        Ok(Self {
            op: op.to_owned(),
            manifest,
            parts,
            staging: AsyncMutex::new(Some(staging)),
            state: Mutex::new(state),
            changed: Notify::new(),
            end: CancellationToken::new(),
        })
    }

    /// What the client is to send.
    pub fn missing(&self) -> Vec<MissingFile> {
        let state = self.state.lock();
        let sent = state.wanted.iter().filter(|(digest, _)| !state.from_nodes.contains(digest));
        sent.map(|(digest, size)| MissingFile {
            blake3: *digest,
            size: *size,
            received: self.received(digest),
        })
        .collect()
    }

    fn received(&self, digest: &Digest) -> u64 {
        self.parts.get(digest).and_then(|part| std::fs::metadata(part).ok()).map_or(0, |part| part.len())
    }

    /// Asks the other live nodes for what is not here, so that the client sends only what no node has.
    pub(super) async fn look_around(&self, host: &Host, me: &str) -> Holders {
        let wanted: Vec<Digest> = self.state.lock().wanted.keys().copied().collect();
        let mut holders = Holders::new();
        if wanted.is_empty() {
            return holders;
        }
        let servers = nodes::live_servers(&host.views.borrow().clone()).unwrap_or_default();
        let others = servers.into_iter().filter(|(of, _)| of.node != me);
        let client = peer::client();
        let asked = others.filter_map(|(_, node)| node.value.node_address).map(|address| {
            let peer = Peer::new(client.clone(), address);
            let wanted = &wanted;
            async move { (peer.has(wanted).await, peer) }
        });
        for (answer, peer) in join_all(asked).await {
            match answer {
                Ok(has) => {
                    for digest in has {
                        holders.entry(digest).or_default().push(peer.address().to_owned());
                    }
                }
                Err(error) => tracing::info!(%error, "a node did not say which files it has"),
            }
        }
        holders.retain(|digest, _| wanted.contains(digest));
        self.state.lock().from_nodes = holders.keys().copied().collect();
        holders
    }

    /// Fetches what other nodes have, waits for the rest from the client, and seals the tree.
    pub(super) async fn complete(
        &self,
        host: &Host,
        holders: Holders,
        deadline: Instant,
    ) -> Result<Sealed, CreateError> {
        let fetched = async {
            for (digest, sources) in holders {
                self.fetch(&digest, &sources).await?;
            }
            Ok::<_, StoreError>(())
        };
        let waited =
            async { tokio::try_join!(async { fetched.await.map_err(CreateError::from) }, self.wait()) };
        match timeout_at(deadline, waited).await {
            Ok(done) => done.map_err(|error| match error {
                CreateError::Received(crate::receive::ReceiveError::Store(error)) => {
                    CreateError::of_disk(&host.options.name, &error)
                }
                other => other,
            })?,
            Err(_) => return Err(CreateError::TimedOut("the upload took too long".into())),
        };
        let staging = self.staging.lock().await.take();
        let staging = staging.ok_or_else(|| CreateError::Undone("its upload was given up".into()))?;
        Ok(blocking(move || staging.seal()).await?)
    }

    async fn fetch(&self, digest: &Digest, sources: &[String]) -> Result<(), StoreError> {
        let Some((part, entry)) = self.parts.get(digest).zip(self.entry(digest)) else { return Ok(()) };
        let here = download_part(&peer::client(), sources, entry, part).await?;
        if here {
            match self.take(digest).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Hash { .. }) => {
                    tracing::warn!(%digest, "another node has other bytes under this hash")
                }
                Err(error) => return Err(error),
            }
        }
        // Then the client is to send it.
        self.state.lock().from_nodes.remove(digest);
        Ok(())
    }

    fn entry(&self, digest: &Digest) -> Option<&FileEntry> {
        self.manifest.files().iter().find(|file| file.blake3 == *digest)
    }

    /// Until nothing is missing; an error if the client is gone.
    async fn wait(&self) -> Result<(), CreateError> {
        loop {
            let heard = {
                let state = self.state.lock();
                if let Some(why) = &state.failed {
                    return Err(CreateError::Undone(why.clone()));
                }
                if state.wanted.is_empty() {
                    return Ok(());
                }
                state.heard
            };
            if timeout_at(heard + UPLOAD_ABANDONED, self.changed.notified()).await.is_err()
                && self.state.lock().heard.elapsed() >= UPLOAD_ABANDONED
                && !self.missing().is_empty()
            {
                let text =
                    format!("the client sent nothing for {UPLOAD_ABANDONED:?} and the upload is not whole");
                return Err(CreateError::Undone(text));
            }
        }
    }

    /// A whole part becomes every file of the package that has its hash.
    async fn take(&self, digest: &Digest) -> Result<(), StoreError> {
        let entries: Vec<FileEntry> =
            self.manifest.files().iter().filter(|file| file.blake3 == *digest).cloned().collect();
        let mut guard = self.staging.lock().await;
        let Some(mut staging) = guard.take() else { return Ok(()) };
        let (back, taken) = blocking(move || {
            let taken = take_part(&mut staging, &entries);
            (staging, taken)
        })
        .await;
        *guard = Some(back);
        taken?;
        let mut state = self.state.lock();
        state.wanted.remove(digest);
        state.from_nodes.remove(digest);
        drop(state);
        self.changed.notify_one();
        tracing::debug!(op = self.op, %digest, "file received");
        Ok(())
    }
}

/// The first file gets the part, the others its blob.
fn take_part(staging: &mut Staging, entries: &[FileEntry]) -> Result<(), StoreError> {
    let Some((first, others)) = entries.split_first() else { return Ok(()) };
    staging.add_part(first)?;
    for other in others {
        staging.reuse(other)?;
    }
    Ok(())
}

type Staged = (Staging, BTreeMap<Digest, u64>, HashMap<Digest, PathBuf>);

/// Takes what the blobs have, makes the empty files, and checks the space for the rest.
fn stage(store: &icp_store::PackageStore, op: &str, files: &[FileEntry]) -> Result<Staged, StoreError> {
    let mut staging = store.stage(op)?;
    let mut wanted = BTreeMap::new();
    let mut parts = HashMap::new();
    for file in files {
        if wanted.contains_key(&file.blake3) || staging.reuse(file)? {
            continue;
        }
        if file.size == 0 && file.blake3 == Digest::of(b"") {
            let empty = staging.create_file(&file.path)?;
            staging.add(empty)?;
            continue;
        }
        wanted.insert(file.blake3, file.size);
        parts.insert(file.blake3, staging.part(file));
    }
    store.check_space(wanted.values().fold(0, |sum, size| sum.saturating_add(*size)))?;
    Ok((staging, wanted, parts))
}
