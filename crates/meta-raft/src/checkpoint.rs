//! Checkpoints: the state at one log position as a write-once generation on disk.
//!
//! A generation is built from a frozen state, outside every lock, verified by the store, and only then shown to
//! openraft. One received from a peer is on disk, verified and decoded before openraft hears of it, so that
//! installing it is a swap. What goes wrong on the way leaves everything as it was: a full disk may stop
//! checkpoints, never the replica.
//!
//! The newest generation is the one at the highest position, not the one written last: a peer's checkpoint that
//! turned out not to be needed is removed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meta_core::Core;
use meta_store::generation::{Record, until_error};
use meta_store::{Generation, GenerationError, GenerationWriter, Generations, Position};
use meta_types::codec;
use openraft::storage::{RaftSnapshotBuilder, Snapshot};
use openraft::type_config::alias::SnapshotOf;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::payload::MembershipRecord;
use crate::state::State;
use crate::types::{SnapshotMeta, StoredMembership, TypeConfig, log_id, term_of};
use crate::workers::{Workers, blocking, low_priority};

/// Bytes of records taken out of a frozen state at a time.
const STEP_BYTES: usize = 256 * 1024;
/// Version of what is kept beside the records.
const EXTRA_VERSION: u16 = 1;
/// Generations kept.
const KEEP: usize = 2;

/// Why a checkpoint could not be made or used.
#[derive(Debug, Error)]
pub(crate) enum CheckpointError {
    /// Nothing was applied yet.
    #[error("there is nothing to keep yet")]
    Empty,
    /// The walk over the state found it damaged in memory.
    #[error("the state's hash does not fit its content: memory or code is broken")]
    Unsound,
    /// The thread that makes them.
    #[error("the checkpoint thread: {0}")]
    Thread(#[source] io::Error),
    /// The files.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// What is in them.
    #[error("checkpoint at {position:?}: {why}")]
    Content {
        /// Which.
        position: Position,
        /// What is wrong.
        why: String,
    },
}

/// What a generation keeps beside the records, version 1. Frozen: a change is a new struct.
#[derive(Debug, Serialize, Deserialize)]
struct ExtraV1 {
    /// Term and index of the entry the membership comes from.
    membership_at: Option<(u64, u64)>,
    membership: MembershipRecord,
}

/// A membership as bytes for a generation or a transfer.
pub(crate) fn encode_extra(membership: &StoredMembership) -> Vec<u8> {
    let extra = ExtraV1 {
        membership_at: membership.log_id().as_ref().map(|id| (term_of(id), id.index)),
        membership: membership.membership().into(),
    };
    codec::encode(EXTRA_VERSION, &extra).expect("a membership is far below the codec's limit")
}

/// Reads it back.
pub(crate) fn decode_extra(bytes: &[u8]) -> Result<StoredMembership, codec::CodecError> {
    let extra: ExtraV1 = codec::decode(EXTRA_VERSION, bytes)?;
    let at = extra.membership_at.map(|(term, index)| log_id(term, index));
    Ok(StoredMembership::new(at, extra.membership.try_into()?))
}

/// A generation on its way through openraft.
pub struct CheckpointData {
    pub(crate) source: Arc<dyn Generations>,
    /// None for the empty state.
    pub(crate) generation: Option<Generation>,
    /// Its content, if it was decoded already.
    core: Option<Core>,
}

impl CheckpointData {
    /// The generation, and its content if it was decoded already.
    pub(crate) fn into_parts(self) -> (Option<Generation>, Option<Core>) {
        (self.generation, self.core)
    }
}

/// A peer's checkpoint on its way to the disk. Dropped before its end, it leaves nothing behind.
pub(crate) struct Receipt {
    checkpoints: Arc<Checkpoints>,
    writer: Box<dyn GenerationWriter>,
    /// Nobody else writes.
    one: tokio::sync::OwnedMutexGuard<()>,
}

impl Receipt {
    /// Writes the next records.
    pub(crate) async fn push(self, records: Vec<Record>) -> Result<Self, CheckpointError> {
        let Self { checkpoints, mut writer, one } = self;
        let workers = checkpoints.workers.clone();
        let work = move || {
            for record in records {
                let record = checkpoints.unless_stopped(record).map_err(GenerationError::Source)?;
                writer.push(record)?;
            }
            Ok(Self { checkpoints, writer, one })
        };
        blocking(&*workers, work).await.map_err(CheckpointError::Thread)?
    }

