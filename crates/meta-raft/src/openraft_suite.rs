//! openraft's own storage suite over our log and state machine, on a disk in memory.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use meta_core::{Core, EntryPosition};
use meta_store::{DiskGenerations, MemDisk, Wal, WalOptions};
use meta_types::Origin;
use meta_types::seams::Clock;
use openraft::StorageError;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::SnapshotOf;

use crate::checkpoint::{CheckpointBuilder, CheckpointData, Checkpoints};
use crate::hook::NoHook;
use crate::lease_clock::LeaseClock;
use crate::log_store::{Flusher, LogParts, LogStore};
use crate::options::ProposerOptions;
use crate::proposer::Proposer;
use crate::state::State;
use crate::state_machine::StateMachine;
use crate::types::{LogId, SnapshotMeta, StoredMembership, TypeConfig, term_of};
use crate::workers::Threads;

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The suite applies logs with holes. The core refuses a hole, and rightly; here it is filled.
struct Filled(StateMachine);

impl RaftStateMachine<TypeConfig> for Filled {
    type SnapshotData = CheckpointData;
    type SnapshotBuilder = CheckpointBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        self.0.applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        let entries: Vec<_> = entries.collect().await;
        for item in entries {
            let (entry, responder) = item?;
            let next = self.0.state.core.read().applied().map(|at| at.index + 1);
            for index in next.unwrap_or(entry.log_id.index)..entry.log_id.index {
                let term = term_of(&entry.log_id);
                self.0.state.core.write().skip(EntryPosition { index, term });
            }
            self.0.apply(futures_util::stream::iter([Ok((entry, responder))])).await?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> CheckpointBuilder {
        self.0.get_snapshot_builder().await
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: CheckpointData) -> Result<(), io::Error> {
        self.0.install_snapshot(meta, data).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, CheckpointData>>, io::Error> {
        self.0.get_current_snapshot().await
    }
}

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, Filled, FlusherGuard> for Builder {
    async fn build(&self) -> Result<(FlusherGuard, LogStore, Filled), StorageError<TypeConfig>> {
        let disk = Arc::new(MemDisk::new());
        // Small: the suite opens many.
        let options = WalOptions { segment_bytes: 64 * 1024, prewrite_bytes: 0, ..WalOptions::default() };
        let (wal, _) = Wal::open(disk.clone(), Path::new("/log"), options).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(RealClock(Instant::now()));
        let (log, flusher) = LogStore::new(LogParts {
            wal: Arc::new(wal),
            clock: clock.clone(),
            workers: Arc::new(Threads),
            times: Arc::default(),
            _lock: None,
        })
        .unwrap();
        let generations = Arc::new(DiskGenerations::open_dir(disk, Path::new("/checkpoints")).unwrap());
        let state = Arc::new(State::new(Core::new(), StoredMembership::default()));
        let machine = StateMachine {
            checkpoints: Arc::new(Checkpoints::new(Arc::new(Threads), generations, state.clone(), None)),
            state,
            hook: Arc::new(NoHook),
            proposer: Arc::new(Proposer::new(Origin { member: 1, boot: 1 }, ProposerOptions::default())),
            lease_clock: Arc::new(LeaseClock::new(clock)),
        };
        Ok((FlusherGuard { _flusher: flusher }, log, Filled(machine)))
    }
}

struct FlusherGuard {
    _flusher: Flusher,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_accepts_our_storage() {
    Suite::test_all(Builder).await.unwrap();
}
