//! openraft's own storage suite over our log and state machine, on a disk in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meta_core::Core;
use meta_store::{DiskGenerations, MemDisk, Wal, WalOptions};
use meta_types::Origin;
use meta_types::seams::Clock;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};

use crate::checkpoint::Checkpoints;
use crate::hook::NoHook;
use crate::lease_clock::LeaseClock;
use crate::log_store::{Flusher, LogStore};
use crate::options::ProposerOptions;
use crate::proposer::Proposer;
use crate::state::State;
use crate::state_machine::StateMachine;
use crate::types::{StoredMembership, TypeConfig};

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, FlusherGuard> for Builder {
    async fn build(&self) -> Result<(FlusherGuard, LogStore, StateMachine), StorageError<TypeConfig>> {
        let disk = Arc::new(MemDisk::new());
        // Small: the suite opens many.
        let options = WalOptions { segment_bytes: 64 * 1024, prewrite_bytes: 0, ..WalOptions::default() };
        let (wal, _) = Wal::open(disk.clone(), Path::new("/log"), options).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(RealClock(Instant::now()));
        let (log, flusher) = LogStore::new(Arc::new(wal), clock.clone(), Arc::default()).unwrap();
        let generations = Arc::new(DiskGenerations::open_dir(disk, Path::new("/checkpoints")).unwrap());
        let state = Arc::new(State::new(Core::new(), StoredMembership::default()));
        let machine = StateMachine {
            checkpoints: Arc::new(Checkpoints::new(generations, state.clone(), None)),
            state,
            hook: Arc::new(NoHook),
            proposer: Arc::new(Proposer::new(Origin { member: 1, boot: 1 }, ProposerOptions::default())),
            lease_clock: Arc::new(LeaseClock::new(clock)),
        };
        Ok((FlusherGuard { _flusher: flusher }, log, machine))
    }
}

struct FlusherGuard {
    _flusher: Flusher,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_accepts_our_storage() {
    Suite::test_all(Builder).await.unwrap();
}