    /// All records came: verifies and decodes them.
    pub(crate) async fn finish(self) -> Result<(CheckpointData, SnapshotMeta), CheckpointError> {
        let Self { checkpoints, writer, one } = self;
        let workers = checkpoints.workers.clone();
        let work = move || {
            let received = checkpoints.received(writer.finish()?);
            drop(one);
            received
        };
        blocking(&*workers, work).await.map_err(CheckpointError::Thread)?
    }
}

/// The checkpoints of this replica.
pub(crate) struct Checkpoints {
    pub(crate) workers: Arc<dyn Workers>,
    generations: Arc<dyn Generations>,
    state: Arc<State>,
    newest: Mutex<Option<(Generation, StoredMembership)>>,
    /// One build or receipt at a time; whoever writes holds it.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// There is but one usable generation, and no log before it.
    lonely: AtomicBool,
    /// This replica stops: nothing more is written.
    stopped: AtomicBool,
    /// Index of the newest received one that openraft was shown.
    offered: Mutex<Option<u64>>,
    /// The name of the last received one that openraft installed.
    installed: Mutex<Option<String>>,
}

impl Checkpoints {
    pub(crate) fn new(
        workers: Arc<dyn Workers>,
        generations: Arc<dyn Generations>,
        state: Arc<State>,
        newest: Option<(Generation, StoredMembership)>,
    ) -> Self {
        let lonely = newest.is_some() && usable(&*generations).is_ok_and(|good| good.len() < KEEP);
        Self {
            workers,
            generations,
            state,
            newest: Mutex::new(newest),
            writing: Arc::default(),
            lonely: AtomicBool::new(lonely),
            stopped: AtomicBool::new(false),
            offered: Mutex::default(),
            installed: Mutex::new(None),
        }
    }

    /// The newest generation.
    pub(crate) fn newest(&self) -> Option<Generation> {
        self.newest.lock().as_ref().map(|(generation, _)| generation.clone())
    }

    /// Writes the state as it is now.
    pub(crate) async fn build(self: &Arc<Self>) -> Result<Generation, CheckpointError> {
        self.write(Self::build_blocking).await
    }

    /// Does `work` on a thread that gives way to everything else, while nobody else writes. It goes on if nobody
    /// waits for it any more, and [`Checkpoints::stop`] waits for that.
    async fn write<T, F>(self: &Arc<Self>, work: F) -> Result<T, CheckpointError>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, CheckpointError> + Send + 'static,
    {
        let one = self.writing.clone().lock_owned().await;
        let this = self.clone();
        let written = low_priority(&*self.workers, "checkpoint", move || {
            let written = work(&this);
            drop(one);
            written
        });
        written.await.map_err(CheckpointError::Thread)?
    }

    fn build_blocking(&self) -> Result<Generation, CheckpointError> {
        let (mut frozen, membership, installs) = {
            let core = self.state.core.read();
            (core.freeze(), self.state.membership.lock().clone(), self.state.installs())
        };
        #[cfg(feature = "positive-controls")]
        if meta_types::controls::active(meta_types::controls::Control::IndexApartFromData)
            && let Some(recorded) = *self.state.recorded.lock()
            && Some(recorded) > frozen.applied()
        {
            frozen.pretend_at(recorded);
        }
        let at = frozen.applied().ok_or(CheckpointError::Empty)?;
        let position = Position { term: at.term, index: at.index };
        let mut step = Vec::new().into_iter();
        let mut records = std::iter::from_fn(|| {
            step.next().or_else(|| {
                step = frozen.step(STEP_BYTES).into_iter();
                step.next()
            })
        })
        .map(|record| self.unless_stopped(record));
        let generation = self.generations.build(position, &encode_extra(&membership), &mut records)?;
        drop(records);
        if frozen.is_sound() == Some(false) {
            self.remove(&generation);
            return Err(CheckpointError::Unsound);
        }
        if self.state.installs() == installs {
            self.note(generation.clone(), membership);
            self.lonely.store(false, Ordering::Relaxed);
        }
        Ok(generation)
    }

