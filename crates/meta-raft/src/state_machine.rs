//! openraft's state machine over the core: applies entries in steps, swaps the state for a received checkpoint.
//!
//! The state is in memory and checkpoints are on disk: after a restart openraft applies the log again from the
//! checkpoint on. Answers do not go through openraft: after each step the batches' outcomes go to this replica's
//! proposer and their events to the hook, in log order, once the state shows them.

use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use meta_core::EntryPosition;
use meta_types::Batch;
use openraft::entry::RaftEntry;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::type_config::alias::SnapshotOf;

use crate::checkpoint::{CheckpointBuilder, CheckpointData, Checkpoints};
use crate::hook::{AppliedBatch, ApplyHook};
use crate::lease_clock::LeaseClock;
use crate::payload::decode_batch;
use crate::proposer::Proposer;
use crate::state::State;
use crate::types::{Entry, EntryPayload, LogId, SnapshotMeta, StoredMembership, TypeConfig, log_id, term_of};

/// Entries applied under one write lock.
const STEP_ENTRIES: usize = 64;

/// See the module.
pub(crate) struct StateMachine {
    pub(crate) state: Arc<State>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) hook: Arc<dyn ApplyHook>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) lease_clock: Arc<LeaseClock>,
}

/// An entry, ready to be applied.
enum Work {
    Batch(Batch),
    Membership(StoredMembership),
    Blank,
}

struct Step {
    at: EntryPosition,
    work: Work,
    responder: Option<ApplyResponder<TypeConfig>>,
}

impl Step {
    fn new((entry, responder): (Entry, Option<ApplyResponder<TypeConfig>>)) -> io::Result<Self> {
        let id = entry.log_id();
        let work = match entry.payload {
            EntryPayload::Blank => Work::Blank,
            EntryPayload::Membership(membership) => {
                Work::Membership(StoredMembership::new(Some(id), membership))
            }
            EntryPayload::Normal(proposal) => Work::Batch(decode_batch(&proposal.0).map_err(|error| {
                let what = format!("entry {id} cannot be applied: {error}");
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?),
        };
        Ok(Self { at: EntryPosition { index: id.index, term: term_of(&id) }, work, responder })
    }
}

impl StateMachine {
    /// Applies a step of entries under one lock, then tells everybody.
    fn apply_step(&self, steps: Vec<Step>) {
        let Some(last) = steps.last().map(|step| step.at) else { return };
        let mut applied = Vec::new();
        let mut outcomes = Vec::new();
        let mut responders = Vec::new();
        let mut core = self.state.core.write();
        for Step { at, work, responder } in steps {
            match work {
                Work::Batch(batch) => {
                    let done = core.apply(at, &batch);
                    outcomes.push((batch.origin, done.outcomes));
                    applied.push(AppliedBatch {
                        at,
                        revision: core.revision(),
                        compact_revision: core.compact_revision(),
                        events: done.events,
                    });
                }
                Work::Membership(membership) => {
                    core.skip(at);
                    *self.state.membership.lock() = membership;
                }
                Work::Blank => core.skip(at),
            }
            responders.extend(responder);
        }
        let lease_time_ms = core.lease_time_ms();
        drop(core);
        self.lease_clock.on_applied(last.term, lease_time_ms);
        if !applied.is_empty() {
            self.hook.applied(applied);
        }
        self.state.announce(last.index);
        for (origin, outcomes) in outcomes {
            self.proposer.settle(origin, outcomes.into_iter());
        }
        responders.into_iter().for_each(|responder| responder.send(()));
    }
}

/// The log id of a place in the log.
pub(crate) fn id_of(at: EntryPosition) -> LogId {
    log_id(at.term, at.index)
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = CheckpointData;
    type SnapshotBuilder = CheckpointBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let core = self.state.core.read();
        Ok((core.applied().map(id_of), self.state.membership.lock().clone()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        let mut steps = entries.ready_chunks(STEP_ENTRIES);
        while let Some(entries) = steps.next().await {
            let decoded = entries.into_iter().map(|entry| entry.and_then(Step::new));
            let steps = decoded.collect::<io::Result<Vec<_>>>()?;
            // Positive control: the index first, the data a moment later. A checkpoint between has one of the two.
            #[cfg(feature = "positive-controls")]
            if meta_types::controls::active(meta_types::controls::Control::IndexApartFromData) {
                *self.state.recorded.lock() = steps.last().map(|step| step.at);
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
            self.apply_step(steps);
            // A long catch-up leaves the thread to others now and then.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<CheckpointBuilder> {
        Some(CheckpointBuilder { checkpoints: self.checkpoints.clone(), build: force })
    }

    async fn get_snapshot_builder(&mut self) -> CheckpointBuilder {
        CheckpointBuilder { checkpoints: self.checkpoints.clone(), build: true }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: CheckpointData) -> Result<(), io::Error> {
        let (core, revision, compact_revision) = {
            let core = self.checkpoints.take_over(data).await?;
            let revisions = (core.revision(), core.compact_revision());
            (core, revisions.0, revisions.1)
        };
        let old = self.state.replace(core, meta.last_membership.clone());
        // Freeing a big state takes a while.
        self.checkpoints.workers.blocking(Box::new(move || drop(old)));
        self.hook.jumped(revision, compact_revision);
        self.proposer.skipped();
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, CheckpointData>>, io::Error> {
        Ok(self.checkpoints.current())
    }
}