    /// Begins to write a peer's checkpoint.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        position: Position,
        extra: Vec<u8>,
    ) -> Result<Receipt, CheckpointError> {
        let one = self.writing.clone().lock_owned().await;
        let generations = self.generations.clone();
        let begin = move || generations.begin(position, &extra);
        let writer = blocking(&*self.workers, begin).await.map_err(CheckpointError::Thread)??;
        Ok(Receipt { checkpoints: self.clone(), writer, one })
    }

    /// Decodes what was received.
    fn received(&self, generation: Generation) -> Result<(CheckpointData, SnapshotMeta), CheckpointError> {
        match load(&*self.generations, &generation) {
            Ok((core, membership)) => {
                let meta = meta(&generation, membership);
                let source = self.generations.clone();
                let data = CheckpointData { source, generation: Some(generation), core: Some(core) };
                Ok((data, meta))
            }
            Err(error) => {
                self.remove(&generation);
                Err(error)
            }
        }
    }

    /// Ends what is being written, and waits for that: the directory may get another owner.
    pub(crate) async fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.writing.lock().await);
    }

    fn unless_stopped(&self, record: Record) -> io::Result<Record> {
        if self.stopped.load(Ordering::Relaxed) {
            Err(io::Error::other("this replica stops"))
        } else {
            Ok(record)
        }
    }

    /// openraft installs this one: from here on it is the newest. Its content, decoded.
    pub(crate) async fn take_over(self: &Arc<Self>, data: CheckpointData) -> io::Result<Core> {
        let this = self.clone();
        let taken = blocking(&*self.workers, move || this.take_over_blocking(data)).await;
        taken?.map_err(io::Error::other)
    }

    fn take_over_blocking(&self, data: CheckpointData) -> Result<Core, CheckpointError> {
        let CheckpointData { source, generation, core } = data;
        let mut generation = generation.ok_or(CheckpointError::Empty)?;
        if !Arc::ptr_eq(&source, &self.generations) {
            let mut records = source.open(&generation)?.map(|record| record.map_err(io::Error::other));
            generation = self.generations.build(generation.position, &generation.extra, &mut records)?;
        }
        let membership = decode_extra(&generation.extra).map_err(|e| content(&generation, e))?;
        let core = match core {
            Some(core) => core,
            None => load(&*self.generations, &generation)?.0,
        };
        *self.installed.lock() = Some(generation.name.clone());
        self.note(generation, membership);
        self.lonely.store(true, Ordering::Relaxed);
        Ok(core)
    }

    /// Index of the newest received checkpoint that openraft was shown.
    pub(crate) fn offered(&self) -> Option<u64> {
        *self.offered.lock()
    }

    /// openraft is about to see a received checkpoint.
    pub(crate) fn offer(&self, generation: &Generation) {
        let mut offered = self.offered.lock();
        *offered = (*offered).max(Some(generation.position.index));
    }

    /// Forgets a received checkpoint that openraft had no use for.
    pub(crate) fn discard_unless_used(&self, generation: &Generation) {
        if self.installed.lock().as_ref() != Some(&generation.name) {
            *self.offered.lock() = None;
            self.remove(generation);
        }
    }

    /// Keeps the newest generations and removes the others; the oldest position kept, once there are enough.
    pub(crate) async fn prune(self: &Arc<Self>) -> Result<Option<Position>, CheckpointError> {
        self.write(Self::prune_blocking).await
    }

    fn prune_blocking(&self) -> Result<Option<Position>, CheckpointError> {
        let mut good = usable(&*self.generations)?;
        for old in good.iter().skip(KEEP) {
            self.generations.remove(&old.name)?;
        }
        good.truncate(KEEP);
        Ok(good.get(KEEP - 1).map(|oldest| oldest.position))
    }

    /// True if damage to one generation would leave nothing to start from.
    pub(crate) fn is_lonely(&self) -> bool {
        self.lonely.load(Ordering::Relaxed)
    }

    /// The newest, as openraft wants it.
    pub(crate) fn current(&self) -> Option<SnapshotOf<TypeConfig, CheckpointData>> {
        let (generation, membership) = self.newest.lock().clone()?;
        let meta = meta(&generation, membership);
        Some(Snapshot {
            meta,
            snapshot: CheckpointData {
                source: self.generations.clone(),
                generation: Some(generation),
                core: None,
            },
        })
    }

    /// A checkpoint of the empty state: there is no log id it could be sent under, so nobody opens it.
    fn of_nothing(&self) -> SnapshotOf<TypeConfig, CheckpointData> {
        let snapshot = CheckpointData { source: self.generations.clone(), generation: None, core: None };
        Snapshot { meta: SnapshotMeta::default(), snapshot }
    }

    fn note(&self, generation: Generation, membership: StoredMembership) {
        let mut newest = self.newest.lock();
        if newest.as_ref().is_none_or(|(known, _)| known.position.index < generation.position.index) {
            *newest = Some((generation, membership));
        }
    }

    fn remove(&self, generation: &Generation) {
        if let Err(error) = self.generations.remove(&generation.name) {
            tracing::warn!(%error, name = generation.name, "an unused checkpoint stays on disk");
        }
    }
}

/// The good generations, highest position first.
pub(crate) fn usable(generations: &dyn Generations) -> Result<Vec<Generation>, GenerationError> {
    let mut good = Vec::new();
    for found in generations.list()? {
        match found {
            Ok(generation) => good.push(generation),
            Err(bad) => tracing::warn!(name = bad.name, error = %bad.error, "a checkpoint cannot be opened"),
        }
    }
    good.sort_by_key(|generation| std::cmp::Reverse((generation.position.index, generation.number)));
    Ok(good)
}

/// Decodes a generation, checking all of it.
pub(crate) fn load(
    generations: &dyn Generations,
    generation: &Generation,
) -> Result<(Core, StoredMembership), CheckpointError> {
    let membership = decode_extra(&generation.extra).map_err(|e| content(generation, e))?;
    let mut broken = None;
    let core = Core::import(until_error(generations.open(generation)?, &mut broken));
    if let Some(error) = broken {
        return Err(error.into());
    }
    let core = core.map_err(|e| content(generation, e))?;
    let at = core.applied().map(|at| Position { term: at.term, index: at.index });
    if at != Some(generation.position) {
        return Err(content(generation, format!("its state stands at {at:?}")));
    }
    Ok((core, membership))
}

fn content(generation: &Generation, why: impl ToString) -> CheckpointError {
    CheckpointError::Content { position: generation.position, why: why.to_string() }
}

fn meta(generation: &Generation, last_membership: StoredMembership) -> SnapshotMeta {
    let last = log_id(generation.position.term, generation.position.index);
    SnapshotMeta { last_log_id: Some(last), last_membership }
}

/// openraft's builder. Checkpoints are built by our own driver; this one only shows openraft the newest, and
/// builds one if openraft cannot do without.
pub(crate) struct CheckpointBuilder {
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) build: bool,
}

impl RaftSnapshotBuilder<TypeConfig> for CheckpointBuilder {
    type SnapshotData = CheckpointData;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, CheckpointData>, io::Error> {
        if self.build {
            match self.checkpoints.build().await {
                Ok(_) => {}
                // Only openraft's own suite purges a log of which nothing was applied.
                Err(CheckpointError::Empty) => return Ok(self.checkpoints.of_nothing()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        self.checkpoints.current().ok_or_else(|| io::Error::other(CheckpointError::Empty))
    }
}
